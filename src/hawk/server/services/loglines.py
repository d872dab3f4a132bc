"""From a line of a log to an entry: JSON by Inspect or by us, text with or without a time, the journal, the cluster."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from hawk.core.cluster_said import SERVICE as CLUSTER
from hawk.core.cluster_said import Said
from hawk.core.loglevels import LogLevel
from hawk.core.text import strip_controls
from hawk.store.rundir import JournalEntry

LONGEST = 8192  # characters of one message

UNKNOWN = datetime.max.replace(tzinfo=UTC)
"""The time of a line that carries none."""

_STAMP = re.compile(r"^\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?)\]?[ :\-]*")
_LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
_CRASH = re.compile(r"(?:Traceback \(most recent call last\)|Fatal Python error|(?:Base)?ExceptionGroup)")
_FAILURES = ("failed", "errored", "supervisor failed")
_TROUBLES = ("warning", "refused", "killed", "signaled", "budget exhausted")
"""States in the journal that are more than news."""

_TIME_KEYS = ("timestamp", "time", "ts", "at")
_TEXT_KEYS = ("message", "msg", "event")
_LEVEL_KEYS = ("level", "status", "levelname")


class LogEntry(msgspec.Struct):
    """One line. `service` says whose: supervisor, journal, cluster, environment, worker/<n> or worker/enumerate."""

    timestamp: datetime
    service: str
    message: str
    level: str | None = None
    attributes: dict[str, Any] = {}


class Reader:
    """Makes entries of the lines of one file, in their order.

    A traceback is many lines, of which only the first says that it is one: they are errors, all of them.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._crash = False

    def entry(self, line: bytes) -> LogEntry | None:
        """The entry; None for an empty line or one that is not the journal's, or the cluster's."""
        if self._service == "journal":
            return _journal_entry(line)
        if self._service == CLUSTER:
            return _cluster_entry(line)
        found = _entry(self._service, line)
        if found is None:
            return None
        plain = found.timestamp is UNKNOWN and not found.attributes
        self._crash = plain and (self._crash or _CRASH.match(found.message.lstrip(" |+")) is not None)
        if self._crash:
            found.level = LogLevel.ERROR
            # The line that is not indented is the exception's own, and the last.
            self._crash = found.message[:1] in " |+" or _CRASH.match(found.message) is not None
        return found


def _journal_entry(line: bytes) -> LogEntry | None:
    try:
        entry = msgspec.json.decode(line, type=JournalEntry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    message = f"{entry.kind} {entry.subject} {entry.state}" + (f": {entry.reason}" if entry.reason else "")
    attributes = {"kind": entry.kind, "subject": entry.subject, "state": entry.state, **entry.data}
    return LogEntry(_parse_time(entry.at) or UNKNOWN, "journal", _plain(message), _gravity(entry), attributes)


def _cluster_entry(line: bytes) -> LogEntry | None:
    try:
        said = msgspec.json.decode(line, type=Said)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    attributes = {"reason": said.reason, "count": said.count, **msgspec.to_builtins(said.about)}
    return LogEntry(_parse_time(said.at) or UNKNOWN, CLUSTER, _plain(said.text), said.level, attributes)


def _gravity(entry: JournalEntry) -> str:
    if entry.state in _FAILURES:
        return LogLevel.ERROR
    unplanned = entry.kind == "worker" and (
        (bool(entry.reason) and entry.state == "exited") or "stall" in entry.data
    )
    return LogLevel.WARNING if unplanned or entry.state in _TROUBLES else LogLevel.INFO


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
        time or UNKNOWN,
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
        time or UNKNOWN, service, _plain(message), str(level).lower() if level is not None else None, fields
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
