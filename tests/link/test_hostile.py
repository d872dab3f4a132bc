"""What a side may not do, tried: frames that are none, paths that lead out, files that are the other side's."""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
from pathlib import Path

import pytest

from hawk.errors import HawkError, StorageError
from hawk.link import rules
from hawk.link.apply import Applier, Data
from hawk.link.frames import (
    MOST_BODY,
    MOST_HEADER,
    Beat,
    File,
    Frame,
    FrameReader,
    Header,
    Lines,
    ProtocolError,
    Remove,
    Tail,
    encode,
)
from hawk.link.vouching import Vouched
from hawk.store.locks import hold, holder


class Bytes:
    """A stream that gives what it was made with, some bytes at a time."""

    def __init__(self, data: bytes, step: int = 7) -> None:
        self._parts = [data[at : at + step] for at in range(0, len(data), step)]

    async def read(self) -> bytes:
        return self._parts.pop(0) if self._parts else b""

    async def write(self, data: bytes) -> None:
        raise AssertionError

    async def close(self) -> None:
        pass


def reader(data: bytes) -> FrameReader:
    return FrameReader(Bytes(data))


def _header(text: bytes, body: int = 0) -> bytes:
    return struct.pack(">4sII", b"HwkL", len(text), body) + text


async def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    sent = [Frame(Beat()), Frame(Tail(7, "journal.jsonl", 3, 4), os.urandom(5000)), Frame(Remove(8, "ä/b"))]
    got = reader(b"".join(map(encode, sent)))
    assert [await got.read() for _ in range(4)] == [*sent, None]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no frame"),
        (encode(Frame(Beat()))[:-1], "middle of a frame"),
        (struct.pack(">4sII", b"HwkL", MOST_HEADER + 1, 0), "too large"),
        (struct.pack(">4sII", b"HwkL", 2, MOST_BODY + 1), "too large"),
        (_header(b"{}"), "not valid"),
        (_header(b'{"t":'), "not valid"),
        (_header(b'{"type":"unheard-of"}'), "not valid"),
        (_header(b'{"type":"ack","seq":"many"}'), "not valid"),
        (_header(b"[" * 100_000), "not valid"),
        (_header(b"\xff\xfe"), "not valid"),
    ],
)
async def test_what_is_no_frame_is_said_to_be_none(data: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        await reader(data).read()


OUTSIDE = [
    "/etc/passwd",
    "../other/job.json",
    "logs/../../x",
    "logs//x",
    "./x",
    "",
    "logs/",
    "a\0b",
    "a\nb",
    "x" * 300,
    "/".join("a" * 20),
    "ä" * 200,
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    applier = Applier(run, lambda _: True)
    for frame in (whole(path, b"x"), Frame(Tail(1, path, 0, 1), b"x"), Frame(Remove(1, path))):
        with pytest.raises(ProtocolError):
            applier.apply(frame)
    assert [p.name for p in tmp_path.rglob("*")] == ["run"]


def whole(path: str, body: bytes, **more: object) -> Frame:
    header = {"size": len(body), "mtime": 1, "digest": _digest(body), **more}
    return Frame(File(1, path, **header), body)  # type: ignore[arg-type]


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


@pytest.mark.parametrize("frame", ["file", "tail", "lines", "remove"])
def test_a_link_in_the_run_directory_leads_nowhere(tmp_path: Path, frame: str) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "workers").mkdir(parents=True)
    outside.mkdir()
    (outside / "x.jsonl").write_text("theirs")
    (run / "workers/0").symlink_to(outside)
    (run / "x.jsonl").symlink_to(outside / "x.jsonl")
    (run / "journal.jsonl").symlink_to(outside / "x.jsonl")
    applier = Applier(run, lambda _: True)
    frames = {
        "file": [whole("workers/0/x.jsonl", b"ours")],
        "tail": [Frame(Tail(1, "workers/0/x.jsonl", 6, 1), b"!"), Frame(Tail(1, "x.jsonl", 6, 1), b"!")],
        "lines": [Frame(Lines(1, "journal.jsonl"), b"!\n")],
        "remove": [Frame(Remove(1, "workers/0/x.jsonl"))],
    }[frame]
    for one in frames:
        with pytest.raises(HawkError):
            applier.apply(one)
    applier.close()
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("x.jsonl", "theirs")]


