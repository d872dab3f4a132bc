"""Cassettes: what is recorded is replayed, whatever happens to the file meanwhile."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import resource
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.errors import StorageError
from hawk.middleman.cassette import Identity, chunk_of, lines
from hawk.middleman.record import Recorder
from hawk.middleman.replay import Player, ReplayMissError

ONE = Identity("task", "sample", "1")
PATH = "/v1/chat/completions"
JSON = [("Content-Type", "application/json")]


def asking(text: str) -> bytes:
    return msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": text}]})


def record(
    recorder: Recorder,
    text: str,
    *chunks: bytes,
    identity: Identity = ONE,
    status: int = 200,
    complete: bool = True,
    headers: list[tuple[str, str]] | None = None,
    secrets: tuple[str, ...] = (),
    pause: float = 0.5,
) -> None:
    recording = recorder.begin(identity, "openai", PATH, asking(text), secrets)
    if status:
        recording.head(status, headers or JSON)
    at = time.monotonic()
    for i, chunk in enumerate(chunks):
        recording.chunk(chunk, at + pause * (i + 1))
    recording.end(complete)


def find(player: Player, text: str, identity: Identity = ONE) -> tuple[int, bytes]:
    found = player.find(identity, "openai", PATH, asking(text))
    return found.status, b"".join(data for _, data in found.chunks)


@given(st.binary(max_size=40))
def test_chunks_keep_their_bytes(data: bytes) -> None:
    assert chunk_of(0, data).data() == data


def test_chunks_and_pauses_come_back_as_they_were(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c")
    snowman = "☃".encode()
    record(recorder, "hello", b"data: {}\n", b"", snowman[:1], snowman[1:])
    recorder.close()
    found = Player(tmp_path / "c").find(ONE, "openai", PATH + "?key=other", asking("hello"))
    assert [data for _, data in found.chunks] == [b"data: {}\n", b"", snowman[:1], snowman[1:]]
    assert [round(pause, 2) for pause, _ in found.chunks] == [0.5] * 4
    assert found.complete
    assert found.headers == [("content-type", "application/json")]
    hasty = Player(tmp_path / "c", speed=0).find(ONE, "openai", PATH, asking("hello"))
    assert [pause for pause, _ in hasty.chunks] == [0.0] * 4
    assert b'"s":"data: {}\\n"' in (tmp_path / "c").read_bytes(), "text stays readable"


def test_equal_requests_get_their_answers_in_order_and_failures_as_they_were(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c")
    record(recorder, "q", b"{}", status=429, headers=[*JSON, ("Retry-After", "3"), ("Set-Cookie", "a=b")])
    record(recorder, "q", b"half", complete=False)
    record(recorder, "q", status=0, complete=False)
    record(recorder, "q", b"whole")
    recorder.close()
    player = Player(tmp_path / "c")
    limited = player.find(ONE, "openai", PATH, asking("q"))
    assert (limited.status, dict(limited.headers)) == (
        429,
        {"content-type": "application/json", "retry-after": "3"},
    )
    cut = player.find(ONE, "openai", PATH, asking("q"))
    assert (cut.complete, cut.chunks[0][1]) == (False, b"half")
    assert find(player, "q") == (0, b"")
    assert find(player, "q") == (200, b"whole")
    with pytest.raises(ReplayMissError, match="recorded 4 times, but it was asked once more"):
        find(player, "q")
    again = Player(tmp_path / "c", loop=True)
    assert [find(again, "q")[0] for _ in range(5)] == [429, 200, 0, 200, 429]


def test_a_miss_shows_the_nearest_entry_of_the_same_attempt_and_what_differs(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c")
    other = Identity("task", "sample", "2")
    record(recorder, "What is the capital of Norway?", b"1")
    record(recorder, "Tell me about whales", b"2")
    record(recorder, "What is the capital of Sweden", b"3", identity=other)
    recorder.close()
    player = Player(tmp_path / "c")
    with pytest.raises(ReplayMissError) as told:
        find(player, "What is the capital of Sweden?")
    assert "epoch 1" in str(told.value.nearest)
    assert '-      "content": "What is the capital of Norway?",' in told.value.difference
    assert '+      "content": "What is the capital of Sweden?",' in told.value.difference
    assert told.value.remedy
    with pytest.raises(ReplayMissError) as told:
        find(player, "Tell me about whales", other)
    assert "epoch 2" in str(told.value.nearest)


def test_an_empty_cassette_misses_and_a_missing_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "c").touch()
    with pytest.raises(ReplayMissError, match="It is empty"):
        find(Player(tmp_path / "c"), "q")
    with pytest.raises(StorageError, match="No such file"):
        Player(tmp_path / "none")


def test_compressed_answers_are_stored_plain(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c")
    packed = gzip.compress(b"hello ") + gzip.compress(b"world")
    gzipped = [*JSON, ("Content-Encoding", "gzip")]
    record(recorder, "split", *(packed[i : i + 7] for i in range(0, len(packed), 7)), headers=gzipped)
    record(recorder, "cut", packed[:-9], headers=gzipped, complete=False)
    record(recorder, "plain", b"hello world", headers=gzipped)
    record(recorder, "unknown", b"\x0b\x05", headers=[*JSON, ("Content-Encoding", "br")])
    recorder.close()
    player = Player(tmp_path / "c")
    assert find(player, "split") == (200, b"hello world")
    assert find(player, "cut")[1].startswith(b"hello ")
    assert find(player, "plain") == (200, b"hello world")
    assert ("content-encoding", "br") in player.find(ONE, "openai", PATH, asking("unknown")).headers


def test_a_secret_that_a_provider_repeats_is_not_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "c")
    record(
        recorder, "my key is sk-secret", b"wrong key: sk-s", b"ecret.", status=401, secrets=("sk-secret", "")
    )
    recorder.close()
    text = (tmp_path / "c").read_text()
    assert "secret" not in text
    assert "sk-s" not in text
    assert [c.data() for c in next(lines(tmp_path / "c")).line.chunks] == [b"wrong key: ****", b"*****."]


def test_names_that_no_text_can_hold_are_recorded_and_found(tmp_path: Path) -> None:
    odd = Identity("caf\udce9", "\ud800", "1")
    recorder = Recorder(tmp_path / "c")
    record(recorder, "q", b"1", identity=odd, headers=[("Content-Type", "text/\udce9")])
    recorder.close()
    assert find(Player(tmp_path / "c"), "q", odd) == (200, b"1")


def test_a_torn_line_costs_only_itself_and_a_resumed_run_appends(tmp_path: Path) -> None:
    path = tmp_path / "c"
    recorder = Recorder(path)
    record(recorder, "first", b"1")
    record(recorder, "second", b"2")
    recorder.close()
    path.write_bytes(path.read_bytes()[:-30])
    resumed = Recorder(path)
    record(resumed, "third", b"3")
    resumed.close()
    player = Player(path)
    assert find(player, "first") == (200, b"1")
    assert find(player, "third") == (200, b"3")
    with pytest.raises(ReplayMissError):
        find(player, "second")


def test_lines_of_another_version_and_rubbish_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "c"
    recorder = Recorder(path)
    record(recorder, "first", b"1")
    recorder.close()
    later = path.read_bytes().replace(b'"v":1', b'"v":2')
    path.write_bytes(b'\n[]\n\xff\n{"a":' + b"[" * 5000 + b"\n" + later + path.read_bytes())
    assert len(Player(path)) == 1


def append_many(path: str, who: int) -> None:
    recorder = Recorder(Path(path))
    threads = [
        threading.Thread(
            target=record, args=(recorder, f"{who}/{i}", b"x" * 20_000, b"y"), kwargs={"identity": ONE}
        )
        for i in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()


def test_two_processes_and_many_threads_append_whole_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=append_many, args=(str(tmp_path / "c"), who)) for who in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert len(list(lines(tmp_path / "c"))) == 40


def test_a_full_disk_stops_recording_and_leaves_whole_lines(tmp_path: Path) -> None:
    """A limit on file size fails a write in its middle, as a full disk does."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
            recorder = Recorder(tmp_path / "c")
            for i in range(5):
                record(recorder, str(i), b"x" * 20_000)
            recorder.close()
            record(recorder, "after", b"x")
            code = 0 if recorder.stopped else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(lines(tmp_path / "c"))) == 2
    assert (tmp_path / "c").read_bytes().endswith(b"\n")
