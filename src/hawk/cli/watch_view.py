"""The live view: a snapshot, a size and a moment become something that rich can draw. No state, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hawk.cli import watch_model as model
from hawk.cli.text import clean, duration
from hawk.cli.watch_concerns import Concern, Rank, concerns, waits
from hawk.cli.watch_plain import segments
from hawk.cli.watch_troubles import troubles, verdicts
from hawk.core.snapshot import Progress, Snapshot
from hawk.core.states import JobStatus

STYLES = {
    "completed": "green",
    "limit": "yellow",
    "errored": "red",
    "canceled": "bright_black",
    "running": "cyan",
    "waiting": "blue",
}
# Told apart without colours too: NO_COLOR, and eyes that do not see red and green.
GLYPHS = {"completed": "█", "limit": "▒", "errored": "×", "canceled": "-", "running": "▓", "waiting": "·"}
ASCII_GLYPHS = {
    "completed": "#",
    "limit": "L",
    "errored": "x",
    "canceled": "-",
    "running": "=",
    "waiting": ".",
}

_STATUS_STYLES = {
    JobStatus.STUCK: "bold red",
    JobStatus.FAILED: "bold red",
    JobStatus.COMPLETE: "bold green",
    JobStatus.WAITING_FOR_CAPACITY: "bold yellow",
}
_RANK_STYLES = {
    Rank.VERDICT: "bold red",
    Rank.BLOCKED: "red",
    Rank.PERSON: "magenta",
    Rank.LONG_RETRY: "yellow",
    Rank.IDLE: "yellow",
    Rank.ERRORED: "red",
    Rank.RETRY: "yellow",
    Rank.LIMIT: "yellow",
    Rank.IN_FLIGHT: "",
}
MIN_TASKS = 3
SNAPSHOT_ROWS = 60  # of one snapshot that is printed and left
NARROW = 100  # below this many columns counts stand only in the legend


@dataclass(frozen=True)
class Size:
    columns: int
    rows: int


def view(
    snapshot: Snapshot,
    now: datetime,
    size: Size,
    *,
    notice: str = "",
    unicode: bool = True,
    live: bool = True,
) -> RenderableType:
    """Draw a snapshot into a screen.

    Args:
        snapshot: The newest one.
        now: The server's clock.
        size: Of the terminal: tasks and attempts share the rows that the header leaves.
        notice: One more line at the top, e.g. that the connection is lost.
        unicode: Whether the terminal's encoding has block characters.
        live: Say how the view is left.
    """
    glyphs = GLYPHS if unicode else ASCII_GLYPHS
    header = _header(snapshot, now, size.columns, notice, glyphs)
    rows = model.task_rows(snapshot, now)
    free = size.rows - len(header) - 5  # two table heads, two blank lines, the foot
    for_tasks = min(len(rows), max(MIN_TASKS, free // 2))
    found, more = concerns(snapshot, now, max(1, free - for_tasks - 2))
    if len(found) + 2 < free - for_tasks:
        for_tasks = min(len(rows), free - len(found) - 2)
    parts: list[RenderableType] = [*header, Text()]
    if rows:
        parts += [_task_table(rows[:for_tasks], size.columns, glyphs)]
        parts += [_dim(f"… {len(rows) - for_tasks} more tasks")] if len(rows) > for_tasks else []
        parts += [Text()]
    if found:
        parts += [_concern_table(found)]
        parts += [_dim(f"… {more:,} more")] if more else []
    if live:
        parts += [_dim("Ctrl-C leaves this view; the job runs on.")]
    return Group(*parts)


def _header(
    snapshot: Snapshot, now: datetime, columns: int, notice: str, glyphs: dict[str, str]
) -> list[Text]:
    totals = model.totals(snapshot, now)
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(clean(snapshot.job_id), "bold").append("  ")
    head.append(totals.label, _STATUS_STYLES.get(snapshot.status, "bold cyan"))
    head.append(f"  {duration(totals.elapsed)}", "dim")
    wrong = verdicts(snapshot)
    lines = [*(_line(line, "bold red") for line in wrong[:1]), head]
    if snapshot.reason:
        lines.append(_line(clean(snapshot.reason)))
    if snapshot.remedy:
        lines.append(_line(f"→ {clean(snapshot.remedy)}", "bold"))
    if notice:
        lines.append(_line(notice, "bold yellow"))
    lines.append(_bar(snapshot.progress, max(10, columns - 2), glyphs))
    lines += _legend(snapshot.progress, columns, glyphs)
    if pairs := model.pairs_text(snapshot):
        lines.append(_line(pairs))
    retries = f" · {totals.http_retries:,} HTTP retries" if totals.http_retries else ""
    lines.append(
        _dim(
            f"{model.rate_text(totals.pace)} attempts/min · ETA {model.eta_text(totals.pace) or '–'}{retries}"
        )
    )
    if models := model.models_text(snapshot):
        lines.append(_dim(models))
    lines += [_line(f"! {line}", "red") for line in wrong[1:4]]
    lines += [_dim(line) for line in waits(snapshot)[:2]]
    lines += [_line(f"! {line}", "red") for line in troubles(snapshot, now)[:4]]
    return lines


def _bar(progress: Progress, cells: int, glyphs: dict[str, str]) -> Text:
    counts = [getattr(progress, name) for name in model.SEGMENTS]
    bar = Text(no_wrap=True, overflow="crop")
    for name, n in zip(model.SEGMENTS, segments(progress.total, counts, cells), strict=True):
        bar.append(glyphs[name] * n, STYLES[name])
    return bar


def _legend(progress: Progress, columns: int, glyphs: dict[str, str]) -> list[Text]:
    """What each glyph stands for, with its count; on two lines where one is too short."""
    done = progress.total - model.left(progress)
    line = Text(f"{done:,}/{progress.total:,}", no_wrap=True, overflow="ellipsis")
    lines = [line]
    for name in model.SEGMENTS:
        part = Text.assemble((f"  {glyphs[name]} ", STYLES[name]), f"{getattr(progress, name):,} {name}")
        if line.cell_len + part.cell_len > columns:
            line = Text(no_wrap=True, overflow="ellipsis")
            lines.append(line)
        line.append_text(part)
    return lines


def _task_table(rows: list[model.TaskRow], columns: int, glyphs: dict[str, str]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    wide = columns >= NARROW
    cells = max(8, min(30, columns // 5))
    table.add_column("task", no_wrap=True, overflow="ellipsis", ratio=1, min_width=8)
    table.add_column("", no_wrap=True, width=cells)
    table.add_column("done", no_wrap=True, justify="right")
    for name in ("run", "err", "lim", "can", "wait") if wide else ("err",):
        table.add_column(name, no_wrap=True, justify="right")
    for name in ("/min", "ETA", "retries" if wide else "rtry"):
        table.add_column(name, no_wrap=True, justify="right")
    for row in rows:
        p = row.progress
        label = Text(row.name)
        if row.note:
            label.append(f"  {row.note}", "red")
        counts = [Text(str(p.errored or ""), STYLES["errored"])]
        if wide:
            shown = ("running", "errored", "limit", "canceled", "waiting")
            counts = [Text(str(getattr(p, k) or ""), STYLES[k]) for k in shown]
        table.add_row(
            label,
            _bar(p, cells, glyphs),
            Text(f"{p.completed}/{p.total}", STYLES["completed"] if p.completed else ""),
            *counts,
            model.rate_text(row.pace),
            model.eta_text(row.pace),
            str(row.http_retries or ""),
        )
    return table


def _concern_table(found: list[Concern]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    table.add_column("attempt", no_wrap=True, overflow="ellipsis", ratio=2)
    table.add_column("phase", no_wrap=True)
    table.add_column("what it waits for", no_wrap=True, overflow="ellipsis", ratio=5)
    for c in found:
        who = Text(c.who, "bold").append(f" {c.task}", "dim")
        table.add_row(who, Text(c.phase, STYLES.get(c.phase, "")), Text(c.text, _RANK_STYLES[c.rank]))
    return table


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _dim(text: str) -> Text:
    return _line(text, "dim")
