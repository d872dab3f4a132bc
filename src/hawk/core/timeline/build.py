"""The timeline of one attempt, from all that was recorded of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from hawk.core.timeline.events import EventFold
from hawk.core.timeline.joining import TRY, join_blocked, join_notes, join_ongoing, join_requests
from hawk.core.timeline.model import LONGEST, MOST_SPANS, Category, SampleTimeline, Span, call_id
from hawk.core.timeline.phases import add_phases, add_tries
from hawk.core.timeline.records import Blocked, Ongoing, Request, SampleRecord, WorkerNote, iso, milliseconds
from hawk.core.timeline.totals import Totals, totals
from hawk.core.timeline.tree import Tree


class Sources(NamedTuple):
    """What there is of one attempt.

    Attributes:
        now: Milliseconds since 1970 up to which it is known, if it has not ended.
        attempt: Its name, `task/sample/attempt`.
        ongoing: What it waits for now that no event tells.
    """

    record: SampleRecord
    requests: Sequence[Request]
    notes: Sequence[WorkerNote]
    stalls: Sequence[Blocked]
    now: float
    attempt: str
    ongoing: Ongoing | None = None


class Built(NamedTuple):
    """All spans by start, and where the time went. No spans where nothing is known."""

    spans: list[Span]
    totals: Totals
    total_ms: float
    as_of: float


def build(sources: Sources) -> Built:
    """Join everything into one tree, and count."""
    record = sources.record
    first = _first(sources)
    if first is None:
        return Built([], Totals({}, 0.0, []), 0.0, sources.now)
    ended = milliseconds(record.completed_at)
    notes = list(sources.notes)
    root = Span(call_id(record.uuid), None, sources.attempt or "sample", Category.SAMPLE, first, ended)
    root.attributes = {"hawk.kind": "sample", "inspect.sample.uuid": record.uuid}
    tree = Tree(root, ended if ended is not None else max(sources.now, first))
    for made, earlier in zip(add_tries(tree, record, notes), record.earlier, strict=False):
        EventFold(tree, record.texts, made.span_id).add(earlier.events)
    EventFold(tree, record.texts, root.span_id).add(record.events)
    join_notes(tree, notes)
    if ended is not None:
        _close(tree, ended)
    join_requests(tree, sources.requests)
    add_phases(tree, record)
    join_ongoing(tree, sources.ongoing)
    join_blocked(tree, sources.stalls, sources.attempt)
    spans = tree.finish()
    return Built(spans, totals(spans), root.duration_ms, tree.now)


def answer(built: Built, sources: Sources, eval_set_id: str | None, eval_id: str | None) -> SampleTimeline:
    """What is answered about it, at most `MOST_SPANS` spans."""
    own = built.totals.own
    longest = sorted((s for s in built.spans if own.get(s.span_id)), key=lambda s: -own[s.span_id])
    shown = cut(built.spans, MOST_SPANS)
    return SampleTimeline(
        sample_uuid=sources.record.uuid,
        eval_set_id=eval_set_id,
        eval_id=eval_id,
        spans=shown,
        truncated=len(shown) < len(built.spans) or sources.record.problem is not None,
        open=sum(span.end_ms is None for span in built.spans),
        total_ms=round(built.total_ms, 3),
        unattributed_ms=round(built.totals.unattributed, 3),
        as_of=iso(built.as_of),
        categories=built.totals.categories(built.spans, built.total_ms),
        longest=[span.span_id for span in longest[:LONGEST]],
        gaps=built.totals.gaps,
        problem=sources.record.problem,
    )


def cut(spans: Sequence[Span], most: int) -> list[Span]:
    """At most so many spans: the open ones, then the longest, each with all that it lies in. The order stays."""
    if len(spans) <= most:
        return list(spans)
    by_id = {span.span_id: span for span in spans}
    kept: set[str] = set()
    for span in sorted(spans, key=lambda s: (s.end_ms is not None, -s.duration_ms)):
        path: list[str] = []
        at: Span | None = span
        while at is not None and at.span_id not in kept:
            path.append(at.span_id)
            at = by_id.get(at.parent_id or "")
        if len(kept) + len(path) <= most:
            kept.update(path)
    return [span for span in spans if span.span_id in kept]


def _first(sources: Sources) -> float | None:
    """When the first thing happened that is known of it."""
    record = sources.record
    rows = [*record.events[:1], *(row for earlier in record.earlier for row in earlier.events[:1])]
    times: Iterable[datetime | str | None] = [
        record.started_at,
        *(row.timestamp for row in rows),
        *(note.at for note in sources.notes if note.kind == TRY),
        *(request.at for request in sources.requests[:1]),
    ]
    return min((at for at in map(milliseconds, times) if at is not None), default=None)


def _close(tree: Tree, ended: float) -> None:
    """Nothing is in flight any more in an attempt that has ended; a clock that was set must not make it longer."""
    for span in tree:
        if span.end_ms is None:
            span.end_ms = max(span.start_ms, ended)
            span.attributes = {**span.attributes, "hawk.unfinished": True}
