"""One event of an attempt in one line: what a person needs to see where it stands."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec

from hawk.bridge.logformat import loads
from hawk.core.text import one_line

# Bookkeeping of Inspect's that says nothing about progress. The span of the scorers does: see `read_event`.
_SILENT = frozenset({"span_begin", "span_end", "step", "state", "store", "anchor", "branch"})
_ARGUMENT, _ARGUMENTS, _COMMAND, _TEXT = 40, 100, 120, 160


class Event(msgspec.Struct):
    """The newest state of one event.

    Attributes:
        type: Inspect's name of the event.
        at: When it began.
        seconds: How long it took, as far as the event itself says.
        pending: It is in flight.
        failed: It ended with an error.
    """

    type: str
    description: str | None
    timestamp: str | None
    at: datetime | None
    seconds: float | None
    pending: bool
    failed: bool


class _Row(msgspec.Struct):
    event: str
    timestamp: str | None = None
    completed: str | None = None
    working_time: float | None = None
    pending: bool | None = None
    failed: bool | None = None
    error: Any = None
    model: str | None = None
    retries: int | None = None
    function: str | None = None
    arguments: Any = None
    action: str | None = None
    cmd: str | None = None
    file: str | None = None
    type: str | None = None
    message: Any = None
    scorer: str | None = None
    name: str | None = None
    decision: str | None = None
    source: str | None = None
    data: Any = None


def read_event(data: bytes) -> Event | None:
    """An event from its JSON, or None for those that say nothing about progress.

    Raises:
        ValueError: It is no event.
    """
    row = loads(data, _Row)
    scoring = row.event == "span_begin" and row.type == "scorers"
    if row.event in _SILENT and not scoring:
        return None
    at, end = _time(row.timestamp), _time(row.completed)
    seconds = row.working_time
    if seconds is None and at and end:
        seconds = max(0.0, (end - at).total_seconds())
    return Event(
        type="score" if scoring else row.event,
        description="scoring" if scoring else _describe(row),
        timestamp=row.timestamp,
        at=at,
        seconds=seconds,
        pending=bool(row.pending),
        failed=bool(row.error) or bool(row.failed),
    )


def _describe(row: _Row) -> str | None:
    match row.event:
        case "model":
            trouble = " error" if row.error else f" retry {row.retries}" if row.retries else ""
            return one_line(f"{row.model or 'model'}", _TEXT) + trouble
        case "tool":
            call = one_line(f"{row.function or 'tool'}({_arguments(row.arguments)})", _TEXT)
            return call + (" error" if row.error or row.failed else "")
        case "sandbox":
            return f"{row.action}: {one_line(row.cmd or row.file or '', _COMMAND)}"
        case "sample_limit":
            reason = row.message if isinstance(row.message, str) else ""
            return one_line(f"{row.type} limit: {reason}".removesuffix(": "), _TEXT)
        case "score":
            return one_line(f"score {row.scorer or ''}".rstrip(), _TEXT)
        case "approval":
            return one_line(f"approval {row.decision or ''}".rstrip(), _TEXT)
        case "info":
            return _first_line(_plain(row.data)) or row.source
        case "logger" | "error":
            document = row.message if row.event == "logger" else row.error
            text = document.get("message") if isinstance(document, dict) else document
            return _first_line(_plain(text))
    return None


def _first_line(text: str) -> str:
    """The first line with anything on it."""
    return one_line(text.lstrip()[: 20 * _TEXT].partition("\n")[0], _TEXT)


def _arguments(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    shown = ""
    for name, item in value.items():
        text = (
            "…"
            if isinstance(item, str) and item.startswith("attachment://")
            else _plain(item)[: 20 * _ARGUMENT]
        )
        shown += f"{', ' if shown else ''}{name}={one_line(text, _ARGUMENT)}"
        if len(shown) > _ARGUMENTS:
            return one_line(shown, _ARGUMENTS)
    return shown


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
