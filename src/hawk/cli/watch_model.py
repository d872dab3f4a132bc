"""What a watcher is shown of a snapshot, worked out without drawing anything: pure functions over a Snapshot.

Times are extrapolated to `now`, which is the server's clock: the time the snapshot was made plus what has
passed here since it came (a client's own clock may be wrong).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, NamedTuple

from hawk.cli.text import clean, duration, parse_time, plural
from hawk.core.snapshot import PairCount, Progress, Sample, Snapshot, Task, Worker
from hawk.core.states import QUEUED, ActivityType, SamplePhase, Trouble

RATE_WINDOW = timedelta(minutes=10)  # long enough for slow attempts, short enough to notice a change
LONG_WAIT = 60.0  # seconds of back-off that deserve a look
LONG_IDLE = 120.0  # seconds without an event that deserve a look
BUSY = 5.0  # seconds of silence of a worker before it is trouble: a loaded machine pauses for less
RECENT = 6  # outcomes of model calls shown

# The six segments of a bar, in the order they are drawn.
SEGMENTS = ("completed", "limit", "errored", "canceled", "running", "waiting")


class Rank(IntEnum):
    """Why an attempt is shown, most urgent first."""

    VERDICT = 0
    BLOCKED = 1
    PERSON = 2
    LONG_RETRY = 3
    IDLE = 4
    ERRORED = 5
    RETRY = 6
    LIMIT = 7
    IN_FLIGHT = 8


class Concern(NamedTuple):
    """One attempt worth a look: who, how bad, what it waits for and for how long."""

    rank: Rank
    task: str
    sample: str
    epoch: int
    phase: str
    text: str
    uuid: str | None

    @property
    def who(self) -> str:
        return f"{self.sample} #{self.epoch}"


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


def concerns(snapshot: Snapshot, now: datetime, limit: int) -> tuple[list[Concern], int]:
    """The attempts most in need of attention, and how many more there are."""
    made = parse_time(snapshot.generated_at) or now
    passed = max(0.0, (now - made).total_seconds())
    found = [
        (rank, -weight, name, sample.id, sample.epoch, sample)
        for name, task in zip(task_names(snapshot.tasks), snapshot.tasks, strict=True)
        for sample in task.samples
        if sample.phase not in _QUIET
        for rank, weight in [_urgency(sample, _idle(sample, passed), now)]
    ]
    best = heapq.nsmallest(limit, found, key=lambda entry: entry[:5])
    shown = [
        Concern(
            rank,
            name,
            clean(sample.id),
            sample.epoch,
            sample.phase.value,
            _text(sample, _idle(sample, passed), now),
            sample.uuid,
        )
        for rank, _, name, _, _, sample in best
    ]
    return shown, len(found) - len(shown)


# Nothing to look at. The most frequent first: it is asked of each of 10,000 attempts.
_QUIET = (SamplePhase.COMPLETED, SamplePhase.WAITING, SamplePhase.CANCELED)


def _idle(sample: Sample, passed: float) -> float:
    return 0.0 if sample.idle_seconds is None else sample.idle_seconds + passed


def _urgency(sample: Sample, idle: float, now: datetime) -> tuple[Rank, float]:
    """How bad it is: why, then seconds, the most first."""
    if sample.phase is SamplePhase.ERRORED:
        return Rank.ERRORED, _age(sample.completed_at, now)
    if sample.phase is SamplePhase.LIMIT:
        return Rank.LIMIT, _age(sample.completed_at, now)
    activity = sample.activity
    kind = activity.type if activity else None
    since = _age(activity.since, now) if activity else idle
    if sample.verdict:
        return Rank.VERDICT, max(since, idle)
    if kind is ActivityType.BLOCKED:
        return Rank.BLOCKED, since
    if (
        kind in (ActivityType.APPROVAL, ActivityType.QUESTION)
        or sample.phase is SamplePhase.AWAITING_APPROVAL
    ):
        return Rank.PERSON, since
    if kind is ActivityType.RETRY_WAIT:
        remaining = -_age(activity.deadline, now) if activity and activity.deadline else 0.0
        failing = sample.recent_outcomes.endswith("FFF")
        return (Rank.LONG_RETRY if failing or remaining >= LONG_WAIT else Rank.RETRY), max(remaining, since)
    return (Rank.IDLE if idle >= LONG_IDLE else Rank.IN_FLIGHT), max(idle, since)


def _text(sample: Sample, idle: float, now: datetime) -> str:
    if sample.phase is SamplePhase.ERRORED:
        text = clean(sample.error) or "errored"
    elif sample.phase is SamplePhase.LIMIT:
        text = f"{clean(sample.limit) or 'a'} limit reached"
    else:
        text = _waiting_text(sample, idle, now)
    return " · ".join([*_sandbox_marks(sample), text])


def _sandbox_marks(sample: Sample) -> list[str]:
    """Limits that its sandbox has hit: `oom_killed ×2`."""
    if sample.sandbox is None:
        return []
    troubles = sorted(sample.sandbox.troubles.items())
    marks = [clean(name) + (f" ×{times}" if times > 1 else "") for name, times in troubles]
    return [*marks, "sandbox lost"] if sample.sandbox.lost is not None else marks


def _waiting_text(sample: Sample, idle: float, now: datetime) -> str:
    """What an attempt in flight waits for, since when, until when."""
    parts = [clean(sample.verdict)] if sample.verdict else []
    activity = sample.activity
    if activity is not None:
        kind = _ACTIVITIES.get(activity.type, activity.type.value)
        preparing = sample.phase is SamplePhase.INIT and activity.detail
        what = clean(activity.detail) if preparing else f"{kind} {clean(activity.detail)}".rstrip()
        since = f" for {duration(_age(activity.since, now))}" if activity.since else ""
        until = f", {duration(-_age(activity.deadline, now))} to go" if activity.deadline else ""
        parts.append(f"{what}{since}{until}")
    elif sample.last_events:
        event = sample.last_events[-1]
        parts.append(f"last: {clean(event.type)} {clean(event.description)}".rstrip())
    if sample.idle_seconds is not None and idle >= LONG_IDLE:
        parts.append(f"idle {duration(idle)}")
    if sample.http_retries:
        parts.append(f"{sample.http_retries} HTTP retries")
    if "F" in sample.recent_outcomes:
        parts.append(f"calls {clean(sample.recent_outcomes)[-RECENT:]}")
    if sample.retries:
        parts.append(f"retry {sample.retries}")
    return " · ".join(parts) or sample.phase.value


_ACTIVITIES = {
    ActivityType.MODEL: "model",
    ActivityType.TOOL: "tool",
    ActivityType.RETRY_WAIT: "waits to retry",
    ActivityType.APPROVAL: "waits for approval",
    ActivityType.QUESTION: "waits for an answer",
    ActivityType.SANDBOX: "sandbox",
    ActivityType.SCORING: "scoring",
    ActivityType.BLOCKED: "worker's event loop is blocked",
}


def waits(snapshot: Snapshot) -> list[str]:
    """What attempts wait for that have not begun, by task, where it is more than their turn."""
    lines = []
    for name, task in zip(task_names(snapshot.tasks), snapshot.tasks, strict=True):
        if task.progress.waiting and not snapshot.status.terminal:
            reasons = Counter(s.reason for s in task.samples if s.phase is SamplePhase.WAITING)
            lines += [
                f"{name}: {count:,} waiting: {clean(why)}"
                for why, count in reasons.most_common(3)
                if why not in (None, QUEUED)
            ]
    return lines


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


def verdicts(snapshot: Snapshot) -> list[str]:
    """What is wrong, by name, the worst first, a line each."""
    return [verdict_line(v) for v in snapshot.diagnosis if v.get("severity") not in (None, "info")]


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """A verdict, as a snapshot carries it, in one line: how bad, what, how many attempts, the next command."""
    held = verdict.get("attempts") or 0
    holds = f" · holds {plural(held, 'attempt')}" if held else ""
    cause = f"{str(verdict['severity']).upper()} {clean(verdict.get('cause'))}"
    return f"{cause}: {clean(verdict.get('what'))}{holds} → {clean(verdict.get('next'))}"


def troubles(snapshot: Snapshot, now: datetime) -> list[str]:
    """What is wrong with the job as a whole: trouble, workers, sandboxes that wait, degraded sources."""
    lines = []
    if snapshot.trouble_reason:
        lines.append(trouble_text(snapshot.trouble_reason))
    lines += [text for worker in snapshot.workers if (text := _worker_text(worker, now))]
    if snapshot.waiting_samples:
        first = snapshot.waiting_samples[0]
        why = clean(first.detail or first.reason or first.phase)
        lines.append(f"{len(snapshot.waiting_samples)} sandboxes not started: {why}")
    if snapshot.models is not None and snapshot.models.problem and not snapshot.status.terminal:
        lines.append(clean(snapshot.models.problem))
    lines += [f"{clean(source)} unavailable: {clean(why)}" for source, why in sorted(snapshot.errors.items())]
    return lines


def trouble_text(reason: str) -> str:
    """A trouble reason in words; one that is not ours as it is."""
    try:
        return f"{Trouble(reason).label} ({reason})"
    except ValueError:
        return clean(reason)


def _worker_text(worker: Worker, now: datetime) -> str:
    parts = []
    if (busy := _age(worker.busy_since, now)) >= BUSY:
        parts.append(f"has not answered for {duration(busy)}")
    if worker.exit_code not in (None, 0):
        parts.append(f"ended with exit code {worker.exit_code}{_because(worker.reason)}")
    if worker.restarts:
        parts.append(f"restarted {worker.restarts} x{'' if worker.exit_code else _because(worker.reason)}")
    return f"worker {worker.index} " + ", ".join(parts) if parts else ""


def _because(reason: str | None) -> str:
    return f" ({clean(reason)})" if reason else ""


def _task_note(task: Task) -> str:
    if task.trouble_reason:
        return trouble_text(task.trouble_reason)
    return clean(task.error)


def _age(text: str | None, now: datetime) -> float:
    time = parse_time(text)
    return 0.0 if time is None else (now - time).total_seconds()


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


def several_runs(snapshot: Snapshot) -> bool:
    """Whether pairs are attempted more than once."""
    return any(task.progress.total > task.pairs.total > 0 for task in snapshot.tasks)


def rate_text(value: Pace) -> str:
    if value.per_minute is None:
        return "–"
    return f"{value.per_minute:.1f}" if value.per_minute < 100 else f"{value.per_minute:.0f}"


def eta_text(value: Pace) -> str:
    return duration(value.eta_seconds) if value.eta_seconds != 0 else ""
