"""A timeline in words: where the time went, what took longest, what nothing explains."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hawk.cli.text import clean, duration, pad, plural, shorten
from hawk.core.timeline.model import Category, CategoryTime, EvalSetTimeline, Gap, SampleTimeline, Span
from hawk.core.timeline.totals import totals

BAR = 24
GAPS = 5
COLORS = {
    Category.SETUP: "cyan",
    Category.EXECUTION: "white",
    Category.SCORING: "magenta",
    Category.MODEL: "blue",
    Category.TOOL: "green",
    Category.MIDDLEMAN: "yellow",
    Category.PROVIDER: "bright_blue",
    Category.HEARTBEAT: "red",
}
UNATTRIBUTED = "unattributed"


def head(timeline: SampleTimeline) -> str:
    """Which attempt, and how it stands."""
    name = (
        "/".join(clean(part) for part in (timeline.task, timeline.sample_id) if part) or timeline.sample_uuid
    )
    parts = [f"{name} #{timeline.epoch}" if timeline.epoch else name]
    parts += [clean(text) for text in (timeline.model, timeline.phase) if text]
    parts.append(spent(timeline.total_ms) + (" so far" if timeline.open else ""))
    lines = [click.style(" · ".join(parts), bold=True)]
    lines.append(f"  {clean(timeline.sample_uuid)} of {clean(timeline.eval_set_id)}")
    if timeline.open:
        lines.append(f"  as of {clean(timeline.as_of)}")
    if timeline.problem:
        lines.append(f"  ! {clean(timeline.problem)}")
    if timeline.truncated and not timeline.problem:
        lines.append(f"  the longest {len(timeline.spans):,} spans; the totals are of all")
    return "\n".join(lines)


def sample_blocks(timeline: SampleTimeline, top: int, columns: int) -> list[str]:
    """Everything but the tree."""
    blocks = [
        head(timeline),
        categories(timeline.categories, timeline.total_ms, timeline.unattributed_ms),
        _open(timeline, columns),
        _longest(timeline, top, columns),
        _gaps(timeline.gaps, columns),
    ]
    return [block for block in blocks if block]


def eval_set_blocks(timeline: EvalSetTimeline, top: int, columns: int) -> list[str]:
    """Totals of an eval set."""
    title = f"{clean(timeline.eval_set_id)}: {plural(timeline.samples, 'attempt')}, {spent(timeline.total_ms)} in all"
    lines = [click.style(title, bold=True)]
    if timeline.truncated:
        lines.append("  Not all attempts were read in time; ask again: what was read is kept.")
    blocks = ["\n".join(lines), categories(timeline.categories, timeline.total_ms, timeline.unattributed_ms)]
    calls = timeline.longest_tool_calls[:top]
    if calls:
        rows = [
            f"  {spent(call.duration_ms):>9}  {clean(call.sample_uuid)}  {clean(call.tool_name)}"
            + (" failed" if call.failed else "")
            for call in calls
        ]
        blocks.append("\n".join(["Longest tool calls", *(shorten(row, columns) for row in rows)]))
    return [block for block in blocks if block]


def categories(rows: Sequence[CategoryTime], total: float, unattributed: float) -> str:
    """Where the time went, in percent, with bars. Spans that only hold others are left out."""
    shown = [row for row in rows if row.total_ms > 0]
    if total <= 0:
        return ""
    lines = ["Where the time went"]
    lines += [
        _share(row.category.value, row.total_ms, total, f"{row.count:,}x", COLORS.get(row.category))
        for row in shown
    ]
    if unattributed > 0:
        lines.append(_share(UNATTRIBUTED, unattributed, total, "", "bright_black"))
    return "\n".join(lines)


def spent(ms: float) -> str:
    """`3 ms`, `1.25 s`, `12.1 s`, `3m 20s`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 10_000:
        return f"{ms / 1000:.2f} s"
    return f"{ms / 1000:.1f} s" if ms < 60_000 else duration(ms / 1000)


def label(span: Span) -> str:
    """What a span is, with what it was told."""
    name = clean(span.name)
    if span.attributes.get("hawk.kind") in ("tool", "model"):
        name = f"{span.category.value} {name}"
    detail = clean(span.attributes.get("hawk.detail"))
    error = clean(span.attributes.get("error"))
    until = span.attributes.get("hawk.until_ms")
    if span.end_ms is None and isinstance(until, (int, float)):
        name += f", next try in {spent(max(0.0, until - span.until))}"
    wrong = f" ✗ {error}" if error and span.attributes.get("hawk.kind") != "retry_wait" else ""
    return f"{name}{wrong}{' ' + detail if detail else ''}"


def _share(name: str, part: float, total: float, note: str, color: str | None) -> str:
    share = min(1.0, part / total)
    bar = "█" * round(share * BAR) or "▏"
    text = f"  {pad(name, 13)}{share:>6.1%}  {click.style(pad(bar, BAR), fg=color)}  {spent(part):>9}  {note}"
    return text.rstrip()


def _open(timeline: SampleTimeline, columns: int) -> str:
    """What is going on: the open spans that hold no open one. Usually the answer to why nothing happens."""
    open_ = [span for span in timeline.spans if span.end_ms is None]
    holders = {span.parent_id for span in open_}
    leaves = sorted((s for s in open_ if s.span_id not in holders), key=lambda s: s.start_ms)
    rows = [shorten(f"  {_in_flight(timeline, span)}", columns) for span in leaves[:GAPS]]
    if len(leaves) > GAPS:
        rows.append(f"  and {len(leaves) - GAPS} more")
    return "\n".join(["In flight", *rows]) if rows else ""


def _in_flight(timeline: SampleTimeline, span: Span) -> str:
    """Of code that nothing is known to run in, since when nothing is."""
    held = [s for s in timeline.spans if s.parent_id == span.span_id] if span.category.frame else []
    if not held:
        return f"{spent(span.duration_ms):>9}  {label(span)}"
    last = max(held, key=lambda s: s.until)
    return f"{spent(span.until - last.until):>9}  {label(span)}: nothing recorded since {label(last)}"


def _longest(timeline: SampleTimeline, top: int, columns: int) -> str:
    """What took longest by itself; the server names ten, more are counted here."""
    by_id = {span.span_id: span for span in timeline.spans}
    keys: Sequence[str] = timeline.longest
    if top > len(keys):
        own = totals(timeline.spans).own
        keys = sorted(own, key=lambda key: -own[key])
    begin = timeline.spans[0].start_ms if timeline.spans else 0.0
    rows = [
        shorten(
            f"  {spent(span.duration_ms):>9}  at {spent(span.start_ms - begin):>8}  {label(span)}", columns
        )
        for span in (by_id[key] for key in keys[:top] if key in by_id)
        if span.duration_ms >= 0.001 * timeline.total_ms
    ]
    return "\n".join(["Longest", *rows]) if rows else ""


def _gaps(gaps: Sequence[Gap], columns: int) -> str:
    rows = []
    for gap in gaps[:GAPS]:
        if gap.total_ms < 1.0:
            break
        if gap.after and gap.before:
            where = f"between {clean(gap.after)} and {clean(gap.before)}"
        elif gap.after:
            where = f"after {clean(gap.after)}"
        else:
            where = f"before {clean(gap.before)}" if gap.before else "all of it"
        often = f" ({gap.count:,} times, longest {spent(gap.longest_ms)})" if gap.count > 1 else ""
        rows.append(shorten(f"  {spent(gap.total_ms):>9}  {where}, in {clean(gap.within)}{often}", columns))
    return "\n".join(["Time that nothing explains", *rows]) if rows else ""
