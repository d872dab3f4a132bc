"""A job's log lines: supervisor, workers, journal and cluster in one list, read from the ends of the files.

Every entry has a time, because clients may follow a log by asking for what is later than the last they saw. A line
that carries none takes the time at which its part of the file was first seen, and within a file times always
rise, so nothing is shown twice or lost. That memory ends with the server; a cursor (how much of each file was read)
does not.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from hawk.core.cluster_said import SERVICE as CLUSTER
from hawk.core.loglevels import LogLevel, gravity
from hawk.core.recorder.about import About
from hawk.server.services.loglines import UNKNOWN, LogEntry, Reader
from hawk.store.rundir import RunDir

CHUNK = 64 * 1024
MOST = 8 * 1024 * 1024  # bytes read of one file for one answer
MOST_FILTERED = 32 * 1024 * 1024
PAGE = 1024 * 1024  # bytes read of one file when going on from a cursor
_STEP = timedelta(microseconds=1)


class Logs(msgspec.Struct):
    """The body of `GET /monitoring/jobs/{id}/logs`.

    Attributes:
        cursor: Where to go on; None in an answer that begins with the first lines.
        more: There is more after the cursor already.
    """

    entries: list[LogEntry]
    cursor: str | None = None
    more: bool = False


class Wanted(NamedTuple):
    """Which entries are wanted.

    Attributes:
        services: Whose lines: supervisor, journal, cluster, a worker's number; None: everybody's.
        level: The least level; None: any.
        about: Lines about one sample; None: all.
    """

    services: frozenset[str] | None = None
    level: LogLevel | None = None
    about: About | None = None

    @property
    def all(self) -> bool:
        return self == Wanted()

    def source(self, service: str) -> bool:
        """Whether lines of that service can be."""
        return self.services is None or service.removeprefix("worker/") in self.services

    def entry(self, entry: LogEntry) -> bool:
        """Whether that entry is."""
        if self.level is not None and gravity(entry.level) < gravity(self.level):
            return False
        return self.about is None or self.about.log_line(entry.message, entry.attributes)


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
        wanted: Wanted | None = None,
    ) -> list[LogEntry]:
        """The entries of `page`."""
        return self.page(
            run, since=since, from_start=from_start, limit=limit, newest_first=newest_first, wanted=wanted
        ).entries

    def page(
        self,
        run: RunDir,
        *,
        since: datetime | None = None,
        from_start: bool = False,
        limit: int = 100,
        newest_first: bool = True,
        wanted: Wanted | None = None,
    ) -> Logs:
        """Entries later than `since`; of more than `limit`, the newest or (oldest first) the oldest.

        Args:
            from_start: Begin with the first line instead of near the end; for oldest first without `since`
                that is so anyway.
            limit: The most entries.
            newest_first: Order of the answer, and which end it keeps.
            wanted: Which ones; None: all.
        """
        wanted = wanted or Wanted()
        head = (not newest_first and since is None) or from_start
        entries: list[LogEntry] = []
        ends: dict[str, int] = {}
        for service, path in _sources(run, wanted):
            ends[service] = end = _size(path)

            def chosen(lines: list[_Line], service: str = service, path: Path = path) -> Iterator[LogEntry]:
                found = self._entries(service, path, lines)
                return (e for e in found if (since is None or e.timestamp > since) and wanted.entry(e))

            if head:
                entries += _first(path, limit, chosen)
            else:
                enough = _enough(limit, since, whole=not newest_first, chosen=chosen, wanted=wanted)
                entries += chosen(_tail(path, end, enough, MOST if wanted.all else MOST_FILTERED))
        entries.sort(key=lambda entry: entry.timestamp, reverse=newest_first)
        return Logs(entries[:limit], None if head else _cursor(ends))

    def after(self, run: RunDir, cursor: str, *, wanted: Wanted | None = None) -> Logs:
        """What was written after an earlier answer, oldest first, about a MiB of each file.

        Args:
            cursor: Of that answer. A file that it does not name is read from its beginning: it is new.
            wanted: Which entries; None: all.
        """
        wanted = wanted or Wanted()
        known = _positions(cursor)
        entries: list[LogEntry] = []
        ends: dict[str, int] = {}
        more = False
        for service, path in _sources(run, wanted):
            begin, end = known.get(service, 0), _size(path)
            if begin > end:
                begin = 0  # another file of that name
            lines = _whole(_lines(_read(path, begin, min(end, begin + PAGE)), begin))
            ends[service] = lines[-1].offset + len(lines[-1].text) if lines else begin
            more = more or (end - begin > PAGE and bool(lines))
            entries += filter(wanted.entry, self._entries(service, path, lines))
        entries.sort(key=lambda entry: entry.timestamp)
        return Logs(entries, _cursor(ends), more)

    def forget(self, run: RunDir) -> None:
        """The run directory has gone."""
        with self._guard:
            for path in [path for path in self._seen if path.is_relative_to(run.path)]:
                del self._seen[path]

    def _entries(self, service: str, path: Path, lines: list[_Line]) -> Iterator[LogEntry]:
        seen = self._note(path)
        last = datetime.min.replace(tzinfo=UTC)
        stamped = False
        reader = Reader(service)
        for line in lines:
            entry = reader.entry(line.text)
            if entry is None:
                continue
            if entry.timestamp is UNKNOWN:
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


_Chosen = Callable[[list[_Line]], Iterator[LogEntry]]
_Enough = Callable[[list[_Line]], bool]


def _first_seen(seen: list[tuple[int, datetime]], offset: int) -> datetime:
    if not seen:
        return datetime.now(UTC)
    return seen[min(bisect.bisect_right([size for size, _ in seen], offset), len(seen) - 1)][1]


def _sources(run: RunDir, wanted: Wanted) -> Iterator[tuple[str, Path]]:
    workers = run.path / "workers"
    found = [
        ("supervisor", run.supervisor_log),
        ("journal", run.journal_file),
        (CLUSTER, run.events_file),
        ("environment", workers / "environment.log"),
        ("worker/enumerate", workers / "enumerate" / "output.jsonl"),
        *((f"worker/{index}", run.worker(index) / "output.jsonl") for index in run.worker_indices()),
    ]
    return ((service, path) for service, path in found if wanted.source(service))


def _cursor(ends: dict[str, int]) -> str:
    return ",".join(f"{service}:{end}" for service, end in ends.items())


def _positions(cursor: str) -> dict[str, int]:
    pairs = (part.rpartition(":") for part in cursor.split(","))
    return {service: int(end) for service, _, end in pairs if end.isascii() and end.isdigit()}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, begin: int, end: int) -> bytes:
    try:
        with path.open("rb") as f:
            f.seek(begin)
            return f.read(end - begin)
    except OSError:
        return b""


def _first(path: Path, limit: int, chosen: _Chosen) -> list[LogEntry]:
    """The first entries; of the file's first part, if none that is wanted comes before."""
    count = limit
    while True:
        lines = _head(path, count)
        found = list(chosen(lines))
        if len(found) >= limit or len(lines) < count:
            return found[:limit]
        count *= 8


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


