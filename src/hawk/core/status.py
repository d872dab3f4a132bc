"""The one status function: from evidence to the state of a job.

Pure. The supervisor builds a snapshot from evidence with `build`; the server hands the last snapshot, with
what it knows about the runner, to `serve`. CLI, API, pages and history all show what comes out here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from hawk.core.attempts.policy import Policy, Rules
from hawk.core.cluster import PodsSeen
from hawk.core.cluster_status import with_pods
from hawk.core.pairs import EARLIER, count_pairs, held
from hawk.core.plan import Plan, PlanTask
from hawk.core.snapshot import Metric, ModelUse, Progress, Sample, SealedSnapshot, Snapshot, Task, Worker
from hawk.core.states import QUEUED, JobStatus, Operation, SamplePhase

AttemptKey = tuple[str, int]
"""(sample id, epoch) within a task."""

_COUNTED_AS = {
    SamplePhase.WAITING: "waiting",
    SamplePhase.INIT: "running",
    SamplePhase.RUNNING: "running",
    SamplePhase.SCORING: "running",
    SamplePhase.AWAITING_APPROVAL: "running",
    SamplePhase.COMPLETED: "completed",
    SamplePhase.ERRORED: "errored",
    SamplePhase.LIMIT: "limit",
    SamplePhase.CANCELED: "canceled",
}


class TaskEvidence(msgspec.Struct):
    """What is known about one task of the plan.

    Attributes:
        attempts: Rows of attempts that have begun or ended; every other planned attempt waits.
        waiting_reason: Why those wait, and what for, unless their policy holds them back.
        rules: The job's policy.
        ended: The task's runner will not start anything more; waiting attempts are then final.
        error: The task as a whole failed, and why.
    """

    plan: PlanTask
    attempts: dict[AttemptKey, Sample] = {}
    task_id: str | None = None
    eval_id: str | None = None
    log_file: str = ""
    eval_status: str | None = None
    live: bool = False
    http_retries: int = 0
    metrics: dict[str, float | None] = {}
    waiting_reason: str = QUEUED
    rules: Rules = Rules(Policy.PARALLEL)
    ended: bool = False
    error: str | None = None


class JobFacts(msgspec.Struct):
    """What is known about the job as a whole, beside its tasks.

    Attributes:
        ended: The runner has finished for good, with this status.
        diagnosis: Verdicts, the worst first, as plain data.
        stuck: What is in flight won't go on by itself.
        causes: The cause that holds an attempt in flight, by its uuid.
        reason: Why the status is what it is.
    """

    job_id: str
    created_by: str | None = None
    ended: JobStatus | None = None
    reason: str | None = None
    remedy: str | None = None
    operation: Operation | None = None
    workers: list[Worker] = []
    errors: dict[str, str] = {}
    metrics: dict[str, Metric] = {}
    models: ModelUse | None = None
    diagnosis: list[dict[str, Any]] = []
    stuck: bool = False
    causes: dict[str, str] = {}
    started_at: str | None = None
    finished_at: str | None = None


def build(plan: Plan | None, tasks: Iterable[TaskEvidence], facts: JobFacts, now: datetime) -> Snapshot:
    """The snapshot of a job.

    Args:
        plan: None until the eval set is enumerated.
        tasks: Evidence for every task of the plan, in its order.
        facts: The job's own facts.
        now: Moment that idle times refer to.
    """
    rows = [_task(evidence, facts.causes) for evidence in tasks]
    progress = add_up(row.progress for row in rows)
    return Snapshot(
        job_id=facts.job_id,
        status=_status(plan, progress, facts),
        created_by=facts.created_by,
        metrics=dict(facts.metrics) or None,
        models=facts.models,
        progress=progress,
        tasks=rows,
        errors=dict(facts.errors),
        operation=facts.operation if facts.ended is None else None,
        reason=facts.reason,
        remedy=facts.remedy,
        diagnosis=list(facts.diagnosis),
        pending_interactions=sum(
            sample.phase is SamplePhase.AWAITING_APPROVAL for row in rows for sample in row.samples
        ),
        attempts={"policy": plan.policy, "runs": plan.runs, "slots": plan.slots} if plan else {},
        workers=list(facts.workers),
        started_at=facts.started_at,
        finished_at=facts.finished_at,
        generated_at=now.isoformat(),
    )


def verdict(progress: Progress, *, stopped: bool, reason: str | None) -> tuple[JobStatus, str | None]:
    """The final status of a job whose runner has nothing more to do.

    Complete: every planned attempt has an outcome. An attempt that errored for good has none, nor has one
    that never ran, unless a person stopped the job.

    Returns:
        The status and the reason for it (the given one, where it already says why).
    """
    if progress.waiting or progress.running:
        missing = progress.waiting + progress.running
        return JobStatus.FAILED, reason or f"{missing} of {progress.total} attempts have no outcome"
    if progress.errored:
        return JobStatus.FAILED, reason or f"{progress.errored} of {progress.total} attempts errored"
    if reason is not None and not stopped:
        return JobStatus.FAILED, reason
    return JobStatus.COMPLETE, reason


def serve(
    snapshot: Snapshot | None,
    *,
    job_id: str,
    liveness_alive: bool,
    launching: bool,
    deleted: bool,
    importing: bool,
    created_by: str | None,
    now: datetime,
    detail: str | None = None,
    remedy: str | None = None,
    pods: PodsSeen | None = None,
) -> Snapshot:
    """The snapshot as it is shown: the runner's last word, corrected by whether the runner still lives.

    Args:
        snapshot: The last one written, or None. A sealed one stays sealed, unless its tasks have to change.
        liveness_alive: A supervisor holds the job.
        launching: A supervisor is being started (first or again) and has not spoken yet.
        deleted: The job was torn down.
        importing: Results of the finished job are still being indexed.
        detail: What is known about the end of a runner that is not alive.
        remedy: What to do about that.
        pods: What the cluster says of a job that runs there.

    Returns:
        A new snapshot: `running` only with a living runner (or one on its way), terminal states as they are.
    """
    shown = (
        msgspec.structs.replace(snapshot)
        if snapshot is not None
        else Snapshot(job_id=job_id, generated_at=now.isoformat())
    )
    shown.created_by = shown.created_by or created_by
    if deleted:
        shown.status, shown.operation = JobStatus.DELETED, None
    elif shown.status.terminal:
        if importing and shown.status is JobStatus.COMPLETE:
            shown.status = JobStatus.IMPORTING
    elif not liveness_alive and not launching:
        shown.status, shown.operation = JobStatus.FAILED, None
        shown.reason = detail or "the runner died and was not started again"
        shown.remedy = remedy or f"hawk eval-set resume {job_id}"
        if isinstance(shown, SealedSnapshot):
            shown = shown.opened()
        shown.tasks = [_frozen(task) for task in shown.tasks]
        shown.progress = add_up(task.progress for task in shown.tasks)
    elif launching and snapshot is None:
        shown.status = JobStatus.PENDING
    return shown if pods is None else with_pods(shown, pods, now)


def count(samples: Iterable[Sample]) -> Progress:
    """Count attempts by phase; the six counts add up to the total."""
    progress = Progress()
    for sample in samples:
        name = _COUNTED_AS[sample.phase]
        setattr(progress, name, getattr(progress, name) + 1)
        progress.total += 1
    return progress


def add_up(parts: Iterable[Progress]) -> Progress:
    """The sum of several progresses."""
    total = Progress()
    for part in parts:
        for name in Progress.__struct_fields__:
            setattr(total, name, getattr(total, name) + getattr(part, name))
    return total


def revision(snapshot: Snapshot) -> str:
    """A digest of all that does not change by the clock alone: the same twice means that nothing happened."""
    seal = msgspec.structs.replace(
        snapshot,
        generated_at=None,
        metrics=None,
        revision=None,
        diagnosis=[_lasting(verdict) for verdict in snapshot.diagnosis],
        tasks=[
            msgspec.structs.replace(task, samples=[_without_clock(sample) for sample in task.samples])
            for task in snapshot.tasks
        ],
    )
    return _digest(msgspec.json.encode(seal))


def shown_revision(snapshot: Snapshot) -> str:
    """The same for a snapshot as it is served: what its runner said of it, and what the server made of it."""
    if isinstance(snapshot, SealedSnapshot):
        tasks = (snapshot.revision or _digest(bytes(snapshot.tasks))).encode()
        bare: Snapshot = msgspec.structs.replace(
            snapshot,
            generated_at=None,
            metrics=None,
            diagnosis=[_lasting(verdict) for verdict in snapshot.diagnosis],
            tasks=msgspec.Raw(b"[]"),
        )
        return _digest(msgspec.json.encode(bare) + tasks)
    return revision(snapshot)


def _without_clock(sample: Sample) -> Sample:
    if sample.phase.final or (sample.idle_seconds is None and sample.total_time is None):
        return sample
    return msgspec.structs.replace(sample, idle_seconds=None, total_time=None, working_time=None)


def _lasting(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What of a verdict does not change by the clock alone: its words hold ages."""
    return {
        name: verdict.get(name) for name in ("cause", "layer", "severity", "subject", "scope", "attempts")
    }


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def without_outcome(evidence: TaskEvidence, reason: str, *, stopped: bool) -> Mapping[AttemptKey, Sample]:
    """Final rows for the attempts of an ended task that have none.

    An attempt in flight when its runner ended errored: a resume runs it again. One that never started was
    canceled by the stop or, when nobody stopped it, errored with the reason why it could not start.
    """
    rows: dict[AttemptKey, Sample] = {}
    for sample in _samples(evidence):
        if sample.phase.final:
            continue
        key = (sample.id, sample.epoch)
        begun = sample.phase is not SamplePhase.WAITING
        canceled = stopped and not begun
        rows[key] = msgspec.structs.replace(
            sample,
            phase=SamplePhase.CANCELED if canceled else SamplePhase.ERRORED,
            error=None if canceled else reason,
            reason="stopped before it started" if canceled else reason,
            activity=None,
            idle_seconds=None,
        )
    return rows


