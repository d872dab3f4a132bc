"""A job's log lines: supervisor, workers and journal in one list, read from the ends of the files.

Every entry has a time, because clients follow a log by asking for what is later than the last they saw. A line
that carries none takes the time at which its part of the file was first seen, and within a file times always
rise, so nothing is shown twice or lost.
"""

from __future__ import annotations

import bisect
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hawk.core.text import strip_controls
from hawk.store.rundir import JournalEntry, RunDir

CHUNK = 64 * 1024
MOST = 8 * 1024 * 1024  # bytes read of one file for one answer
LONGEST = 8192  # characters of one message
_STEP = timedelta(microseconds=1)
_STAMP = re.compile(r"^\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?)\]?[ :\-]*")
_LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
_TIME_KEYS = ("timestamp", "time", "ts", "at")
_TEXT_KEYS = ("message", "msg", "event")
_LEVEL_KEYS = ("level", "status", "levelname")


class LogEntry(msgspec.Struct):
    """One line. `service` says whose: supervisor, worker/<n> or journal."""

    timestamp: datetime
    service: str
    message: str
    level: str | None = None
    attributes: dict[str, Any] = {}


class Logs(msgspec.Struct):
    """The body of `GET /monitoring/jobs/{id}/logs`."""

    entries: list[LogEntry]


class _Line(NamedTuple):
    offset: int
    text: bytes


class LogReader:
    """Reads logs, and remembers when which part of a file was first seen. Safe from any thread."""

    def __init__(self) -> None:
        self._seen: dict[Path, list[tuple[int, datetime]]] = {}
        self._guard = threading.Lock()

    def read(
        self,
        run: RunDir,
        *,
        since: datetime | None = None,
        from_start: bool = False,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[LogEntry]:
        """Entries later than `since`; of more than `limit`, the newest or (oldest first) the oldest.

        Args:
            from_start: Begin with the first line instead of near the end; for oldest first without `since`
                that is so anyway.
            limit: The most entries.
            newest_first: Order of the answer, and which end it keeps.
        """
        head = (not newest_first and since is None) or from_start
        entries: list[LogEntry] = []
        for service, path in _sources(run):
            lines = _head(path, limit) if head else _tail(path, limit, since, whole=not newest_first)
            entries += [
                e for e in self._entries(service, path, lines) if since is None or e.timestamp > since
            ]
        entries.sort(key=lambda entry: entry.timestamp, reverse=newest_first)
        return entries[:limit]

    def forget(self, run: RunDir) -> None:
        """The run directory has gone."""
        with self._guard:
            for path in [path for path in self._seen if path.is_relative_to(run.path)]:
                del self._seen[path]

    def _entries(self, service: str, path: Path, lines: list[_Line]) -> Iterator[LogEntry]:
        seen = self._note(path)
        last = datetime.min.replace(tzinfo=UTC)
        stamped = False
        for line in lines:
            entry = _journal_entry(line.text) if service == "journal" else _entry(service, line.text)
            if entry is None:
                continue
            if entry.timestamp is _UNKNOWN:
                entry.timestamp = last + _STEP if stamped else _first_seen(seen, line.offset)
            else:
                stamped = True
            entry.timestamp = last = max(entry.timestamp, last + _STEP)
            yield entry

    def _note(self, path: Path) -> list[tuple[int, datetime]]:
        """Remember that everything in the file now was there when it was last written."""
        try:
            stat = path.stat()
        except OSError:
            return []
        with self._guard:
            seen = self._seen.setdefault(path, [])
            if not seen or seen[-1][0] < stat.st_size:
                seen.append((stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC)))
            return list(seen)


_UNKNOWN = datetime.max.replace(tzinfo=UTC)


def _first_seen(seen: list[tuple[int, datetime]], offset: int) -> datetime:
    if not seen:
        return datetime.now(UTC)
    return seen[min(bisect.bisect_right([size for size, _ in seen], offset), len(seen) - 1)][1]


