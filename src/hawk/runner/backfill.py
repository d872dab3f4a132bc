"""Results that a worker did not live to write: from the logs, which know of every attempt that ended.

A worker writes a result just after its log. One that is killed between the two leaves an attempt that is finished, will
not run again, and has no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hawk.bridge.logformat import SampleSummary
from hawk.core.attempts.outcome import Verdict
from hawk.core.attempts.results import Pair, Result, Scored, Usage
from hawk.core.plan import Plan, PlanTask
from hawk.core.status import AttemptKey
from hawk.runner import rows
from hawk.runner.rescore import Source, excluded_without_result, write_carried, write_excluded
from hawk.store.attempts import read_results, write_result
from hawk.store.rundir import RunDir


def write_missing(
    run_dir: RunDir, plan: Plan, summaries: Mapping[str, Mapping[AttemptKey, SampleSummary]]
) -> int:
    """Write the results of attempts that have ended and have none of their own; returns how many.

    Args:
        summaries: Of attempts that ended, by task identifier.

    Raises:
        StorageError: One can't be written.
    """
    ended = [
        (task, summary) for task in plan.tasks for summary in summaries.get(task.identifier, {}).values()
    ]
    if not ended and not plan.excluded:
        return 0
    results, _ = read_results(run_dir)
    known = {(result.pair, result.attempt): result for result in results}
    missing = list(_missing(ended, known, plan))
    excluded = excluded_without_result(plan, known)
    if plan.rescore is not None and (missing or excluded):
        source = Source(run_dir, plan.rescore)
        for result in missing:
            write_carried(run_dir, source, result)
        write_excluded(run_dir, plan, source, excluded)
    else:
        for result in missing:
            write_result(run_dir, result)
    return len(missing)


def _missing(
    ended: Iterable[tuple[PlanTask, SampleSummary]], known: Mapping[tuple[Pair, int], Result], plan: Plan
) -> Iterable[Result]:
    for task, summary in ended:
        before = known.get((task.pair(summary.id), summary.epoch))
        if before is None or (
            before.uuid != summary.uuid and (before.ended_at or "") < (summary.completed_at or "")
        ):
            yield _result(task, summary, rows.verdict(summary, plan.rules.pass_rule), plan)


def _result(task: PlanTask, summary: SampleSummary, verdict: Verdict, plan: Plan) -> Result:
    tokens = Usage(input=summary.input_tokens, output=summary.output_tokens, total=summary.total_tokens)
    return Result(
        pair=task.pair(summary.id),
        attempt=summary.epoch,
        outcome=verdict.outcome,
        scores={name: Scored(value) for name, value in summary.scores.items()},
        score=verdict.score,
        started_at=summary.started_at,
        ended_at=summary.completed_at,
        duration=summary.total_time,
        working=summary.working_time,
        usage={task.model: tokens} if summary.total_tokens else {},
        error=verdict.error,
        reason=verdict.reason,
        limit=summary.limit,
        retries=summary.retries or 0,
        workspace_error="its worker was killed before the workspace was in its place",
        fingerprint=plan.fingerprint,
        generation=plan.generation,
        uuid=summary.uuid,
    )