def _status(plan: Plan | None, progress: Progress, facts: JobFacts) -> JobStatus:
    if facts.ended is not None:
        return facts.ended
    if plan is None:
        return JobStatus.PENDING
    if facts.stuck and facts.operation is None:
        return JobStatus.STUCK
    if facts.operation is Operation.PAUSED and not progress.running:
        return JobStatus.WAITING_FOR_CAPACITY
    return JobStatus.RUNNING


def _task(evidence: TaskEvidence, causes: Mapping[str, str]) -> Task:
    samples = (
        [_judged(sample, causes) for sample in _samples(evidence)] if causes else list(_samples(evidence))
    )
    plan = evidence.plan
    return Task(
        task_name=plan.name,
        task_id=evidence.task_id,
        model=plan.model,
        agent=plan.agent,
        log_file=evidence.log_file,
        eval_id=evidence.eval_id,
        eval_status=evidence.eval_status,
        live=evidence.live,
        progress=count(samples),
        pairs=count_pairs(plan, samples),
        samples=samples,
        http_retries=evidence.http_retries,
        metrics=dict(evidence.metrics),
        error=evidence.error,
    )


def _judged(sample: Sample, causes: Mapping[str, str]) -> Sample:
    cause = causes.get(sample.uuid or "")
    if cause is None or not sample.phase.in_flight:
        return sample
    return msgspec.structs.replace(sample, verdict=cause)


def _samples(evidence: TaskEvidence) -> Iterable[Sample]:
    """A row for every planned attempt, epoch by epoch as Inspect dispatches them."""
    plan = evidence.plan
    held_back = held(plan, evidence.attempts, evidence.rules)
    for epoch in range(1, plan.epochs + 1):
        for sample_id in plan.sample_ids:
            key = (sample_id, epoch)
            yield evidence.attempts.get(key) or Sample(
                id=sample_id,
                epoch=epoch,
                attempt=epoch,
                reason=EARLIER if key in held_back else evidence.waiting_reason,
            )


def _frozen(task: Task) -> Task:
    """A task whose runner is gone: nothing is in flight any more."""
    samples = [
        sample
        if sample.phase.final
        else msgspec.structs.replace(
            sample, phase=SamplePhase.WAITING, activity=None, idle_seconds=None, reason="the runner is gone"
        )
        for sample in task.samples
    ]
    return msgspec.structs.replace(task, samples=samples, progress=count(samples), live=False)
