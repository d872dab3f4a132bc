"""Where the time went: each moment of an attempt counted once, for the innermost span that was open.

Of several such spans at once (tools called together) the deepest one counts, of equally deep ones the one that began last.
A blocked event loop counts only where nothing else is known: a call in flight goes on meanwhile.
A span that only holds others (`Category.frame`) explains no time of its own: what its children leave is unattributed.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hawk.core.timeline.joining import TRY
from hawk.core.timeline.model import MOST_GAPS, Category, CategoryTime, Gap, Span

_LEAST_GAP = 0.05
"""Milliseconds: what is shorter counts as unattributed and is not named."""


class Totals(NamedTuple):
    """Attributes:
    own: Milliseconds of each span that count for it.
    unattributed: Milliseconds that count for nothing.
    gaps: The most of those, by name.
    """

    own: Mapping[str, float]
    unattributed: float
    gaps: list[Gap]

    def categories(self, spans: Sequence[Span], total: float) -> list[CategoryTime]:
        """Times by category, the longest first; categories without a span are left out."""
        times: dict[Category, CategoryTime] = {}
        for span in spans:
            row = times.setdefault(span.category, CategoryTime(span.category, 0.0, 0))
            row.count += 1
            row.total_ms += self.own.get(span.span_id, 0.0)
        for row in times.values():
            row.total_ms = round(row.total_ms, 3)
            row.share = round(row.total_ms / total, 6) if total > 0 else 0.0
        return sorted(times.values(), key=lambda row: (-row.total_ms, row.category))


class _Stretch(NamedTuple):
    start: float
    end: float
    which: int  # the span's place in the list


def totals(spans: Sequence[Span]) -> Totals:
    """Count every moment.

    Args:
        spans: A whole tree by start, its root first, as `Tree.finish` gives it.
    """
    frames = _bare_frames(spans)
    stretches = _stretches(spans, _order(spans, frames))
    times = [0.0] * len(spans)
    for start, end, index in stretches:
        times[index] += end - start
    own = {span.span_id: times[i] for i, span in enumerate(spans) if times[i] and i not in frames}
    return Totals(own, sum(times[i] for i in frames), _gaps(spans, frames, stretches))


def _bare_frames(spans: Sequence[Span]) -> set[int]:
    """Frames that hold something which took time: theirs is what is left.

    Not a try that errored: of its events Inspect keeps the last few only, and its time was spent on just that.
    """
    holders = {span.parent_id for span in spans if span.duration_ms > 0}
    return {
        i
        for i, span in enumerate(spans)
        if span.category.frame and span.span_id in holders and span.attributes.get("hawk.kind") != TRY
    }


def _depths(spans: Sequence[Span]) -> list[int]:
    parents = {span.span_id: span.parent_id for span in spans}
    known: dict[str | None, int] = {None: -1}
    for span in spans:
        level = known.get(span.parent_id)
        if level is not None:  # as nearly always: who holds others begins first
            known[span.span_id] = level + 1
            continue
        path: list[str] = []
        at: str | None = span.span_id
        while at not in known:
            path.append(at or "")
            at = parents.get(at or "")
        level = known[at]
        for step in reversed(path):
            level += 1
            known[step] = level
    return [known[span.span_id] for span in spans]


def _order(spans: Sequence[Span], frames: set[int]) -> list[int]:
    """Of spans that are open at once, the one with the least number counts."""
    order = [-depth for depth in _depths(spans)]
    for i, span in enumerate(spans):
        if i in frames:
            order[i] += len(spans) + 1
        elif span.category is Category.HEARTBEAT:
            order[i] = 1
    return order


def _stretches(spans: Sequence[Span], order: Sequence[int]) -> list[_Stretch]:
    """Which span each moment counts for, in order, from the first to the last that any covers."""
    timed = [(s.start_ms, s.start_ms + s.duration_ms, i) for i, s in enumerate(spans) if s.duration_ms > 0]
    times = sorted({start for start, _, _ in timed}.union(end for _, end, _ in timed))
    open_: list[tuple[int, float, float, int]] = []  # the first is what counts
    found: list[_Stretch] = []
    following, count = 0, len(timed)
    begun, current = 0.0, -1
    for now in times:
        while following < count and timed[following][0] <= now:
            start, end, index = timed[following]
            heapq.heappush(open_, (order[index], -start, end, index))
            following += 1
        while open_ and open_[0][2] <= now:
            heapq.heappop(open_)
        index = open_[0][3] if open_ else -1
        if index != current:
            if current >= 0:
                found.append(_Stretch(begun, now, current))
            begun, current = now, index
    return found


def _gaps(spans: Sequence[Span], frames: set[int], stretches: Sequence[_Stretch]) -> list[Gap]:
    """The stretches that count for nothing, by what was before and after."""
    found: dict[tuple[str, str, int], Gap] = {}
    last = -1  # what counted last
    waiting: list[_Stretch] = []  # until it is known what comes after them

    def note(following: int) -> None:
        after = _label(spans[last]) if last >= 0 else ""
        before = _label(spans[following]) if following >= 0 else ""
        for start, end, which in waiting:
            length = end - start
            gap = found.get((after, before, which))
            if gap is None:
                gap = found[after, before, which] = Gap(after, before, spans[which].name, 0, 0.0, 0.0, start)
            gap.count += 1
            gap.total_ms += length
            if length > gap.longest_ms:
                gap.longest_ms, gap.start_ms = length, start
        waiting.clear()

    for stretch in stretches:
        if stretch.which not in frames:
            if waiting:
                note(stretch.which)
            last = stretch.which
        elif stretch.end - stretch.start >= _LEAST_GAP:
            waiting.append(stretch)
    note(-1)
    most = sorted(found.values(), key=lambda gap: -gap.total_ms)[:MOST_GAPS]
    for gap in most:
        gap.total_ms, gap.longest_ms = round(gap.total_ms, 3), round(gap.longest_ms, 3)
    return most


def _label(span: Span) -> str:
    kind = span.attributes.get("hawk.kind")
    return f"{kind} {span.name}" if kind in ("tool", "model") else span.name
