"""The realtime buffers of a worker's evaluations, mirrored beside the supervisor, which reads them as those of a local worker.

Inspect keeps a SQLite database a log, of which the supervisor reads two tables: attempts that are not in the log yet, and
their events. A database can't be carried as a file while it is written, so rows are: attempts whenever they change, of events
what was added.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from hawk.bridge.buffer import as_text, rows
from hawk.runner.workpods.messages import Rows

PERIOD = 0.5
"""Seconds between looks."""

CATCH_UP = 20_000
"""Events that a mirror which begins is given at most: older ones belong to attempts that moved on since."""

BATCH = 200
MOST = 1 << 20
"""Rows of one message: so many, and about so many characters."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS samples (id TEXT, epoch INTEGER, data TEXT, PRIMARY KEY (id, epoch));
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, event_id TEXT, sample_id TEXT, sample_epoch INTEGER, data TEXT);
CREATE INDEX IF NOT EXISTS by_sample ON events(sample_id, sample_epoch);
"""


class Buffers:
    """Those of the pod, for one reader that begins with nothing."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._last: dict[str, int] = {}
        self._samples: dict[str, dict[tuple[str, int], str]] = {}

    def news(self) -> Iterator[Rows]:
        """What has changed since the last call."""
        there = {f"{path.parent.name}/{path.name}": path for path in self._root.glob("*/*.db")}
        for name in [name for name in self._last if name not in there]:
            del self._last[name]
            self._samples.pop(name, None)
            yield Rows(name, gone=True)
        for name, path in there.items():
            yield from self._of(name, path)

    def _of(self, name: str, path: Path) -> Iterator[Rows]:
        last = self._last.get(name)
        if last is None:
            newest = rows(path, "SELECT max(id) FROM events")
            if newest is None:
                return
            last = self._last[name] = max(0, (newest[0][0] or 0) - CATCH_UP)
        query = (
            "SELECT id, event_id, sample_id, sample_epoch, data FROM events WHERE id > ? ORDER BY id LIMIT ?"
        )
        while found := rows(path, query, last, BATCH):
            events = [
                (int(number), as_text(event), as_text(sample), int(epoch), as_text(data))
                for number, event, sample, epoch, data in found
            ]
            for part in _parts(events):
                yield Rows(name, events=part)
            last = self._last[name] = int(found[-1][0])
            if len(found) < BATCH:
                break
        samples = rows(path, "SELECT id, epoch, data FROM samples")
        if samples is not None:
            yield from self._of_samples(name, {(as_text(i), int(k)): as_text(data) for i, k, data in samples})

    def _of_samples(self, name: str, now: dict[tuple[str, int], str]) -> Iterator[Rows]:
        before = self._samples.get(name, {})
        self._samples[name] = now
        for part in _parts([(*key, data) for key, data in now.items() if before.get(key) != data]):
            yield Rows(name, samples=part)
        if left := [key for key in before if key not in now]:
            yield Rows(name, left=left)


Row = TypeVar("Row", tuple[str, int, str], tuple[int, str, str, int, str])


def _parts(found: list[Row]) -> Iterator[list[Row]]:
    """Rows, whose last part is their content, in pieces that are not too large; one that is by itself is left out."""
    part: list[Row] = []
    size = 0
    for row in found:
        length = len(row[-1])
        if length > MOST:
            continue
        if size + length > MOST:
            yield part
            part, size = [], 0
        part.append(row)
        size += length
    if part:
        yield part


class Mirror:
    """The copies beside the supervisor.

    Args:
        root: The directory of buffers of the run directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._begun: set[Path] = set()

    def apply(self, news: Rows) -> None:
        """Take it in. What can't be written is left out: the logs have it in the end."""
        folder, _, file = news.buffer.partition("/")
        if not _plain(folder) or not _plain(file) or not file.endswith(".db"):
            return
        path = self._root / folder / file
        with contextlib.suppress(OSError, sqlite3.Error):
            if path not in self._begun:
                _remove(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._begun.add(path)
            if news.gone:
                _remove(path)
                self._begun.discard(path)
                return
            with closing(sqlite3.connect(path, timeout=2)) as connection, connection:
                _write(connection, news)


def _write(connection: sqlite3.Connection, news: Rows) -> None:
    connection.execute("PRAGMA synchronous=OFF")
    connection.executescript(_SCHEMA)
    connection.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?)", news.events)
    connection.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?, ?)", news.samples)
    connection.executemany("DELETE FROM samples WHERE id = ? AND epoch = ?", news.left)
    connection.executemany("DELETE FROM events WHERE sample_id = ? AND sample_epoch = ?", news.left)


def _remove(path: Path) -> None:
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal")):
        file.unlink(missing_ok=True)


def _plain(name: str) -> bool:
    return (
        bool(name) and name not in (".", "..") and "/" not in name and name.isprintable() and len(name) < 256
    )
