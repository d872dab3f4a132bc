"""Reads the realtime buffer of a running evaluation: attempts and events that are not in its log yet.

Inspect keeps it as one SQLite database a log under its data directory. Rows of events are append-only: one for
each state of an event, so only the newest row of an event tells whether it is pending. Reading never blocks
the writer and never creates a file; a database that is locked, gone or not yet whole is read later.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from contextlib import closing
from glob import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hawk.bridge.eventbrief import Event, read_event
from hawk.bridge.logformat import SampleSummary, decode_summary
from hawk.core.snapshot import EventBrief

Key = tuple[str, int]

_WAIT = 0.2  # seconds to wait for a lock: it is asked again soon anyway
_BATCH = 500
_CATCH_UP = 50_000  # rows looked back at the first read; older ones belong to attempts that moved on since
_KEPT = 16  # events kept for each attempt
_OUTCOMES = 20


def find(data_home: Path, log_path: Path) -> Path | None:
    """The buffer of a log, or None: not begun, ended, or written by another machine.

    Its directory is named after a hash of the log's directory as the writer spelt it; the name of the log is
    unique by itself, so the spelling need not be known.
    """
    root = data_home / "inspect_ai" / "samplebuffer"
    found = [(modified(p), p) for p in root.glob(f"*/{escape(log_path.name)}.*.db")]
    return max(found)[1] if found else None


class BufferReader:
    """Follows one buffer; memory is bounded for each attempt in it. For one thread."""

    def __init__(self, db: Path) -> None:
        self._db = db
        self._last: int | None = None
        self._held: list[SampleSummary] = []
        self._events: dict[Key, OrderedDict[str, Event]] = {}
        self._outcomes: dict[Key, OrderedDict[str, str]] = {}

    def running(self) -> list[SampleSummary]:
        """Attempts in the buffer: those in flight, and `completed` ones that wait to be written to the log.

        While the database is locked, what it held before; when it is gone, none.

        Token counts of attempts in flight are not here; the control socket has them.
        """
        rows = self._rows("SELECT data FROM samples")
        if rows is not None:
            decoded = (_summary(data) for (data,) in rows)
            self._held = [summary for summary in decoded if summary is not None]
            self._forget({summary.key for summary in self._held})
        elif not self._db.exists():
            self._held = []
        return self._held

    def new_events(self) -> set[Key]:
        """Read what was added since the last call. Returns the attempts it belongs to."""
        if self._last is None:
            newest = self._rows("SELECT max(id) FROM events")
            if not newest or newest[0][0] is None:
                return set()
            self._last = max(0, newest[0][0] - _CATCH_UP)
        touched: set[Key] = set()
        query = (
            "SELECT id, event_id, sample_id, sample_epoch, data FROM events WHERE id > ? ORDER BY id LIMIT ?"
        )
        while rows := self._rows(query, self._last, _BATCH):
            for row_id, event_id, sample_id, epoch, data in rows:
                self._last = row_id
                key = as_text(sample_id), int(epoch)
                if self._add(key, as_text(event_id), data):
                    touched.add(key)
            if len(rows) < _BATCH:
                break
        return touched

    def last_events(self, sample_id: str, epoch: int, n: int = 5) -> list[EventBrief]:
        """The last events of an attempt, oldest first, as of the last `new_events`."""
        events = list(self._events.get((sample_id, epoch), {}).values())
        following = [*events[1:], None][: len(events)]
        return [_brief(event, after) for event, after in zip(events, following, strict=True)][-n:]

    def outcomes(self, sample_id: str, epoch: int) -> str:
        """How the last model calls of an attempt ended: S or F for each, newest last, at most 20."""
        return "".join(self._outcomes.get((sample_id, epoch), {}).values())

    def _add(self, key: Key, event_id: str, data: bytes) -> bool:
        try:
            event = read_event(data)
        except ValueError:
            return False
        if event is None:
            return False
        events = self._events.setdefault(key, OrderedDict())
        events[event_id] = event
        if len(events) > _KEPT:
            # What is in flight stays, however long ago it began, unless nothing else is left.
            del events[next((k for k, e in events.items() if not e.pending), next(iter(events)))]
        if event.type == "model" and not event.pending:
            outcomes = self._outcomes.setdefault(key, OrderedDict())
            outcomes[event_id] = "F" if event.failed else "S"
            if len(outcomes) > _OUTCOMES:
                outcomes.popitem(last=False)
        return True

    def _forget(self, present: set[Key]) -> None:
        """Attempts that left the buffer are in the log: drop what is held of them."""
        for held in (self._events, self._outcomes):
            for key in held.keys() - present:
                del held[key]

    def _rows(self, query: str, *values: int) -> list[tuple[Any, ...]] | None:
        return rows(self._db, query, *values)


def rows(db: Path, query: str, *values: str | int, wait: float = _WAIT) -> list[tuple[Any, ...]] | None:
    """All rows, texts as bytes, or None when the database can't be read now. Reading never creates a file.

    A connection lives for one query: one held open would keep the file's blocks after Inspect deleted it.

    Args:
        wait: Seconds to wait for a lock.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(db))}?mode=ro", uri=True, timeout=wait)) as connection:
            connection.text_factory = bytes
            return connection.execute(query, values).fetchall()
    except sqlite3.Error:
        return None


def _brief(event: Event, after: Event | None) -> EventBrief:
    seconds = event.seconds
    if seconds is None and after is not None and event.at and after.at:
        seconds = max(0.0, (after.at - event.at).total_seconds())
    return EventBrief(
        type=event.type,
        description=event.description,
        timestamp=event.timestamp,
        duration_seconds=None if event.pending or seconds is None else round(seconds, 3),
        pending=event.pending,
    )


def _summary(data: bytes) -> SampleSummary | None:
    try:
        return decode_summary(data)
    except ValueError:
        return None


def as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
