"""Run directories and settings for tests."""

import shutil
from dataclasses import replace
from pathlib import Path

from hawk.config.settings import Settings, load_settings
from hawk.core.snapshot import Progress, Sample, Snapshot, Task
from hawk.core.states import JobStatus, SamplePhase
from hawk.store.rundir import JobSpec, RunDir, write_json


def settings_in(home: Path, database_url: str | None = None, **changes: object) -> Settings:
    found = load_settings({"HAWK_HOME": str(home), "HAWK_WARM": "0", "HAWK_RUN_BASE": str(home / "r")})
    if database_url is not None:
        found = replace(found, database_url=database_url)
    return replace(found, **changes)  # type: ignore[arg-type]


def make_run(root: Path, job_id: str, logs: Path | None = None, **spec: object) -> RunDir:
    """A run directory, with logs copied from elsewhere."""
    run = RunDir(root / job_id)
    run.create()
    if logs is not None:
        for path in logs.glob("*.eval"):
            shutil.copy2(path, run.logs)
    fields = {"base_dir": str(root), "created_by": "ada", "created_at": "2026-01-02T03:04:05+00:00", **spec}
    write_json(run.spec_file, JobSpec(job_id=job_id, **fields))  # type: ignore[arg-type]
    return run


def snapshot_of(
    job_id: str, *phases: SamplePhase, status: JobStatus = JobStatus.RUNNING, text: str = ""
) -> Snapshot:
    """A snapshot of one task whose attempts have these phases."""
    samples = [
        Sample(
            id=f"s{i}",
            epoch=1,
            attempt=1,
            uuid=f"{job_id}-uuid-{i}" if phase is not SamplePhase.WAITING else None,
            phase=phase,
            completed=phase.final,
            reason=text or None,
        )
        for i, phase in enumerate(phases)
    ]
    counts = Progress(total=len(samples))
    for phase in phases:
        name = "running" if phase.in_flight else str(phase)
        setattr(counts, name, getattr(counts, name) + 1)
    task = Task(
        task_name="t",
        task_id="t1",
        model="m",
        eval_id="e1",
        log_file="t.eval",
        samples=samples,
        progress=counts,
    )
    return Snapshot(job_id=job_id, status=status, progress=counts, tasks=[task])
