"""From what Inspect says about one attempt to Hawk's row for it. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from hawk.bridge.control import ActivityRow, SampleRow
from hawk.bridge.logformat import SampleSummary
from hawk.bridge.modelerror import without_request
from hawk.core.attempts.outcome import Verdict, judge
from hawk.core.attempts.results import Failure, PassRule
from hawk.core.snapshot import Activity, EventBrief, Sample, SandboxFacts
from hawk.core.states import ActivityType, SamplePhase
from hawk.core.text import one_line

_CANCELED = "CancelledError"  # how Inspect records an attempt that was canceled
_START = {False: "starting its sandbox", True: "putting its files into the sandbox, running its setup"}


def ended(summary: SampleSummary, rule: PassRule) -> Sample:
    """The row of an attempt that has an outcome."""
    phase, error = SamplePhase.COMPLETED, summary.error
    if error is not None and error.startswith(_CANCELED):
        phase, error = SamplePhase.CANCELED, None
    elif error is not None:
        phase = SamplePhase.ERRORED
    elif summary.limit is not None:
        phase = SamplePhase.LIMIT
    return Sample(
        id=summary.id,
        epoch=summary.epoch,
        attempt=summary.epoch,
        uuid=summary.uuid,
        phase=phase,
        completed=True,
        limit=summary.limit,
        error=None if error is None else one_line(error, 2000),
        retries=summary.retries,
        started_at=summary.started_at,
        completed_at=summary.completed_at,
        total_time=summary.total_time,
        working_time=summary.working_time,
        total_tokens=summary.total_tokens,
        latest_score=score_text(summary.scores),
        reason=summary.limit_reason,
        outcome=verdict(summary, rule).outcome,
    )


def verdict(summary: SampleSummary, rule: PassRule) -> Verdict:
    """The outcome of an attempt by its summary, which knows less than its worker did: not in which phase it failed."""
    canceled = summary.error is not None and summary.error.startswith(_CANCELED)
    failure = None
    if summary.error is not None and not canceled:
        kind, _, rest = summary.error.partition("(")
        failure = Failure(kind if kind.isidentifier() else "Error", one_line(rest or summary.error, 2000))
    return judge(
        rule,
        values=summary.scores,
        error=failure,
        canceled=canceled,
        limit=summary.limit,
        limit_reason=summary.limit_reason,
    )


def in_flight(
    row: SampleRow,
    buffered: SampleSummary | None,
    events: list[EventBrief],
    *,
    now: datetime,
    uuid: str | None,
    http_retries: int,
    outcomes: str,
    sandbox: SandboxFacts | None,
    awaited: str | None,
) -> Sample:
    """The row of an attempt that its worker says is running.

    Args:
        buffered: What the realtime buffer knows of it.
        events: Its last events.
        uuid: What its worker calls it, for as long as the buffer does not know it.
        http_retries: HTTP calls of its that were retried so far.
        outcomes: How its last model calls ended, newest last.
        sandbox: Its sandbox, once there is one.
        awaited: What there must be before that.
    """
    phase = _phase(row, events)
    last = row.last_activity_at or row.started_at
    return Sample(
        id=str(row.sample_id),
        epoch=row.epoch,
        attempt=row.epoch,
        uuid=buffered.uuid if buffered else uuid,
        phase=phase,
        retries=row.retries,
        started_at=iso(row.started_at),
        total_time=row.total_time,
        total_tokens=row.total_tokens,
        last_events=events,
        idle_seconds=None if last is None else round(max(0.0, now.timestamp() - last), 1),
        http_retries=http_retries,
        recent_outcomes=outcomes,
        activity=_activity(row, phase, events, awaited or _START[sandbox is not None]),
        error=None if row.error is None else one_line(without_request(row.error), 2000),
        sandbox=sandbox,
    )


def unreachable(
    summary: SampleSummary,
    events: list[EventBrief],
    activity: Activity | None,
    outcomes: str,
    now: datetime,
    sandbox: SandboxFacts | None,
) -> Sample:
    """The row of an attempt in flight whose worker does not answer: from the buffer alone."""
    last = events[-1].timestamp if events else summary.started_at
    return Sample(
        id=summary.id,
        epoch=summary.epoch,
        attempt=summary.epoch,
        uuid=summary.uuid,
        phase=SamplePhase.RUNNING if summary.started_at else SamplePhase.INIT,
        retries=summary.retries,
        started_at=summary.started_at,
        last_events=events,
        idle_seconds=None if last is None else round(max(0.0, seconds_between(last, now)), 1),
        http_retries=0,
        recent_outcomes=outcomes,
        activity=activity,
        sandbox=sandbox,
    )


def with_sandbox(sample: Sample, ended_at: str, facts: SandboxFacts) -> Sample:
    """The row with what is known about a sandbox that ended then, unless that was an earlier try's."""
    if sample.sandbox is not None or not sample.phase.final:
        return sample
    if (
        sample.started_at is not None
        and seconds_between(sample.started_at, datetime.fromisoformat(ended_at)) < 0
    ):
        return sample
    return msgspec.structs.replace(sample, sandbox=facts)


def score_text(scores: dict[str, Any]) -> str | None:
    """The first scorer's value, short."""
    if not scores:
        return None
    value = next(iter(scores.values()))
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
        return str(value)
    return one_line(value if isinstance(value, str) else f"{value}", 40)


def iso(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def seconds_between(then: str, now: datetime) -> float:
    """Seconds from an ISO 8601 time to a moment; 0 when the text is no time."""
    try:
        at = datetime.fromisoformat(then)
    except ValueError:
        return 0.0
    return (now - (at if at.tzinfo else at.replace(tzinfo=UTC))).total_seconds()


def _phase(row: SampleRow, events: list[EventBrief]) -> SamplePhase:
    if row.started_at is None or row.status in ("pending", "queued"):
        return SamplePhase.INIT
    if row.activity is not None and row.activity.type in (ActivityType.APPROVAL, ActivityType.QUESTION):
        return SamplePhase.AWAITING_APPROVAL
    if events and events[-1].type == "score":
        return SamplePhase.SCORING
    return SamplePhase.RUNNING


def _activity(row: SampleRow, phase: SamplePhase, events: list[EventBrief], awaited: str) -> Activity:
    if row.activity is not None:
        return _from_control(row.activity)
    if phase is SamplePhase.INIT:
        return Activity(ActivityType.SANDBOX, awaited, iso(row.started_at or row.last_activity_at))
    if phase is SamplePhase.SCORING:
        return Activity(ActivityType.SCORING, events[-1].description, events[-1].timestamp)
    if events and events[-1].pending and events[-1].type == "sandbox":
        return Activity(ActivityType.SANDBOX, events[-1].description, events[-1].timestamp)
    return Activity(
        ActivityType.SOLVER, "its own code: no call is in flight", iso(row.last_activity_at or row.started_at)
    )


def _from_control(activity: ActivityRow) -> Activity:
    try:
        kind = ActivityType(activity.type)
    except ValueError:
        kind = ActivityType.SOLVER
    detail = activity.detail
    if kind is ActivityType.TOOL and activity.calls:
        detail = ", ".join(call.function for call in activity.calls)
    if kind is ActivityType.RETRY_WAIT:
        detail = f"{detail}: try {activity.count} failed"
    elif activity.retries:
        detail = f"{detail} (retried {activity.retries} times)"
    return Activity(kind, one_line(detail, 200) or None, iso(activity.started_at), iso(activity.deadline))
