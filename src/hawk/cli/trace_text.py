"""A trace for a terminal: what is in flight as a table, lines as one line each. All of it is made harmless."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from hawk.cli.text import clean, duration, parse_time, plural, shorten, table
from hawk.core.recorder.trace import ENTER, ActionRow, TraceActions, TraceLine, TraceWorker, parse_line

FEW = 20
"""Actions that are shown without `--all`."""

_WIDEST = 300
_COLOURS = {"error": "red", "timeout": "red", "cancel": "yellow", "ERROR": "red", "WARNING": "yellow"}


def in_flight(found: TraceActions, columns: int | None) -> str:
    """What is in flight, for each way in which it can be: now, or when its worker died."""
    dead = {worker.index: worker for worker in found.workers if not worker.alive}
    alive = [row for row in found.in_flight if row.worker not in dead]
    parts = []
    if alive:
        parts.append(f"{click.style('In flight now:', bold=True)}\n{_table(alive, found, columns)}")
    for index, worker in dead.items():
        rows = [row for row in found.in_flight if row.worker == index]
        if rows:
            head = click.style(
                f"In flight when worker {index} died{_last_seen(worker, found.as_of)}:", bold=True
            )
            parts.append(f"{head}\n{_table(rows, found, columns)}")
    left = found.in_flight_total - len(found.in_flight)
    if left > 0:
        parts.append(f"… and {left:,} more; --all shows them")
    parts += [_dropped(worker) for worker in found.workers if worker.dropped]
    return "\n\n".join(parts) or _nothing(found)


def line(written: Any) -> str:
    """One line of the trace as a line of text; what is not understood as it is.

    Args:
        written: The line's bytes or text, or its JSON decoded.
    """
    if not isinstance(written, (bytes, str)):
        written = msgspec.json.encode(written)
    data = written.encode("utf-8", "replace") if isinstance(written, str) else written
    found = parse_line(data)
    return clean(data.decode("utf-8", "replace")) if found is None else _line(found)


def attempt(task: str | None, sample_id: str | int | None, epoch: int | None) -> str:
    """`task/sample/attempt`, as far as it is known."""
    return "/".join(clean(part) for part in (task, sample_id, epoch) if part is not None)


def _nothing(found: TraceActions) -> str:
    if not found.workers:
        return ""
    living = sum(worker.alive for worker in found.workers)
    if living:
        return f"Nothing is in flight ({plural(living, 'worker')} alive)."
    return f"Nothing was in flight when the last worker ended{_last_seen(found.workers[-1], found.as_of)}."


def _last_seen(worker: TraceWorker, as_of: str) -> str:
    pid = f" (pid {worker.pid})" if worker.pid else ""
    seen, now = parse_time(worker.last_seen), parse_time(as_of)
    if seen is None or now is None:
        return pid
    when = seen.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return f"{pid}, last seen {when} ({duration((now - seen).total_seconds())} ago)"


def _dropped(worker: TraceWorker) -> str:
    return click.style(
        f"Worker {worker.index} could not write {plural(worker.dropped, 'line')} of its trace: is its disk full?",
        fg="yellow",
    )


def _table(rows: Sequence[ActionRow], found: TraceActions, columns: int | None) -> str:
    several = len({row.worker for row in found.in_flight}) > 1
    headers = ["age", "action", "what", "attempt", *(["worker"] if several else [])]
    cells = [
        [
            duration(row.age_s),
            row.action,
            shorten(clean(row.detail), _WIDEST),
            attempt(row.task if row.sample_id is not None else None, row.sample_id, row.epoch),
            *([str(row.worker)] if several else []),
        ]
        for row in rows
    ]
    return table(headers, cells, columns=columns)


def _line(found: TraceLine) -> str:
    time = parse_time(found.timestamp)
    when = time.astimezone().strftime("%Y-%m-%d %H:%M:%S") if time else clean(found.timestamp)
    if found.action is not None:
        tag = found.event or ""
        text = f"{clean(found.action)}: {clean(found.detail)}"
        if found.event != ENTER:
            took = f" {found.duration:.2f}s" if found.duration is not None else ""
            text += took + (f" {clean(found.error_type)}: {clean(found.error)}" if found.error else "")
    else:
        tag, text = found.level, clean(_without_context(found), lines=False)
    where = attempt(found.task, found.sample_id, found.epoch)
    colour = _COLOURS.get(tag)
    label = f"{clean(tag):<7}"
    return " ".join(
        part
        for part in (when, click.style(label, fg=colour) if colour else label, text, where and f"[{where}]")
        if part
    )


def _without_context(found: TraceLine) -> str:
    """The message without the line that Inspect puts before it to name the sample."""
    if found.sample_id is None or not found.message.startswith(("sample=", "task=")):
        return found.message
    return found.message.partition("\n")[2] or found.message
