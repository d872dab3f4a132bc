"""From an attempt that is over to its result."""

from __future__ import annotations

from hawk.bridge.ended import Ended
from hawk.core.attempts.outcome import Verdict
from hawk.core.attempts.planning import fingerprint_of
from hawk.core.attempts.results import Result
from hawk.core.plan import Plan, PlanTask


def result_of(task: PlanTask, end: Ended, verdict: Verdict, plan: Plan) -> Result:
    """As far as Inspect's record goes: sandbox, workspace and worker are for those to add who know them."""
    return Result(
        pair=task.pair(end.sample_id),
        attempt=end.epoch,
        outcome=verdict.outcome,
        scores=end.scores,
        score=verdict.score,
        started_at=end.started_at,
        ended_at=end.ended_at,
        duration=end.total_time,
        working=end.working_time,
        usage=end.usage,
        cost=end.cost,
        error=verdict.error,
        reason=verdict.reason,
        limit=end.limit,
        retries=end.retries,
        model_calls=end.model_calls,
        tool_calls=end.tool_calls,
        provider_retries=end.provider_retries,
        fingerprint=fingerprint_of(plan.fingerprint, end.digest),
        generation=plan.generation,
        uuid=end.uuid,
    )
