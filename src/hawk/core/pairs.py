"""The pairs of a task while its job runs: which are decided, and which attempts nobody needs any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from hawk.core.attempts.policy import NOT_NEEDED, Policy, Rules, not_needed
from hawk.core.attempts.rescored import nothing_to_score
from hawk.core.attempts.results import Outcome
from hawk.core.plan import Plan, PlanTask
from hawk.core.snapshot import PairCount, Sample
from hawk.core.states import SamplePhase

Rows = dict[tuple[str, int], Sample]
"""Attempts by (sample id, epoch)."""

_PRODUCED = frozenset(str(outcome) for outcome in Outcome if outcome.produced)


def settle(plan: PlanTask, rows: Rows, rules: Rules) -> None:
    """Give attempts that a pass made unnecessary their row, or their reason where they were stopped half-way."""
    if not rules.stops_early:
        return
    predictions = plan.predictions
    for sample_id, passed in _first_passes(rows.values()).items():
        if not rules.cancels(predictions.get(sample_id)):
            continue
        for epoch in range(1, plan.epochs + 1):
            row = rows.get((sample_id, epoch))
            if row is None:
                row = Sample(id=sample_id, epoch=epoch, attempt=epoch)
            elif row.phase is not SamplePhase.CANCELED:
                continue
            rows[sample_id, epoch] = msgspec.structs.replace(
                row, phase=SamplePhase.CANCELED, reason=not_needed(passed), outcome=Outcome.CANCELED
            )


def leave_out(plan: Plan, rows: Mapping[str, Rows]) -> None:
    """Give the attempts that a plan excludes their row.

    Args:
        rows: Of each task, by its identifier.
    """
    for identifier, sample_id, epoch in plan.excluded:
        of_task = rows.get(identifier)
        if of_task is not None and (sample_id, epoch) not in of_task:
            of_task[sample_id, epoch] = Sample(
                id=sample_id,
                epoch=epoch,
                attempt=epoch,
                phase=SamplePhase.CANCELED,
                reason=nothing_to_score(plan.rescore or plan.eval_set_id),
                outcome=Outcome.CANCELED,
            )


def unneeded(row: Sample) -> bool:
    """Whether its policy, not a person, ended an attempt."""
    return row.phase is SamplePhase.CANCELED and row.reason is not None and row.reason.startswith(NOT_NEEDED)


def count_pairs(plan: PlanTask, rows: Iterable[Sample]) -> PairCount:
    """How far the pairs of a task are."""
    passes: dict[str, int] = {}
    produced: dict[str, int] = {}
    final: dict[str, int] = {}
    spared = 0
    for row in rows:
        if row.outcome in _PRODUCED:
            produced[row.id] = produced.get(row.id, 0) + 1
            if row.outcome == Outcome.PASS:
                passes[row.id] = passes.get(row.id, 0) + 1
        if row.phase.final:
            final[row.id] = final.get(row.id, 0) + 1
            spared += unneeded(row)
    tally: dict[str, int] = {}
    for sample_id, count in produced.items():
        name = f"{passes.get(sample_id, 0)}/{count}"
        tally[name] = tally.get(name, 0) + 1
    failed = sum(
        count >= plan.epochs and sample_id not in passes and sample_id in produced
        for sample_id, count in final.items()
    )
    return PairCount(
        len(plan.sample_ids), len(passes), failed, dict(sorted(tally.items(), reverse=True)), spared
    )


def _first_passes(rows: Iterable[Sample]) -> dict[str, int]:
    first: dict[str, int] = {}
    for row in rows:
        if row.outcome == Outcome.PASS:
            first[row.id] = min(row.epoch, first.get(row.id, row.epoch))
    return first


EARLIER = "for an earlier attempt of its pair"
"""Why an attempt waits that its policy holds back."""


def held(plan: PlanTask, rows: Rows, rules: Rules) -> set[tuple[str, int]]:
    """Attempts that wait for an earlier one of their pair to end."""
    if rules.policy is Policy.PARALLEL:
        return set()
    found: set[tuple[str, int]] = set()
    predictions = plan.predictions
    for sample_id in plan.sample_ids:
        if rules.one_by_one(predictions.get(sample_id)):
            for epoch in range(1, plan.epochs):
                row = rows.get((sample_id, epoch))
                if row is None or not row.phase.final:
                    found.update((sample_id, later) for later in range(epoch + 1, plan.epochs + 1))
                    break
    return found
