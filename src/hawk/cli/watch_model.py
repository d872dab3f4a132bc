"""How far a job is, worked out of a snapshot without drawing anything: pure functions over a Snapshot.

Times are extrapolated to `now`, which is the server's clock: the time the snapshot was made plus what has
passed here since it came (a client's own clock may be wrong).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from hawk.cli.text import clean, duration, parse_time, plural
from hawk.cli.watch_troubles import trouble_text
from hawk.core.snapshot import PairCount, Progress, Sample, Snapshot, Task

RATE_WINDOW = timedelta(minutes=10)  # long enough for slow attempts, short enough to notice a change

# The six segments of a bar, in the order they are drawn.
SEGMENTS = ("completed", "limit", "errored", "canceled", "running", "waiting")


class Pace(NamedTuple):
    """How fast attempts end, observed; None: nothing ended lately."""

    per_minute: float | None
    eta_seconds: float | None


class TaskRow(NamedTuple):
    name: str
    progress: Progress
    pace: Pace
    http_retries: int
    pairs: PairCount
    note: str  # trouble or error of the task as a whole


class Totals(NamedTuple):
    """The job as a whole."""

    label: str
    elapsed: float | None
    pace: Pace
    http_retries: int


def server_now(snapshot: Snapshot, since_received: float, fallback: datetime) -> datetime:
    """The server's clock now.

    Args:
        snapshot: The newest one.
        since_received: Seconds that have passed here since it came.
        fallback: This machine's clock, for a snapshot that does not say when it was made.
    """
    made = parse_time(snapshot.generated_at)
    return fallback if made is None else made + timedelta(seconds=since_received)


def totals(snapshot: Snapshot, now: datetime) -> Totals:
    begin = parse_time(snapshot.started_at)
    end = parse_time(snapshot.finished_at) or now
    return Totals(
        label=snapshot.status.label + (f", {snapshot.operation}" if snapshot.operation else ""),
        elapsed=None if begin is None else (end - begin).total_seconds(),
        pace=pace((s for task in snapshot.tasks for s in task.samples), snapshot.progress, begin, now),
        http_retries=sum(task.http_retries for task in snapshot.tasks),
    )


def task_rows(snapshot: Snapshot, now: datetime) -> list[TaskRow]:
    """One row a task, the unfinished ones first so that a cut list keeps what still moves."""
    begin = parse_time(snapshot.started_at)
    names = task_names(snapshot.tasks)
    rows = [
        TaskRow(
            name,
            task.progress,
            pace(task.samples, task.progress, begin, now),
            task.http_retries,
            task.pairs,
            _task_note(task),
        )
        for name, task in zip(names, snapshot.tasks, strict=True)
    ]
    return sorted(rows, key=lambda row: (left(row.progress) == 0, not row.note))


def _task_note(task: Task) -> str:
    if task.trouble_reason:
        return trouble_text(task.trouble_reason)
    return clean(task.error)


def task_names(tasks: Iterable[Task]) -> list[str]:
    """Names that tell the rows apart: agent and model are added where the task alone does not."""
    tasks = list(tasks)
    plain = [clean(task.task_name) for task in tasks]
    if len(set(plain)) == len(plain):
        return plain
    return [
        " · ".join(part for part in (name, clean(task.agent), clean(task.model)) if part)
        for name, task in zip(plain, tasks, strict=True)
    ]


def left(progress: Progress) -> int:
    """Attempts that have no outcome yet."""
    return progress.running + progress.waiting


def pace(samples: Iterable[Sample], progress: Progress, begin: datetime | None, now: datetime) -> Pace:
    """Attempts a minute, and the time until the last one ends if it goes on like this.

    Counted over the last ten minutes, or since the job began. Attempts whose end no one waited for (not
    needed) count: they shorten the rest as well.
    """
    if left(progress) == 0:
        return Pace(None, 0.0)
    since = now - RATE_WINDOW
    if begin is not None:
        since = max(since, begin)
    span = (now - since).total_seconds()
    ended = _ended_after(since, samples)
    if ended == 0 or span < 1:
        return Pace(None, None)
    return Pace(ended / span * 60, left(progress) / ended * span)


def _ended_after(since: datetime, samples: Iterable[Sample]) -> int:
    """Attempts that ended after a time. Times of one form compare as text: there are 10,000 of them."""
    cut = since.astimezone(UTC).isoformat(timespec="microseconds")
    count = 0
    for sample in samples:
        text = sample.completed_at
        if text is None:
            continue
        if len(text) == len(cut) and text.endswith("+00:00"):
            count += text > cut
        else:
            time = parse_time(text)
            count += time is not None and time > since
    return count


def several_runs(snapshot: Snapshot) -> bool:
    """Whether pairs are attempted more than once."""
    return any(task.progress.total > task.pairs.total > 0 for task in snapshot.tasks)


def counts_text(progress: Progress) -> str:
    """`7/12 · 3 running · 1 errored …`: what ended and what there is, zeros left out."""
    done = progress.total - left(progress)
    parts = [f"{done:,}/{progress.total:,}"]
    parts += [f"{n:,} {name}" for name in SEGMENTS if (n := getattr(progress, name))]
    return " · ".join(parts)


def pairs_text(snapshot: Snapshot) -> str:
    """`pairs: 3/5 decided, 2 passed, 1 failed · 2/2 x 1 · …`: how pairs stand; empty where each has one attempt."""
    counts = [task.pairs for task in snapshot.tasks]
    if not several_runs(snapshot) or not counts:
        return ""
    passed, failed = sum(c.passed for c in counts), sum(c.failed for c in counts)
    tally: dict[str, int] = {}
    for count in counts:
        for name, n in count.tally.items():
            tally[name] = tally.get(name, 0) + n
    parts = [
        f"pairs: {passed + failed:,}/{sum(c.total for c in counts):,} decided, {passed:,} passed, {failed:,} failed"
    ]
    parts += [f"{name} x {n:,}" for name, n in sorted(tally.items(), key=lambda item: _order(item[0]))]
    if spared := sum(c.not_needed for c in counts):
        parts.append(f"{plural(spared, 'attempt')} not needed")
    return " · ".join(parts)


def _order(tally: str) -> tuple[int, int]:
    passes, _, produced = tally.partition("/")
    return -int(produced), -int(passes)


def models_text(snapshot: Snapshot) -> str:
    """What the job has spent on models, and has on its way to them; empty without the middleman."""
    use = snapshot.models
    if use is None or not (use.requests or use.in_flight or use.waiting):
        return ""
    parts = [f"{use.requests:,} model calls", f"{use.tokens:,} tokens"]
    if use.usd is not None:
        parts.append(f"${use.usd:,.2f}" if use.usd >= 0.1 else f"${use.usd:.4f}")
    if not snapshot.status.terminal:
        parts.append(f"{use.in_flight:,} in flight")
        if use.waiting:
            parts.append(f"{use.waiting:,} waiting for the provider (hawk middleman status)")
    return " · ".join(parts)


def rate_text(value: Pace) -> str:
    if value.per_minute is None:
        return "–"
    return f"{value.per_minute:.1f}" if value.per_minute < 100 else f"{value.per_minute:.0f}"


def eta_text(value: Pace) -> str:
    return duration(value.eta_seconds) if value.eta_seconds != 0 else ""
