"""Snapshots to draw and serve."""

from datetime import UTC, datetime, timedelta

from hawk.core.snapshot import Activity, Progress, Sample, Snapshot, Task, Worker
from hawk.core.states import ActivityType, JobStatus, SamplePhase

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def at(seconds_ago: float) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).isoformat()


def sample(name: str, phase: SamplePhase, epoch: int = 1, **more: object) -> Sample:
    uuid = f"uuid-{name}-{epoch}"
    return Sample(id=name, epoch=epoch, attempt=epoch, uuid=uuid, phase=phase, **more)  # type: ignore[arg-type]


def count(samples: list[Sample], total: int) -> Progress:
    by_phase = [s.phase for s in samples]
    progress = Progress(
        total=total,
        completed=by_phase.count(SamplePhase.COMPLETED),
        running=sum(p.in_flight for p in by_phase),
        errored=by_phase.count(SamplePhase.ERRORED),
        canceled=by_phase.count(SamplePhase.CANCELED),
        limit=by_phase.count(SamplePhase.LIMIT),
    )
    progress.waiting = total - sum(
        (progress.completed, progress.running, progress.errored, progress.canceled, progress.limit)
    )
    return progress


def busy() -> Snapshot:
    """A job in the middle, with one attempt in each kind of need."""
    samples = [
        sample("done", SamplePhase.COMPLETED, completed=True, completed_at=at(60)),
        sample("done", SamplePhase.COMPLETED, 2, completed=True, completed_at=at(30)),
        sample(
            "quick", SamplePhase.RUNNING, idle_seconds=3, activity=Activity(ActivityType.TOOL, "bash", at(3))
        ),
        sample(
            "retrying",
            SamplePhase.RUNNING,
            idle_seconds=300,
            http_retries=7,
            recent_outcomes="SSFFF",
            activity=Activity(ActivityType.RETRY_WAIT, "RateLimitError 429", at(300), at(-900)),
        ),
        sample(
            "idle", SamplePhase.RUNNING, idle_seconds=400, activity=Activity(ActivityType.MODEL, "m", at(400))
        ),
        sample(
            "frozen",
            SamplePhase.RUNNING,
            idle_seconds=90,
            activity=Activity(ActivityType.BLOCKED, None, at(90)),
        ),
        sample("broken", SamplePhase.ERRORED, error="\x1b[2JValueError: bad\nTraceback", completed_at=at(50)),
        sample("long", SamplePhase.LIMIT, limit="token", completed_at=at(40)),
        sample("spare", SamplePhase.CANCELED, reason="not needed"),
    ]
    progress = count(samples, 12)
    task = Task("coding", task_id="t1", model="mock/one", progress=progress, samples=samples, http_retries=7)
    return Snapshot(
        "demo-1",
        status=JobStatus.RUNNING,
        progress=progress,
        tasks=[task],
        workers=[
            Worker(0, "running", restarts=1, reason="killed by signal 9"),
            Worker(1, "running", busy_since=at(20)),
        ],
        errors={"metrics": "no answer"},
        started_at=at(120),
        generated_at=at(0),
    )


def ended(status: JobStatus = JobStatus.COMPLETE) -> Snapshot:
    snapshot = busy()
    task = snapshot.tasks[0]
    task.samples = [s for s in task.samples if s.phase.final]
    task.progress = snapshot.progress = count(task.samples, len(task.samples))
    task.metrics = {"verify/accuracy": 0.6667, "verify/stderr": None}
    snapshot.status = status
    snapshot.finished_at = at(0)
    snapshot.workers, snapshot.errors = [], {}
    return snapshot


def large(tasks: int, samples: int) -> Snapshot:
    """Many tasks and attempts, a third of each ended, a third running."""
    rows = []
    for t in range(tasks):
        found = [
            sample(f"s{i}", SamplePhase.COMPLETED, completed_at=at(i % 500))
            if i % 3 == 0
            else sample(
                f"s{i}",
                SamplePhase.RUNNING,
                idle_seconds=i,
                activity=Activity(ActivityType.MODEL, "m", at(i)),
            )
            for i in range(samples)
            if i % 3 < 2
        ]
        rows.append(Task(f"task-{t:03}", task_id=f"t{t}", progress=count(found, samples), samples=found))
    total = Progress(*(sum(getattr(row.progress, f) for row in rows) for f in Progress.__struct_fields__))
    return Snapshot(
        "large-1",
        status=JobStatus.RUNNING,
        progress=total,
        tasks=rows,
        started_at=at(600),
        generated_at=at(0),
    )
