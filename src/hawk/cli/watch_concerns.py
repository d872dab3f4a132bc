"""The attempts that a watcher should look at, the most urgent first, and what each waits for: pure, over a Snapshot."""

from __future__ import annotations

import heapq
from collections import Counter
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from hawk.cli.text import clean, duration, parse_time, seconds_since
from hawk.cli.watch_model import task_names
from hawk.core.snapshot import Sample, Snapshot
from hawk.core.states import QUEUED, ActivityType, SamplePhase

LONG_WAIT = 60.0  # seconds of back-off that deserve a look
LONG_IDLE = 120.0  # seconds without an event that deserve a look
RECENT = 6  # outcomes of model calls shown


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
        return Rank.ERRORED, seconds_since(sample.completed_at, now)
    if sample.phase is SamplePhase.LIMIT:
        return Rank.LIMIT, seconds_since(sample.completed_at, now)
    activity = sample.activity
    kind = activity.type if activity else None
    since = seconds_since(activity.since, now) if activity else idle
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
        remaining = -seconds_since(activity.deadline, now) if activity and activity.deadline else 0.0
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
        since = f" for {duration(seconds_since(activity.since, now))}" if activity.since else ""
        until = f", {duration(-seconds_since(activity.deadline, now))} to go" if activity.deadline else ""
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
