"""What holds of every tree, however odd the records are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.core.timeline.build import cut
from hawk.core.timeline.model import Category, Span
from hawk.core.timeline.records import EventRow, WorkerNote
from tests.core.timeline.rows import UUID, at, built, ended, event, record, span

moments = st.floats(-5, 50, allow_nan=False).map(lambda x: round(x, 3))
places = st.sampled_from(["a", "b", "c", "nowhere"])


@st.composite
def rows(draw: st.DrawFn) -> EventRow:
    """Any event, in any place: also ones that end before they begin, and spans that hold each other."""
    begin, end, place = draw(moments), draw(moments), draw(places)
    match draw(st.integers(0, 5)):
        case 0:
            kind = draw(st.sampled_from(["init", "solvers", "agent", "tool", "scorers", "odd"]))
            return span(place, kind, draw(st.sampled_from(["x", "y"])), begin, draw(places))
        case 1:
            return ended(place, end)
        case 2:
            return event(
                "model", begin, draw(st.sampled_from([None, end])), span_id=place, model="m", error="no"
            )
        case 3:
            return event(
                "tool", begin, end, span_id=place, id=place, function="x", pending=draw(st.booleans())
            )
        case 4:
            return event("sandbox", begin, end, span_id=place, action="exec", cmd="ls")
        case _:
            return event("score", begin, span_id=place)


@given(st.lists(rows(), max_size=25), st.none() | moments, st.lists(moments, max_size=3))
@settings(max_examples=150, deadline=None)
def test_every_tree_is_one_tree_and_every_moment_counts_once(
    events: list[EventRow], over: float | None, waits: list[float]
) -> None:
    notes = [WorkerNote("retry_wait", at(when), 2.0, sample_uuid=UUID, model="m") for when in waits]
    found = built(record(events, over=over, has_sandbox=True), notes=notes, now=40)
    ids = {s.span_id for s in found.spans}
    assert len(ids) == len(found.spans)
    roots = [s for s in found.spans if s.parent_id is None]
    assert len(roots) == 1
    assert all(s.parent_id in ids for s in found.spans if s.parent_id is not None)
    for one in found.spans:
        assert one.duration_ms >= 0
        assert _reaches(one, {s.span_id: s for s in found.spans})
        if over is not None:
            assert one.end_ms is not None
    whole = sum(found.totals.own.values()) + found.totals.unattributed
    assert whole == pytest.approx(_covered(found.spans), abs=1.0)


def _reaches(one: Span, by_id: dict[str, Span]) -> bool:
    """Its parents lead to the root."""
    for _ in range(len(by_id)):
        if one.parent_id is None:
            return True
        one = by_id[one.parent_id]
    return one.parent_id is None


def _covered(spans: list[Span]) -> float:
    """Milliseconds that any span covers."""
    total, reached = 0.0, -math.inf
    for one in sorted(spans, key=lambda s: s.start_ms):
        total += max(0.0, one.until - max(one.start_ms, reached))
        reached = max(reached, one.until)
    return total


@given(
    st.lists(st.tuples(st.integers(0, 30), st.floats(0, 100)), min_size=1, max_size=60), st.integers(5, 40)
)
def test_a_cut_keeps_what_spans_lie_in(shape: list[tuple[int, float]], most: int) -> None:
    spans = [Span("0", None, "root", Category.SAMPLE, 0.0, 0.0, 0.0)]
    for number, (above, length) in enumerate(shape, 1):
        spans.append(Span(str(number), str(min(above, number - 1)), "x", Category.TOOL, 0.0, length, length))
    kept = cut(spans, most)
    assert len(kept) == len(spans) if len(spans) <= most else len(kept) <= most
    ids = {s.span_id for s in kept}
    assert all(s.parent_id in ids for s in kept if s.parent_id is not None)
    assert [s.span_id for s in spans if s.span_id in ids] == [s.span_id for s in kept]
