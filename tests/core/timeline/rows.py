"""Events as Inspect writes them, at seconds after a beginning, for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from hawk.core.timeline.build import Built, Sources, build
from hawk.core.timeline.model import Span
from hawk.core.timeline.records import EventRow, SampleRecord, iso

BEGIN = 1_796_000_000_000.0
"""Milliseconds since 1970."""

UUID = "AbCdEf123"


def at(seconds: float) -> str:
    return iso(BEGIN + 1000 * seconds)


def event(kind: str, begin: float, end: float | None = None, **fields: Any) -> EventRow:
    """One event; `end` is when it was completed."""
    row = {
        "event": kind,
        "uuid": f"{kind}-{begin}-{fields.get('function', '')}{fields.get('cmd', '')}{fields.get('id', '')}",
        "timestamp": at(begin),
        **({} if end is None else {"completed": at(end)}),
        **fields,
    }
    return msgspec.json.decode(msgspec.json.encode(row), type=EventRow)


def span(id_: str, type_: str, name: str, begin: float, inside: str | None = None) -> EventRow:
    return event("span_begin", begin, id=id_, type=type_, name=name, parent_id=inside, span_id=id_)


def ended(id_: str, when: float) -> EventRow:
    return event("span_end", when, id=id_, span_id=id_)


def record(events: list[EventRow], *, over: float | None = None, **fields: Any) -> SampleRecord:
    """An attempt that began at 0; `over` is when it ended."""
    return SampleRecord(UUID, at(0), None if over is None else at(over), events, **fields)


def built(of: SampleRecord, *, now: float = 1e6, **sources: Any) -> Built:
    given = {"requests": [], "notes": [], "stalls": [], "attempt": "t/s/1", **sources}
    return build(Sources(record=of, now=BEGIN + 1000 * now, **given))


def named(found: Built, name: str) -> Span:
    """The only span whose name begins so."""
    spans = [s for s in found.spans if s.name.startswith(name)]
    assert len(spans) == 1, (name, [s.name for s in found.spans])
    return spans[0]


def seconds(found: Built) -> dict[str, float]:
    """Seconds by category, and of what nothing explains."""
    rows = found.totals.categories(found.spans, found.total_ms)
    times = {str(row.category): round(row.total_ms / 1000, 3) for row in rows if row.total_ms}
    return {**times, "unattributed": round(found.totals.unattributed / 1000, 3)}


def parent(found: Built, of: Span) -> Span:
    return next(s for s in found.spans if s.span_id == of.parent_id)


def whole() -> list[EventRow]:
    """An attempt from its set-up to its scores: 0 to 10 s, of which the agent's own code takes 0.5 s."""
    return [
        span("i", "init", "init", 0),
        event("sandbox", 0.8, 1, span_id="i", action="write_file", file="a.txt"),
        ended("i", 1),
        span("s", "solvers", "solvers", 1.1),
        span("r", "agent", "react", 1.1, "s"),
        event(
            "model", 1.1, 4, span_id="r", model="openai/m", call={"request": {"headers": {"x-irid": "one"}}}
        ),
        span("t", "tool", "bash", 4.25, "r"),
        event("tool", 4.2, 7, span_id="r", id="c1", function="bash", arguments={"cmd": "ls"}),
        event("sandbox", 4.5, 6, span_id="t", action="exec", cmd="ls", result=0),
        ended("t", 6.9),
        event("model", 7.3, 8, span_id="r", model="openai/m"),
        ended("r", 8),
        ended("s", 8),
        span("z", "scorers", "scorers", 9),
        span("y", "scorer", "match", 9, "z"),
        event("sandbox", 9.1, 9.2, span_id="y", action="exec", cmd="cat", result=0),
        event("score", 9.4, span_id="y", scorer="match"),
        ended("y", 9.5),
        ended("z", 9.5),
    ]