def _sources(run: RunDir) -> Iterator[tuple[str, Path]]:
    yield "supervisor", run.supervisor_log
    yield "journal", run.journal_file
    for index in run.worker_indices():
        yield f"worker/{index}", run.worker(index) / "output.jsonl"


def _head(path: Path, limit: int) -> list[_Line]:
    """The first lines; a torn last line is left out."""
    lines: list[_Line] = []
    offset = 0
    try:
        with path.open("rb") as f:
            while len(lines) < limit and offset < MOST:
                text = f.readline(CHUNK)
                if not text:
                    break
                lines.append(_Line(offset, text))
                offset += len(text)
    except OSError:
        pass
    return lines


def _tail(path: Path, limit: int, since: datetime | None, *, whole: bool) -> list[_Line]:
    """At least the last `limit` lines or, with `whole`, enough to reach back to `since`; never more than `MOST` bytes."""
    size = CHUNK
    try:
        with path.open("rb") as f:
            end = f.seek(0, 2)
            while True:
                start = (
                    max(0, end - size) // CHUNK * CHUNK
                )  # the same lines begin later reads: times stay as they were
                f.seek(start)
                lines = _split(f.read(end - start), start)
                if start == 0 or size >= MOST or _enough(lines, limit, since, whole=whole):
                    return lines
                size *= 4
    except OSError:
        return []


def _split(data: bytes, start: int) -> list[_Line]:
    lines: list[_Line] = []
    offset = start
    for text in data.splitlines(keepends=True):
        lines.append(_Line(offset, text))
        offset += len(text)
    return lines[1:] if start else lines  # the first one is cut


def _enough(lines: list[_Line], limit: int, since: datetime | None, *, whole: bool) -> bool:
    if not whole:
        return len(lines) > limit
    entries = (_entry("", line.text) for line in lines[:50])
    first = next((e.timestamp for e in entries if e and e.timestamp is not _UNKNOWN), None)
    return since is not None and first is not None and first <= since


def _journal_entry(line: bytes) -> LogEntry | None:
    try:
        entry = msgspec.json.decode(line, type=JournalEntry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    message = f"{entry.kind} {entry.subject} {entry.state}" + (f": {entry.reason}" if entry.reason else "")
    attributes = {"kind": entry.kind, "subject": entry.subject, "state": entry.state, **entry.data}
    return LogEntry(_parse_time(entry.at) or _UNKNOWN, "journal", _plain(message), "info", attributes)


def _entry(service: str, line: bytes) -> LogEntry | None:
    if line.startswith(b"{"):
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            return _from_fields(service, fields, line)
    text = _plain(line.decode("utf-8", "replace"))
    if not text:
        return None
    stamp = _STAMP.match(text)
    time = _parse_time(stamp[1].replace(",", ".")) if stamp else None
    level = _LEVEL.search(text[:80])
    return LogEntry(
        time or _UNKNOWN,
        service,
        text[stamp.end() :] if stamp and time else text,
        level[1].lower() if level else None,
    )


def _from_fields(service: str, fields: dict[str, Any], line: bytes) -> LogEntry:
    time = _parse_time(_pop(fields, _TIME_KEYS))
    text = _pop(fields, _TEXT_KEYS)
    level = _pop(fields, _LEVEL_KEYS)
    message = text if isinstance(text, str) else line.decode("utf-8", "replace")
    return LogEntry(
        time or _UNKNOWN, service, _plain(message), str(level).lower() if level is not None else None, fields
    )


def _pop(fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields.pop(name) for name in names if name in fields), None)


def _parse_time(value: Any) -> datetime | None:
    try:
        if isinstance(value, (int, float)):
            return datetime.fromtimestamp(value, UTC)
        parsed = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _plain(text: str) -> str:
    return strip_controls(text).rstrip()[:LONGEST]
