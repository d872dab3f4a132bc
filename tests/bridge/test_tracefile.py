"""Writing the trace: Inspect's lines, in Inspect's place, and never in an evaluation's way."""

import json
import logging
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inspect_ai._util.trace import TraceFormatter, trace_action

from hawk.bridge.tracefile import TraceHandler
from hawk.bridge.tracepieces import Pieces
from hawk.bridge.tracesegments import CURRENT, Piece, TraceFiles, pieces, read_sidecar
from hawk.core.recorder.trace import parse_line

logging.addLevelName(13, "TRACE")


@contextmanager
def logger_of(handler: logging.Handler) -> Iterator[logging.Logger]:
    """A logger whose records go to the handler as Inspect's own gives them: by `emit`."""
    logger = logging.getLogger(f"test-{id(handler)}")
    logger.propagate = False
    logger.setLevel(1)
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)


def until(probe: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not probe():
        assert time.monotonic() < end
        time.sleep(0.01)


def lines(home: Path) -> list[dict[str, Any]]:
    with TraceFiles(home) as files:
        return [json.loads(line) for line in files.lines(files.begin)]


def in_flight(home: Path) -> list[str | None]:
    with TraceFiles(home) as files:
        return [line.detail for line in files.in_flight().actions]


def fill(logger: logging.Logger, count: int, size: int = 500) -> None:
    for number in range(count):
        logger.log(13, "%d %s", number, "x" * size)


def _tidy(home: Path) -> bool:
    """All pieces are compressed but the newest, and nobody is about to write there."""
    if any(thread.name == "hawk-trace" for thread in threading.enumerate()):
        return False
    found = pieces(home)
    return len(found) > 1 and [piece.packed for piece in found] == [True] * (len(found) - 1) + [False]


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_lines_are_inspects(tmp_path: Path) -> None:
    handler, ours = TraceHandler(tmp_path), []

    class Spy(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            ours.append(json.loads(TraceFormatter().format(record)))

    with logger_of(handler) as logger:
        logger.addHandler(Spy())
        logger.warning("a %s \x1b[31m \ud800 %s", "warning", object)
        with (
            trace_action(logger, "Tool Call", "bash(%s)", "ls"),
            pytest.raises(ValueError),
            trace_action(logger, "Model", "generate"),
        ):
            raise ValueError("why\nnot")
    assert lines(tmp_path)[1:] == ours
    assert [one.get("event") for one in ours] == [None, "enter", "enter", "error", "exit"]


def test_what_is_in_flight_is_known_from_sidecar_and_rest(tmp_path: Path) -> None:
    handler = TraceHandler(tmp_path)
    with logger_of(handler) as logger, trace_action(logger, "Model", "one"):
        assert in_flight(tmp_path) == ["one"]
        fill(logger, 600)
        handler.checkpoint()
        sidecar = read_sidecar(tmp_path)
        assert sidecar is not None
        assert sidecar.at > 300_000
        with trace_action(logger, "Model", "two"):
            written = (tmp_path / "trace.open.json").stat().st_mtime_ns
            handler.checkpoint()  # little has been written: that is read again faster
            assert (tmp_path / "trace.open.json").stat().st_mtime_ns == written
            assert in_flight(tmp_path) == ["one", "two"]
        assert in_flight(tmp_path) == ["one"]
    assert in_flight(tmp_path) == []


def test_the_trace_is_cut_compressed_and_bounded(tmp_path: Path) -> None:
    handler = TraceHandler(tmp_path, size=100_000, most=5_000)
    with logger_of(handler) as logger, trace_action(logger, "Model", "long"):
        fill(logger, 3000)
        until(lambda: _tidy(tmp_path) and len(pieces(tmp_path)) < 16)
        assert in_flight(tmp_path) == ["long"]
        with TraceFiles(tmp_path) as files:
            assert files.begin > 0
            assert files.end > 1_500_000
            numbers = [
                int(found["message"].split()[0]) for found in map(json.loads, files.lines(files.begin))
            ]
        assert numbers == list(range(numbers[0], 3000))
    until(lambda: not list(tmp_path.glob(".trace*")))


def test_parts_that_come_while_others_are_compressed_drop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are as large as all compressed ones together may be, until they are compressed too."""
    compress, more = Pieces._compress, [b"x" * 500 + b"\n"] * 500

    def compress_while_it_grows(self: Pieces, piece: Piece) -> None:
        compress(self, piece)
        while more:
            self.append(more.pop())

    monkeypatch.setattr(Pieces, "_compress", compress_while_it_grows)
    written = Pieces(tmp_path, size=100_000, most=50_000)
    for _ in range(400):
        written.append(b"y" * 500 + b"\n")
    until(lambda: not more and _tidy(tmp_path))
    assert [piece.start for piece in pieces(tmp_path)] == [0, 100_200, 200_400, 300_600]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("trace*.zst")} == {0o600}


def test_readers_see_every_line_once_while_it_is_cut(tmp_path: Path) -> None:
    handler = TraceHandler(tmp_path, size=20_000)
    got: list[int] = []
    position, problems = 0, []
    with logger_of(handler) as logger:
        writer = threading.Thread(target=fill, args=(logger, 400))
        writer.start()
        while True:
            alive = writer.is_alive()
            with TraceFiles(tmp_path) as files:
                if files.begin > position:
                    problems.append((position, files.begin))
                found = list(files.lines(position))
                position = files.end
            got += [int(one["message"].split()[0]) for one in map(json.loads, found) if "pid" not in one]
            if not alive:
                break
    assert problems == []
    assert got == list(range(400))


def test_the_next_process_goes_on_and_ends_what_the_last_had_in_flight(tmp_path: Path) -> None:
    first = TraceHandler(tmp_path, size=50_000)
    with logger_of(first) as logger:
        held = trace_action(logger, "Model", "held")
        held.__enter__()
        fill(logger, 250)
        first.checkpoint()
    until(lambda: _tidy(tmp_path))
    with TraceFiles(tmp_path) as files:
        end = files.end
    with (tmp_path / CURRENT).open("ab") as f:
        f.write(b'{"timestamp": "torn')
    TraceHandler(tmp_path, size=50_000)
    with TraceFiles(tmp_path) as files:
        after = [parse_line(line) for line in files.lines(end)]
        assert files.sidecar is not None
        assert files.sidecar.began > end
    assert after[0] is None  # what was torn, ended
    assert after[1] is not None
    assert (after[1].detail, after[1].event, after[1].error_type) == ("held", "error", "WorkerDied")
    assert after[2] is not None
    assert after[2].message == f"worker process {os.getpid()} begins after {os.getpid()}"
    assert in_flight(tmp_path) == []
    held.__exit__(None, None, None)


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """Files of this process may not grow beyond a size: a write that would is cut short, or refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_on_a_full_disk_lines_are_dropped_counted_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler = TraceHandler(tmp_path)
    with logger_of(handler) as logger:
        with no_room_beyond(3000), trace_action(logger, "Model", "gone"):
            fill(logger, 10, size=700)
        fill(logger, 1)
        handler.checkpoint()
    found = lines(tmp_path)  # each of them whole
    sidecar = read_sidecar(tmp_path)
    assert sidecar is not None
    assert sidecar.dropped >= 7
    gaps = [one["message"] for one in found if "could not be written" in one["message"]]
    assert sum(int(gap.split()[0]) for gap in gaps) == sidecar.dropped
    assert in_flight(tmp_path) == []  # its end was not written: the sidecar knows
    assert caplog.text.count("the trace has gaps") == 1


def test_nothing_raises_into_the_evaluation(tmp_path: Path) -> None:
    handler = TraceHandler(tmp_path)
    with logger_of(handler) as logger:
        logger.warning("%d %d", "not a number")
        logger.warning("x", extra={"odd": Unspeakable()})
        logger.warning("x", extra={"trace_id": ["unhashable"], "event": "enter", "action": "a"})
        os.close(handler._pieces._fd)
        logger.warning("no file")
        handler._pieces._fd = os.open(tmp_path / CURRENT, os.O_WRONLY | os.O_APPEND)
        logger.warning("fine")
    assert lines(tmp_path)[-1]["message"] == "fine"
    assert handler._dropped >= 3


def test_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    handler = TraceHandler(tmp_path, size=50_000)
    with logger_of(handler) as logger:
        threads = [threading.Thread(target=fill, args=(logger, 200)) for _ in range(6)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            handler.checkpoint()
        numbers = [int(one["message"].split()[0]) for one in lines(tmp_path)[1:]]
    assert sorted(numbers) == sorted(list(range(200)) * 6)


INSPECT = """
import logging, sys
from pathlib import Path
from inspect_ai._util import logger
from inspect_ai._util.trace import trace_action
from hawk.bridge import tracefile

log = logging.getLogger("inspect_ai.test")
def say(what):
    with trace_action(log, "Model", what):
        log.info("inside")

logger.init_logger("warning")
tracefile.install(Path(sys.argv[1]))
say("logging was there first")
for owner in (logging.getLogger(), logging.getLogger("inspect_ai")):
    owner.removeHandler(logger._logHandler["handler"])
logger._logHandler["handler"] = None
logger.init_logger("warning")
say("logging came later")
tracefile.checkpoint()
"""


def test_it_takes_the_place_of_inspects_own_whenever_that_is_made_and_outlives_the_process(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    environ = {**os.environ, "XDG_DATA_HOME": str(data)}
    subprocess.run([sys.executable, "-c", INSPECT, str(tmp_path)], env=environ, check=True, timeout=60)
    messages = [found["message"] for found in lines(tmp_path)]
    assert messages[1:] == [
        text
        for what in ("logging was there first", "logging came later")
        for text in (f"Model: {what} (enter)", "inside", f"Model: {what} (exit)")
    ]
    [link] = (data / "inspect_ai" / "traces").iterdir()  # where Inspect's own tools look for it
    assert link.read_bytes() == (tmp_path / CURRENT).read_bytes()
