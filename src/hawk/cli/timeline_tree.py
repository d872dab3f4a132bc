"""The spans of an attempt as a tree beside a time axis, in the width of a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from hawk.cli.text import pad, plural, shorten
from hawk.cli.timeline_text import COLORS, label, spent
from hawk.core.timeline.build import cut
from hawk.core.timeline.model import SampleTimeline, Span

ROWS = 40
_LEAST_BAR = 10
_TIME = 9
_NAMES = {
    "tool": "tool call",
    "model": "model call",
    "sandbox": "sandbox call",
    "upstream": "request",
    "retry_wait": "retry wait",
}
_MARKS = frozenset({"error", "sample_limit", "interrupt"})
"""Moments that are worth a row."""


class _Row(NamedTuple):
    depth: int
    span: Span | None
    text: str
    ms: float


def waterfall(timeline: SampleTimeline, columns: int, *, rows: int | None = ROWS) -> str:
    """The tree.

    Args:
        timeline: Of one attempt.
        columns: Width to fill.
        rows: At most so many spans, the open and the longest ones; what is left out is summed up in a line. None: all.
    """
    spans = [
        s
        for s in timeline.spans
        if s.duration_ms > 0 or s.attributes.get("hawk.kind") in _MARKS or s.end_ms is None
    ]
    if not spans:
        return ""
    shown = {span.span_id for span in (spans if rows is None else cut(spans, rows))}
    children: dict[str | None, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent_id, []).append(span)
    ids = {span.span_id for span in spans}
    roots = [span for span in spans if span.parent_id not in ids]
    lines = list(_walk(roots, children, shown, max(1e-6, timeline.total_ms / 1000)))
    names = min(max(24, columns * 2 // 5), max(len(row.text) + 2 * row.depth for row in lines))
    bar = max(_LEAST_BAR, columns - names - _TIME - 4)
    names = max(8, columns - bar - _TIME - 4)
    begin = min(span.start_ms for span in spans)
    end = max(span.until for span in spans)
    return "\n".join(_line(row, names, bar, begin, max(end - begin, 1e-6)) for row in lines)


def _walk(
    siblings: Sequence[Span], children: dict[str | None, list[Span]], shown: set[str], least: float
) -> Iterator[_Row]:
    """Rows in order, without recursion for each level: agents may call agents very deeply.

    What is left out and took less than `least` milliseconds has no row.
    """
    stack: list[tuple[int, Span | list[Span]]] = []

    def push(level: int, spans: Sequence[Span]) -> None:
        hidden = [span for span in spans if span.span_id not in shown]
        if sum(span.duration_ms for span in hidden) >= least:
            stack.append((level, hidden))
        stack.extend((level, span) for span in reversed(spans) if span.span_id in shown)

    push(0, siblings)
    while stack:
        level, item = stack.pop()
        if isinstance(item, list):
            yield _Row(level, None, _summed(item), sum(span.duration_ms for span in item))
            continue
        below = children.get(item.span_id, ())
        while len(below) == 1 and below[0].name == item.name and below[0].span_id in shown:
            item = below[0]  # a solver that is an agent: two spans for one thing
            below = children.get(item.span_id, ())
        yield _Row(level, item, label(item), item.duration_ms)
        push(level + 1, below)


def _summed(spans: Sequence[Span]) -> str:
    kinds = Counter(_NAMES.get(str(span.attributes.get("hawk.kind")), "span") for span in spans)
    return "… " + ", ".join(
        f"{count:,} more {plural(count, kind).split(' ', 1)[1]}" for kind, count in kinds.most_common(3)
    )


def _line(row: _Row, names: int, bar: int, begin: float, whole: float) -> str:
    text = "  " * min(row.depth, names // 4) + row.text
    left = pad(shorten(text, names), names)
    if row.span is None:
        return click.style(f"{left} {spent(row.ms):>{_TIME}}", fg="bright_black")
    span = row.span
    start = min(bar - 1, int((span.start_ms - begin) / whole * bar))
    stop = min(bar, max(start + 1, round((span.until - begin) / whole * bar)))
    if span.duration_ms <= 0 and span.end_ms is not None:
        drawn = "◆"
    else:
        drawn = ("░" if span.attributes.get("hawk.inferred") else "█") * (stop - start)
        drawn = drawn[:-1] + "▶" if span.end_ms is None else drawn
    return f"{left} {spent(row.ms):>{_TIME}}  {' ' * start}{click.style(drawn, fg=COLORS.get(span.category))}"
