"""When attempts ran: moments, and how many ran at once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime

from hawk.core.attempts.results import Result

Span = tuple[float, float]
"""Start and end, in seconds since 1970."""

_INSTANT = 1e-6  # what a span without length is taken for: it did run


def moment(text: str | None) -> float | None:
    """Seconds since 1970 of an ISO 8601 time (UTC where it names no zone); None for what is none."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def seconds(value: float | None) -> float | None:
    """A duration as it may be added up: None where there is none, or where a clock jumped and it is none."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def span(result: Result) -> Span | None:
    """When an attempt ran, or None when it never began. An end before the start gives way to the duration."""
    start, end = moment(result.started_at), moment(result.ended_at)
    if start is None:
        return None
    if end is None or end < start:
        end = start + (seconds(result.duration) or 0.0)
    return start, end


def most_at_once(spans: Iterable[Span]) -> int:
    """The most spans that hold one moment; one that ends as another starts makes room for it."""
    events = []
    for start, end in spans:
        events += [(start, 1), (max(end, start + _INSTANT), -1)]
    most = running = 0
    for _, change in sorted(events):
        running += change
        most = max(most, running)
    return most