def test_parts_that_do_not_fit_leave_what_is_there(tmp_path: Path) -> None:
    applier = Applier(tmp_path, lambda _: True)
    applier.apply(whole("plan.json", b"good"))
    base = (4, 1)
    for wrong in (
        whole("plan.json", b"bad", digest=_digest(b"other")),
        whole("plan.json", b"bad", size=2),
        whole("plan.json", b"bad", size=rules.LARGEST + 1),
        whole("plan.json", b"", size=-1),
        whole("plan.json", b"bad", offset=5),
        whole("plan.json", b"bad", size=7, keep=4, offset=4, base=(4, 2)),
        whole("plan.json", b"bad", size=9, keep=6, offset=6, base=base),
        Frame(File(1, "plan.json", size=0, mtime=1, offset=0)),
    ):
        with pytest.raises(ProtocolError):
            applier.apply(wrong)
    applier.close()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("plan.json", b"good")]
    assert applier.apply(whole("plan.json", b"better", size=10, keep=4, offset=4, base=base))
    assert (tmp_path / "plan.json").read_bytes() == b"goodbetter"


def test_a_pipe_or_a_directory_in_the_place_of_a_file_is_not_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.jsonl")
    (tmp_path / "plan.json").mkdir()
    applier = Applier(tmp_path, lambda _: True)
    with pytest.raises(HawkError):
        applier.apply(Frame(Tail(1, "x.jsonl", 0, 1), b"x"))
    with pytest.raises(StorageError):
        applier.apply(whole("plan.json", b"x"))
    with pytest.raises(ProtocolError, match="does not grow"):
        applier.apply(Frame(Tail(1, "plan.json", 0, 1), b"x"))
    with pytest.raises(ProtocolError, match="begins at"):
        applier.apply(Frame(Tail(1, "y.jsonl", 5, 1), b"x"))


def test_a_run_directory_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    applier = Applier(tmp_path / "gone", lambda _: True)
    with pytest.raises(StorageError, match="not there any more"):
        applier.apply(whole("plan.json", b"x"))
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    "path",
    [
        "supervisor.lock",
        "workers/0/lock",
        "workers/0/data/x",
        ".hidden",
        "logs/.x.eval.abcdefgh",
        "a/.buffer/x",
    ],
)
def test_what_is_not_carried_is_not_taken(tmp_path: Path, path: str) -> None:
    with pytest.raises(ProtocolError, match="may not write"):
        Applier(tmp_path, lambda _: True).apply(whole(path, b"x"))


def test_only_what_is_allowed_is_done(tmp_path: Path) -> None:
    asked: list[Data] = []

    def allowed(header: Data) -> bool:
        asked.append(header)
        return False

    with pytest.raises(ProtocolError, match="may not write"):
        Applier(tmp_path, allowed).apply(whole("job.json", b"{}"))
    assert len(asked) == 1


def test_locks_that_a_server_vouches_for_are_found_by_whoever_asks(tmp_path: Path) -> None:
    vouched = Vouched(tmp_path)
    vouched.hold(
        {"supervisor.lock": 17, "workers/3/lock": 23, "../x": 1, "workers/../lock": 2, "job.json": 3}
    )
    assert (holder(tmp_path / "supervisor.lock"), holder(tmp_path / "workers/3/lock")) == (17, 23)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["lock", "supervisor.lock"]
    vouched.hold({"supervisor.lock": 18})
    assert (holder(tmp_path / "supervisor.lock"), holder(tmp_path / "workers/3/lock")) == (18, None)
    assert hold(tmp_path / "supervisor.lock") is None
    vouched.release()
    assert holder(tmp_path / "supervisor.lock") is None
    Vouched(tmp_path / "gone").hold({"workers/1/lock": 1})
    assert not (tmp_path / "gone").exists()


def test_names_of_frames_are_all_different() -> None:
    tags = [kind.__struct_config__.tag for kind in Header.__args__]
    assert len(set(tags)) == len(tags)
    assert asyncio.iscoroutinefunction(FrameReader.read)
