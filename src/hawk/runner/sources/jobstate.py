"""What the supervisor knows of the job by itself: its phase, its tasks, the attempts in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hawk.core.diagnosis.evidence import Attempt, Evidence, Job, TaskCount
from hawk.core.plan import PlanTask
from hawk.core.snapshot import Sample, Task
from hawk.core.states import SamplePhase
from hawk.runner.sources.context import Context


def fill(evidence: Evidence, context: Context) -> None:
    """Job, tasks, counts, and a row for every attempt in flight, for other sources to amend."""
    snapshot, plan = context.snapshot, context.plan
    evidence.progress = snapshot.progress
    _job(evidence.job, context)
    if plan is None:
        return
    workers = {identifier: worker.index for worker in context.workers for identifier in worker.identifiers}
    waiting: Counter[str] = Counter()
    attempts: dict[str, Attempt] = {}
    keys: dict[tuple[str, str, int], Attempt] = {}
    for planned, task in zip(plan.tasks, snapshot.tasks, strict=False):
        evidence.tasks.append(_task(planned, task))
        predicted = planned.predictions
        for sample in task.samples:
            if sample.phase is SamplePhase.WAITING:
                waiting[sample.reason or ""] += 1
            elif sample.phase.in_flight:
                row = _attempt(planned, sample, workers.get(planned.identifier), predicted)
                evidence.attempts.append(row)
                keys[planned.identifier, sample.id, sample.epoch] = row
                if sample.uuid:
                    attempts[sample.uuid] = row
    evidence.waiting = dict(waiting)
    context.attempts, context.keys = attempts, keys


def _job(job: Job, context: Context) -> None:
    snapshot, spec = context.snapshot, context.spec
    job.status, job.operation = snapshot.status, snapshot.operation
    job.reason, job.remedy = snapshot.reason, snapshot.remedy
    job.submitted_at = spec.created_at or None
    job.installing = ", ".join(spec.packages)
    job.storage_error = snapshot.errors.get("storage")
    if snapshot.models is not None:
        job.exhausted = snapshot.models.exhausted
    plan = context.plan
    if plan is not None:
        job.slots, job.slots_by, job.policy = plan.slots, plan.ceiling, plan.policy
        job.max_retries = plan.limits.max_retries
        most = _number(spec.config, "max_samples")
        if most is not None and most * len(plan.tasks) < (job.slots or plan.total):
            job.slots, job.slots_by = most * len(plan.tasks), f"max_samples: {most} of each task"
    job.connections = _number(spec.config, "max_connections")


def _number(config: Mapping[str, Any], name: str) -> int | None:
    found = config.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _task(planned: PlanTask, task: Task) -> TaskCount:
    known = [seconds for seconds in planned.predicted if seconds is not None]
    ends = [sample.completed_at for sample in task.samples if sample.completed_at is not None]
    waiting = next((s.reason for s in task.samples if s.phase is SamplePhase.WAITING and s.reason), "")
    return TaskCount(
        identifier=planned.identifier,
        name=planned.name,
        model=planned.model,
        agent=planned.agent,
        progress=task.progress,
        waiting_reason=waiting,
        error=task.error,
        expected=sorted(known)[len(known) // 2] if known else None,
        last_end=max(ends, default=None),
        trouble=task.trouble_reason,
    )


def _attempt(
    planned: PlanTask, sample: Sample, worker: int | None, predicted: Mapping[str, float | None]
) -> Attempt:
    activity = sample.activity
    return Attempt(
        task=planned.identifier,
        sample=sample.id,
        epoch=sample.epoch,
        name=f"{planned.name}/{sample.id}/{sample.epoch}",
        uuid=sample.uuid,
        model=planned.model,
        worker=worker,
        phase=sample.phase,
        activity=activity.type if activity else None,
        detail=(activity.detail or "") if activity else "",
        since=activity.since if activity else None,
        deadline=activity.deadline if activity else None,
        started_at=sample.started_at,
        idle=sample.idle_seconds,
        http_retries=sample.http_retries or 0,
        outcomes=sample.recent_outcomes,
        sandbox=sample.sandbox,
        expected=predicted.get(sample.id),
    )
