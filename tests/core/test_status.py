"""The status function: totals, counts, and when a job may be called what."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.plan import Plan, PlanTask
from hawk.core.snapshot import Activity, Progress, Sample, SealedSnapshot, Snapshot
from hawk.core.states import ActivityType, JobStatus, Operation, SamplePhase
from hawk.core.status import (
    JobFacts,
    TaskEvidence,
    build,
    count,
    revision,
    serve,
    shown_revision,
    verdict,
    without_outcome,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TASK = PlanTask(identifier="t", name="t", model="m", sample_ids=["a", "b"], epochs=2)
PLAN = Plan(eval_set_id="j", tasks=[TASK])


def sample(id_: str, epoch: int, phase: SamplePhase) -> Sample:
    return Sample(id=id_, epoch=epoch, attempt=epoch, phase=phase)


def evidence(*samples: Sample) -> TaskEvidence:
    return TaskEvidence(plan=TASK, attempts={(s.id, s.epoch): s for s in samples})


def snapshot(*samples: Sample, **facts: object) -> Snapshot:
    return build(PLAN, [evidence(*samples)], JobFacts("j", **facts), NOW)  # type: ignore[arg-type]


def test_the_total_comes_from_the_plan_before_anything_has_begun() -> None:
    made = snapshot()
    assert made.progress == Progress(total=4, waiting=4)
    assert [(s.id, s.epoch, s.reason) for s in made.tasks[0].samples] == [
        ("a", 1, "queued"),
        ("b", 1, "queued"),
        ("a", 2, "queued"),
        ("b", 2, "queued"),
    ]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.sampled_from(SamplePhase))))
def test_the_six_counts_always_add_up_to_the_total(rows: list[tuple[str, int, SamplePhase]]) -> None:
    progress = snapshot(*(sample(*row) for row in rows)).progress
    parts = (getattr(progress, name) for name in Progress.__struct_fields__ if name != "total")
    assert progress.total == 4 == sum(parts)


def test_an_attempt_that_the_plan_does_not_know_is_not_counted() -> None:
    assert snapshot(sample("z", 1, SamplePhase.COMPLETED)).progress == Progress(total=4, waiting=4)


def test_a_job_without_a_plan_is_queued() -> None:
    assert build(None, [], JobFacts("j"), NOW).status is JobStatus.PENDING


def test_approvals_are_counted_as_pending_interactions() -> None:
    assert snapshot(sample("a", 1, SamplePhase.AWAITING_APPROVAL)).pending_interactions == 1


@pytest.mark.parametrize(
    ("progress", "stopped", "status"),
    [
        (Progress(total=2, completed=2), False, JobStatus.COMPLETE),
        (Progress(total=2, completed=1, limit=1), False, JobStatus.COMPLETE),
        (Progress(total=2, completed=1, canceled=1), True, JobStatus.COMPLETE),
        (Progress(total=2, completed=1, errored=1), False, JobStatus.FAILED),
        (Progress(total=2, completed=1, waiting=1), False, JobStatus.FAILED),
        (Progress(total=2, completed=1, errored=1), True, JobStatus.FAILED),
    ],
)
def test_a_job_is_complete_exactly_when_every_attempt_has_an_outcome(
    progress: Progress, stopped: bool, status: JobStatus
) -> None:
    assert verdict(progress, stopped=stopped, reason=None)[0] is status


def shown(snap: Snapshot | None, **facts: object) -> Snapshot:
    given = {
        "job_id": "j",
        "liveness_alive": False,
        "launching": False,
        "deleted": False,
        "importing": False,
        "created_by": None,
        "now": NOW,
    }
    return serve(snap, **{**given, **facts})  # type: ignore[arg-type]


def test_a_dead_runner_is_never_running() -> None:
    running = snapshot(sample("a", 1, SamplePhase.RUNNING), sample("b", 1, SamplePhase.COMPLETED))
    assert shown(running, liveness_alive=True).status is JobStatus.RUNNING
    dead = shown(running, detail="its supervisor was killed by SIGKILL")
    assert dead.status is JobStatus.FAILED
    assert dead.reason == "its supervisor was killed by SIGKILL"
    assert dead.progress == Progress(total=4, completed=1, waiting=3)
    assert not any(s.phase.in_flight for s in dead.tasks[0].samples)


def test_serving_leaves_the_runners_snapshot_as_it_was() -> None:
    running = snapshot(sample("a", 1, SamplePhase.RUNNING))
    shown(running)
    assert running.status is JobStatus.RUNNING
    assert running.progress.running == 1


def test_a_finished_job_stays_finished_without_a_runner() -> None:
    done = snapshot(ended=JobStatus.COMPLETE)
    assert shown(done).status is JobStatus.COMPLETE
    assert shown(done, importing=True).status is JobStatus.IMPORTING
    assert shown(done, deleted=True).status is JobStatus.DELETED


def test_a_job_that_is_just_being_launched_is_queued() -> None:
    assert shown(None, launching=True).status is JobStatus.PENDING


def test_an_operation_is_shown_until_the_end() -> None:
    assert snapshot(operation=Operation.STOPPING).operation is Operation.STOPPING
    assert snapshot(operation=Operation.STOPPING, ended=JobStatus.COMPLETE).operation is None


def test_only_the_clock_changed_means_nothing_happened() -> None:
    def at(idle: float, tokens: int = 1) -> Snapshot:
        row = sample("a", 1, SamplePhase.RUNNING)
        row.idle_seconds, row.total_tokens, row.total_time = idle, tokens, idle
        made = snapshot(row)
        made.generated_at = str(idle)
        return made

    assert revision(at(1.0)) == revision(at(2.0))
    assert revision(at(1.0)) != revision(at(1.0, tokens=2))
    assert at(1.0).tasks[0].samples[0].idle_seconds == 1.0


def sealed(snap: Snapshot) -> SealedSnapshot:
    return msgspec.json.decode(msgspec.json.encode(snap), type=SealedSnapshot)


def test_a_sealed_snapshot_is_served_as_the_same_bytes_and_opens_to_the_same_tasks() -> None:
    snap = snapshot(sample("a", 1, SamplePhase.RUNNING))
    assert msgspec.json.decode(msgspec.json.encode(sealed(snap)), type=Snapshot) == snap
    assert sealed(snap).opened() == snap


def test_a_dead_runners_sealed_snapshot_is_opened_and_corrected() -> None:
    dead = shown(sealed(snapshot(sample("a", 1, SamplePhase.RUNNING))))
    assert dead.status is JobStatus.FAILED
    assert dead.progress == Progress(total=4, waiting=4)


def test_the_revision_shown_follows_the_runners_and_the_servers_view() -> None:
    one = snapshot(sample("a", 1, SamplePhase.COMPLETED), ended=JobStatus.COMPLETE)
    one.revision = revision(one)
    assert shown_revision(sealed(one)) == shown_revision(sealed(one))
    assert shown_revision(shown(sealed(one), importing=True)) != shown_revision(sealed(one))
    other = snapshot(sample("b", 1, SamplePhase.COMPLETED), ended=JobStatus.COMPLETE)
    assert shown_revision(sealed(other)) != shown_revision(sealed(one))


def test_attempts_without_an_outcome_get_one_when_their_runner_ends() -> None:
    flight = sample("a", 1, SamplePhase.RUNNING)
    flight.activity = Activity(ActivityType.MODEL, "m")
    before = evidence(flight, sample("b", 1, SamplePhase.COMPLETED))
    died = without_outcome(before, "killed by SIGKILL", stopped=False)
    assert count(died.values()) == Progress(total=3, errored=3)
    assert died["a", 1].error == "killed by SIGKILL"
    assert died["a", 1].activity is None
    stopped = without_outcome(before, "stopped", stopped=True)
    assert count(stopped.values()) == Progress(total=3, errored=1, canceled=2)