def _tail(path: Path, end: int, enough: _Enough, most: int) -> list[_Line]:
    """The last lines up to `end`, as many as are enough; never more than `most` bytes."""
    size = CHUNK
    while True:
        start = (
            max(0, end - size) // CHUNK * CHUNK
        )  # the same lines begin later reads: times stay as they were
        data = _read(path, start, end)
        lines = _lines(data, start)
        lines = lines[1:] if start else lines  # the first one is cut
        if start == 0 or size >= most or len(data) < end - start or enough(lines):
            return lines
        size *= 4


def _enough(
    limit: int, since: datetime | None, *, whole: bool, chosen: _Chosen, wanted: Wanted
) -> Callable[[list[_Line]], bool]:
    """Whether lines hold the last `limit` that are wanted or, with `whole`, reach back to `since`."""

    def enough(lines: list[_Line]) -> bool:
        if whole:
            reader = Reader("")
            entries = (reader.entry(line.text) for line in lines[:50])
            first = next((e.timestamp for e in entries if e and e.timestamp is not UNKNOWN), None)
            return since is not None and first is not None and first <= since
        return len(lines) > limit and (wanted.all or sum(1 for _ in chosen(lines)) > limit)

    return enough


def _lines(data: bytes, start: int) -> list[_Line]:
    lines: list[_Line] = []
    offset = start
    for text in data.splitlines(keepends=True):
        lines.append(_Line(offset, text))
        offset += len(text)
    return lines


def _whole(lines: list[_Line]) -> list[_Line]:
    """Without a last line that has no end yet, unless that is longer than a page."""
    torn = lines and not lines[-1].text.endswith(b"\n") and len(lines[-1].text) < PAGE
    return lines[:-1] if torn else lines
