"""Keeps Inspect's trace in the worker's directory, where it can be read while the worker lives and after.

Inspect's own handler writes to a file that it compresses and deletes as the process ends; after a kill it stays, but
its place does not say whose it was. This one takes its place, whenever Inspect makes it: the same lines, appended to
`trace.jsonl` as they come (a killed process loses none), cut into pieces, compressed, bounded.

Nothing here may fail an evaluation: on a full disk lines are dropped and counted.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
from inspect_ai._util import logger as inspect_logger
from inspect_ai._util.trace import TraceFormatter
from inspect_ai.log._samples import sample_active

from hawk.bridge.tracepieces import Pieces
from hawk.bridge.tracesegments import CURRENT, SIDECAR, TraceFiles, read_beat
from hawk.core.recorder.trace import ENTER, Beat, Sidecar, ended_by_death

_LEAST_NEWS = 1 << 18  # bytes written since the sidecar: less is read again faster than written
_NOWHERE = f"{os.devnull}/none"  # a path at which no file can be

_log = logging.getLogger("hawk.trace")
_handler: TraceHandler | None = None


def install(home: Path) -> None:
    """Write the trace of this process into the worker's directory, from now on and whenever Inspect starts logging.

    Never raises: without a trace an evaluation still runs.
    """
    global _handler
    try:
        _handler = handler = TraceHandler(home)
    except OSError as ex:
        _log.warning("no trace is kept: %s", ex)
        return
    make = inspect_logger.LogHandler.__init__

    @wraps(make)
    def made(self: inspect_logger.LogHandler, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _take_place(self, handler)

    inspect_logger.LogHandler.__init__ = made  # type: ignore[method-assign]
    existing = inspect_logger._logHandler["handler"]
    if existing is not None:
        _take_place(existing, handler)


def checkpoint() -> None:
    """Write down what is in flight, if the trace has grown by much since; to be called now and then. Never raises."""
    if _handler is not None:
        _handler.checkpoint()


def _take_place(logger: inspect_logger.LogHandler, handler: TraceHandler) -> None:
    own = logger.trace_logger
    logger.trace_logger = handler  # type: ignore[assignment]
    with contextlib.suppress(OSError):
        own.close()
        path = Path(own.baseFilename)
        own.baseFilename = _NOWHERE  # its exit handler would compress and delete what is there
        if "INSPECT_TRACE_FILE" not in os.environ:
            # `inspect trace` and `inspect ctl` look for it there.
            path.unlink(missing_ok=True)
            path.symlink_to(os.path.relpath(handler.path, path.parent.resolve()))


class TraceHandler(logging.Handler):
    """What Inspect's handler gives every record to that belongs into the trace.

    Raises:
        OSError: The file can't be opened.
    """

    def __init__(self, home: Path, *, size: int | None = None, most: int | None = None) -> None:
        """`size`: bytes of a piece; `most`: of all compressed ones."""
        super().__init__()
        self.path = home / CURRENT
        self._home = home
        self._format = TraceFormatter()
        self._guard = threading.RLock()  # a signal's handler may log in the middle of a line
        self._one_sidecar = threading.Lock()
        self._open: dict[str, bytes] = {}
        self._dropped = self._unsaid = 0
        self._written: tuple[int, int, int] | None = None  # (offset, base, dropped) of the sidecar
        self._sidecar_size = 0
        died, last_lines = _of_the_dead(home)
        self._pieces = Pieces(home, size=size, most=most, moved=self._write_sidecar)
        self._began = self._pieces.offset
        for line in last_lines:
            self._write(line)
        self._began = self._pieces.offset
        again = f" after {died}" if died else ""
        self._write(_note("INFO", f"worker process {os.getpid()} begins{again}"))
        self._write_sidecar()
        self._pieces.tidy()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's line. Never raises."""
        try:
            active = sample_active()
            if active is not None:
                record.sample_uuid = active.sample_uuid
            line = self._format.format(record).encode("utf-8", "backslashreplace") + b"\n"
            with self._guard:
                self._fold(record, line)
                self._write(line)
        except Exception:  # a record that can't be written as text, or anything else: an evaluation goes on
            self._dropped += 1

    def checkpoint(self) -> None:
        """Write the sidecar, if enough has been written since. Never raises."""
        with self._guard:
            written, offset = self._written, self._pieces.offset
            if (
                written is not None
                and written[1:] == (self._pieces.base, self._dropped)
                and offset - written[0] < max(_LEAST_NEWS, self._sidecar_size)
            ):
                return
        self._write_sidecar()

    def close(self) -> None:
        self._write_sidecar()
        super().close()

    def _fold(self, record: logging.LogRecord, line: bytes) -> None:
        event, trace_id = getattr(record, "event", None), getattr(record, "trace_id", None)
        if trace_id is None:
            return
        if event == ENTER:
            self._open[trace_id] = line
        elif event is not None:
            self._open.pop(trace_id, None)

    def _write(self, line: bytes) -> None:
        lost = self._unsaid
        gap = _note("WARNING", f"{lost} lines before this one could not be written") if lost else b""
        why = self._pieces.append(gap + line)
        if why is None:
            self._unsaid = 0
            return
        self._dropped += 1
        self._unsaid += 1
        if self._dropped == 1:
            with contextlib.suppress(Exception):
                _log.warning("the trace has gaps: %s", why)

    def _write_sidecar(self) -> None:
        with self._one_sidecar, contextlib.suppress(OSError):  # a full disk: readers read on from the old one
            self._replace_sidecar()

    def _replace_sidecar(self) -> None:
        with self._guard:
            offset, base, dropped = self._pieces.offset, self._pieces.base, self._dropped
            actions = list(self._open.values())
        document = Sidecar(
            pid=os.getpid(),
            began=self._began,
            base=base,
            at=offset,
            time=datetime.now(UTC).isoformat(),
            actions=[msgspec.Raw(line[:-1]) for line in actions],
            dropped=dropped,
        )
        data = msgspec.json.encode(document)
        draft = self._home / f".{SIDECAR}"
        try:
            draft.write_bytes(data)
            draft.replace(self._home / SIDECAR)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        self._written, self._sidecar_size = (offset, base, dropped), len(data)


def _note(level: str, text: str) -> bytes:
    """A line of our own."""
    fields = {"timestamp": datetime.now().astimezone().isoformat(), "level": level, "message": text}
    return json.dumps({**fields, "pid": os.getpid()}).encode() + b"\n"


def _of_the_dead(home: Path) -> tuple[int | None, list[bytes]]:
    """The pid of the worker's process before this one, and the lines that end what it had in flight."""
    try:
        with TraceFiles(home) as files:
            pid = files.sidecar.pid if files.sidecar is not None else None
            now, last = datetime.now().astimezone(), _last_sign(home, pid) or files.modified
            lines = [ended_by_death(line, pid, now, last) for line in files.in_flight().raw]
    except FileNotFoundError:
        return None, []
    except Exception as ex:  # a damaged trace must not keep a worker from starting
        _log.warning("the trace of the process before could not be read: %s", ex)
        return None, []
    return pid, [line for line in lines if line is not None]


def _last_sign(home: Path, pid: int | None) -> float | None:
    """The last heartbeat of a process, seconds since the epoch."""
    beat = read_beat(home, Beat)
    try:
        return datetime.fromisoformat(beat.at).timestamp() if beat is not None and beat.pid == pid else None
    except ValueError:
        return None
