"""A job's `events.jsonl`: what the cluster said, written once each, never more than a bounded file.

One writer: the server that leads. What it wrote before, or another server did, is read again at the first line.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from datetime import UTC, datetime, timedelta

import msgspec

from hawk.core.cluster_said import Said
from hawk.core.loglevels import LogLevel
from hawk.core.text import parse_time
from hawk.store.rundir import RunDir

MOST_NEWS = 4 << 20
"""Bytes of the file from which on only what is wrong is written: room for some ten thousand lines."""

MOST = 6 << 20
"""Bytes of the file from which on nothing is."""

_WAITING = 5_000
"""Lines that wait to be written, while another server leads."""

_NEWS = (LogLevel.DEBUG, LogLevel.INFO)
_log = logging.getLogger(__name__)


class Chronicle:
    """Of one job. `add` from any thread; `write` from one."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._waiting: deque[Said] = deque(maxlen=_WAITING)
        self._counts: dict[str, int] | None = None

    def add(self, said: Said) -> None:
        """Have a line written, unless it is there already."""
        with self._lock:
            self._waiting.append(said)

    def write(self, skew: float = 0.0) -> int:
        """Write what waits. Returns how many lines; those of a job that is not there, or of a full disk, are lost.

        Args:
            skew: Seconds that the API server's clock, which their times are by, is ahead of ours.
        """
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        if not waiting or not self._run.spec_file.exists():
            return 0
        if self._counts is None:
            self._counts = self._read()
        fresh = [_local(said, skew) for said in waiting if self._is_new(said)]
        if not fresh:
            return 0
        try:
            return self._append(fresh)
        except OSError as ex:
            _log.warning("job %s: what the cluster said can't be written: %s", self._run.job_id, ex.strerror)
            return 0

    def _is_new(self, said: Said) -> bool:
        """What is said again and again is written when it was said twice, four times, eight times, …"""
        assert self._counts is not None
        before = self._counts.get(said.uid, 0)
        if said.count < 2 * before or said.count == before:
            return False
        self._counts[said.uid] = said.count
        return True

    def _read(self) -> dict[str, int]:
        decoder = msgspec.json.Decoder(Said)
        counts: dict[str, int] = {}
        try:
            with self._run.events_file.open("rb") as f:
                for line in f:
                    try:
                        said = decoder.decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        continue
                    counts[said.uid] = max(said.count, counts.get(said.uid, 0))
        except OSError:
            pass
        return counts

    def _append(self, fresh: list[Said]) -> int:
        encode = msgspec.json.Encoder().encode
        fd = os.open(self._run.events_file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size > MOST:
                return 0
            lines = [encode(said) + b"\n" for said in fresh if size < MOST_NEWS or said.level not in _NEWS]
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            os.write(fd, (b"\n" if torn else b"") + b"".join(lines))
            return len(lines)
        finally:
            os.close(fd)


def _local(said: Said, skew: float) -> Said:
    """With its time by our clock, beside the runner's lines."""
    at = parse_time(said.at)
    when = datetime.now(UTC) if at is None else at - timedelta(seconds=skew)
    return msgspec.structs.replace(said, at=when.isoformat(timespec="milliseconds"))
