"""A job of 10,000 attempts that only exists on disk, with this process in its supervisor's place."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from hawk.core.plan import Plan, PlanTask
from hawk.core.snapshot import Activity, EventBrief, Progress, Sample, Snapshot, Task
from hawk.core.states import ActivityType, JobStatus, SamplePhase
from hawk.store.locks import hold
from hawk.store.rundir import JobSpec, RunDir, write_json

TASKS, SAMPLES, RUNS = 10, 500, 2
IN_FLIGHT, WAITING = 50, 150  # of the attempts of each task; the others are done


class SyntheticJob:
    """Written like a supervisor writes it; `change` lets one more attempt finish a turn."""

    def __init__(self, root: Path, job_id: str) -> None:
        self.run = RunDir(root / job_id)
        self.run.create()
        tasks = [_plan_task(i) for i in range(TASKS)]
        write_json(
            self.run.spec_file, JobSpec(job_id, base_dir="/", created_by="benchmark", created_at=_now())
        )
        write_json(self.run.plan_file, Plan(job_id, tasks, runs=RUNS, created_at=_now()))
        self.snapshot = Snapshot(
            job_id=job_id, status=JobStatus.RUNNING, tasks=[_task(plan) for plan in tasks], started_at=_now()
        )
        self.snapshot.progress = _sum([task.progress for task in self.snapshot.tasks])
        self.changes = 0
        self.change()
        # Never asked by this process itself, so the lock stays: the server sees a living supervisor.
        self._lock = hold(self.run.lock_file)

    def change(self) -> None:
        """Write the snapshot with one attempt changed."""
        self.changes += 1
        sample = self.snapshot.tasks[0].samples[-WAITING - 1]
        sample.total_tokens = self.changes
        sample.last_events = [*sample.last_events[1:], _event(f"turn {self.changes}")]
        self.snapshot.generated_at = _now()
        write_json(self.run.snapshot_file, self.snapshot)

    def close(self) -> None:
        """Let the job end, so that the server does not start it again."""
        self.snapshot.status = JobStatus.FAILED
        self.change()
        if self._lock is not None:
            os.close(self._lock)


def _plan_task(index: int) -> PlanTask:
    ids = [f"sample-{i}" for i in range(SAMPLES)]
    return PlanTask(
        f"task{index}@file#args/model/hash", f"task-{index}", "provider/model", ids, RUNS, sequence=index
    )


def _task(plan: PlanTask) -> Task:
    keys = [(sample, epoch) for epoch in range(1, RUNS + 1) for sample in plan.sample_ids]
    done = len(keys) - IN_FLIGHT - WAITING
    phases = (
        [SamplePhase.COMPLETED] * done + [SamplePhase.RUNNING] * IN_FLIGHT + [SamplePhase.WAITING] * WAITING
    )
    return Task(
        task_name=plan.name,
        task_id=plan.identifier,
        model=plan.model,
        eval_status="started",
        live=True,
        progress=Progress(total=len(keys), completed=done, running=IN_FLIGHT, waiting=WAITING),
        samples=[_sample(*key, phase) for key, phase in zip(keys, phases, strict=True)],
    )


def _sample(name: str, epoch: int, phase: SamplePhase) -> Sample:
    sample = Sample(id=name, epoch=epoch, attempt=epoch, phase=phase)
    if phase is SamplePhase.WAITING:
        return sample
    sample.uuid = f"uuid-{name}-{epoch}-0123456789"
    sample.started_at = _now()
    sample.total_tokens = 12_345
    if phase is SamplePhase.RUNNING:
        sample.activity = Activity(ActivityType.MODEL, "provider/model", since=_now())
        sample.last_events = [_event(f"turn {i}") for i in range(5)]
        sample.idle_seconds = 1.5
    else:
        sample.completed, sample.completed_at, sample.latest_score = True, _now(), "C"
        sample.total_time = sample.working_time = 12.5
    return sample


def _event(text: str) -> EventBrief:
    return EventBrief(type="model", description=text, timestamp=_now(), duration_seconds=1.0)


def _sum(parts: list[Progress]) -> Progress:
    names = Progress.__struct_fields__
    return Progress(**{name: sum(getattr(part, name) for part in parts) for name in names})


def _now() -> str:
    return datetime.now(UTC).isoformat()
