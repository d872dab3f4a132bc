"""What pods make of a job's status: trouble, waiting for room, and the shapes that the public client reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from hawk.core.cluster import Pod, PodsSeen
from hawk.core.cluster_status import payload, with_pods
from hawk.core.cluster_why import lost_node
from hawk.core.snapshot import Progress, Sample, SealedSnapshot, Snapshot, Task
from hawk.core.states import JobStatus, Operation, SamplePhase
from hawk.core.status import serve
from hawk.kube import parsing
from tests.core.cluster_documents import (
    NO_ROOM,
    NOW,
    QUOTA,
    RUNS,
    ago,
    container,
    disrupted,
    document,
    ended,
    job,
    no_room,
    pulling,
    refused,
    runner,
    sandbox,
    seen,
)


def running(*phases: SamplePhase, name: str = "swe") -> Snapshot:
    samples = [Sample(id=f"s{i}", epoch=1, attempt=1, phase=phase) for i, phase in enumerate(phases, 1)]
    return Snapshot(
        "j", JobStatus.RUNNING, progress=Progress(total=len(samples)), tasks=[Task(name, samples=samples)]
    )


def shown(pods: PodsSeen, snapshot: Snapshot | None = None, **more: Any) -> Snapshot:
    given: dict[str, Any] = {
        "job_id": "j", "liveness_alive": True, "launching": True, "deleted": False, "importing": False,
        "created_by": "p", "now": NOW, **more,
    }  # fmt: skip
    return serve(snapshot, pods=pods, **given)


# --- before any supervisor has run


def test_a_runner_whose_image_is_not_there_is_stuck_at_once() -> None:
    found = shown(seen(pulling(), job=job()))
    assert (found.status, found.trouble_reason) == (JobStatus.STUCK, "ImagePullBackOff")
    assert found.reason is not None
    assert "registry.example/evals:v9: not found" in found.reason


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "CreateContainerError", "CreateContainerConfigError", "InvalidImageName"]
)
def test_other_trouble_of_a_runner(reason: str) -> None:
    found = shown(seen(pulling(reason, "why"), job=job()))
    assert (found.status, found.trouble_reason) == (JobStatus.STUCK, reason)


@pytest.mark.parametrize(
    ("age", "status", "trouble"),
    [(60, JobStatus.PENDING, None), (200, JobStatus.WAITING_FOR_CAPACITY, "Unschedulable")],
)
def test_a_runner_without_room_waits_for_capacity_after_three_minutes(
    age: float, status: JobStatus, trouble: str | None
) -> None:
    found = shown(seen(no_room(age), job=job()))
    assert (found.status, found.trouble_reason) == (status, trouble)
    assert found.reason is not None
    assert "2 Insufficient cpu" in found.reason


def test_ages_go_by_the_clock_of_the_api_server() -> None:
    """Its clock is ten minutes behind: what it dates ten minutes ago has just happened."""
    assert shown(seen(no_room(601), job=job(), skew=-600)).status is JobStatus.PENDING
    assert shown(seen(no_room(1), job=job(), skew=600)).status is JobStatus.WAITING_FOR_CAPACITY


def test_a_quota_is_said_in_the_clusters_words() -> None:
    found = shown(seen(job=refused()))
    assert found.status is JobStatus.PENDING
    assert found.reason is not None
    assert "exceeded quota: team" in found.reason
    later = shown(seen(job=refused()), now=NOW + timedelta(minutes=5))
    assert later.status is JobStatus.WAITING_FOR_CAPACITY


def test_a_namespace_that_is_being_deleted_is_stuck() -> None:
    text = "Error creating: pods is forbidden: unable to create new content in namespace evals because it is being terminated"
    assert shown(seen(job=refused(text))).status is JobStatus.STUCK


def test_a_queue_holds_it() -> None:
    found = shown(seen(job=job(suspended=True, queue="team")))
    assert (found.status, found.reason) == (JobStatus.PENDING, "it waits in the queue team")
    assert found.admission is not None
    assert (found.admission["state"], found.admission["queue"]) == ("queued", "team")
    long = shown(seen(job=job(suspended=True, queue="team", age=300)))
    assert long.status is JobStatus.WAITING_FOR_CAPACITY


def test_a_runner_that_just_starts_is_no_trouble() -> None:
    starts = runner(phase="Pending", state={"waiting": {"reason": "ContainerCreating"}}, age=2)
    found = shown(seen(starts, job=job()))
    assert (found.status, found.trouble_reason, found.reason) == (JobStatus.PENDING, None, None)


# --- while a supervisor runs, or did


def test_a_runner_out_of_memory_is_said_until_the_next_one_runs() -> None:
    dead = runner("r1", "Failed", ended(137, "OOMKilled"), age=100)
    found = shown(seen(dead, job=job(age=200)), running(SamplePhase.RUNNING))
    assert (found.status, found.trouble_reason) == (JobStatus.PENDING, "OOMKilled")
    assert found.reason == "its runner ran out of memory (OOMKilled, limit 4Gi); it is started again"
    again = shown(seen(dead, runner("r2", age=5), job=job(age=200)), running(SamplePhase.RUNNING))
    assert (again.status, again.trouble_reason) == (JobStatus.RUNNING, None)


def test_a_runner_that_was_evicted_is_not_running() -> None:
    gone = disrupted("TerminationByKubelet", "The node was low on resource: memory.", "Evicted")
    gone.removed = ago(3)
    found = shown(seen(job=job(age=100), gone=[gone]), running(SamplePhase.RUNNING))
    assert found.status is JobStatus.PENDING
    assert (
        found.reason == "its runner was evicted: The node was low on resource: memory.; it is started again"
    )


def on_a_lost_node(component: str = "runner", **more: Any) -> Pod:
    gone = {"type": "Ready", "status": "False", "lastTransitionTime": ago(60)}
    item = document("r", component, "Running", **more)
    item["status"] |= {"conditions": [gone], "containerStatuses": [container(component, RUNS)]}
    return parsing.pod(item)


def test_a_runner_whose_node_does_not_answer_is_stuck_once_it_is_silent() -> None:
    pods = seen(on_a_lost_node(), job=job())

    def heard(before: float) -> Snapshot:
        at = (NOW - timedelta(seconds=before)).isoformat()
        return with_pods(Snapshot("j", JobStatus.RUNNING, generated_at=at), pods, NOW)

    assert heard(2).status is JobStatus.RUNNING
    assert heard(60).status is JobStatus.STUCK
    assert heard(60).reason == ("its runner is out of reach (NodeNotReady): its node node-1 does not answer")


def test_a_pod_that_is_not_ready_by_itself_says_nothing_of_its_node() -> None:
    pod = on_a_lost_node()
    assert lost_node(pod) is not None
    pod.containers[0].ready = False
    assert lost_node(pod) is None


def test_what_a_runner_of_an_earlier_launch_did_is_history() -> None:
    dead = runner("old", "Failed", ended(137, "OOMKilled"), age=5000)
    assert shown(seen(job=job(age=10), gone=[dead])).reason is None


def test_a_failed_job_says_that_memory_ran_out() -> None:
    over = Snapshot("j", JobStatus.FAILED, reason="r")
    dead = runner("r1", "Failed", ended(137, "OOMKilled"))
    found = shown(seen(dead, job=job(condition=("Failed", "BackoffLimitExceeded"), age=100)), over)
    assert (found.status, found.trouble_reason, found.reason) == (JobStatus.FAILED, "OOMKilled", "r")


# --- sandboxes


def test_sandboxes_without_an_image_trouble_their_task_and_a_job_that_does_nothing_else() -> None:
    stuck = sandbox("box", "Pending", {"waiting": {"reason": "ErrImagePull", "message": "denied"}})
    found = shown(seen(runner(), stuck, job=job()), running(SamplePhase.INIT))
    assert (found.status, found.trouble_reason) == (JobStatus.STUCK, "ErrImagePull")
    assert found.tasks[0].trouble_reason == "ErrImagePull"
    (waits,) = found.waiting_samples
    assert (waits.sample_id, waits.pod_name, waits.phase, waits.reason, waits.detail) == (
        "s1", "box", "Pending", "ErrImagePull", "denied",
    )  # fmt: skip


def test_a_job_that_progresses_is_not_stuck_for_one_task_in_trouble() -> None:
    stuck = sandbox("box", "Pending", {"waiting": {"reason": "ErrImagePull"}})
    snapshot = running(SamplePhase.INIT, SamplePhase.RUNNING)
    found = shown(seen(runner(), stuck, job=job()), snapshot)
    assert (found.status, found.trouble_reason) == (JobStatus.RUNNING, "ErrImagePull")
    assert snapshot.tasks[0].trouble_reason is None  # what the runner wrote is not touched


@pytest.mark.parametrize(("age", "status"), [(30, JobStatus.RUNNING), (200, JobStatus.WAITING_FOR_CAPACITY)])
def test_sandboxes_without_room(age: float, status: JobStatus) -> None:
    crowded = no_room(age, "sandbox", task="swe", sample="s1")
    found = shown(seen(runner(), crowded, job=job()), running(SamplePhase.INIT))
    assert found.status is status
    assert (found.waiting_samples[0].reason, found.waiting_samples[0].detail) == ("Unschedulable", NO_ROOM)


@pytest.mark.parametrize("state", [ended(137, "OOMKilled"), {"waiting": {"reason": "CrashLoopBackOff"}}])
def test_memory_and_crashes_of_a_sandbox_are_the_samples_own(state: dict[str, Any]) -> None:
    found = shown(seen(runner(), sandbox("box", "Running", state), job=job()), running(SamplePhase.RUNNING))
    assert (found.status, found.trouble_reason, found.tasks[0].trouble_reason) == (
        JobStatus.RUNNING,
        None,
        None,
    )


def test_a_stop_is_shown_as_it_is() -> None:
    snapshot = running(SamplePhase.INIT)
    snapshot.operation = Operation.STOPPING
    stuck = sandbox("box", "Pending", {"waiting": {"reason": "ErrImagePull"}})
    assert shown(seen(runner(), stuck, job=job()), snapshot).status is JobStatus.RUNNING


def test_a_sealed_snapshot_is_opened_only_for_trouble() -> None:
    data = msgspec.json.encode(running(SamplePhase.INIT))
    sealed = msgspec.json.decode(data, type=SealedSnapshot)
    assert isinstance(shown(seen(runner(), sandbox("box"), job=job()), sealed), SealedSnapshot)
    stuck = sandbox("box", "Pending", {"waiting": {"reason": "ErrImagePull"}})
    assert shown(seen(runner(), stuck, job=job()), sealed).tasks[0].trouble_reason == "ErrImagePull"


# --- the public client's shapes

INFO = {
    "name": str, "namespace": str, "phase": str, "component": str, "job_type": str, "sample_id": str | None,
    "conditions": list, "container_statuses": list, "events": list, "creation_timestamp": str, "pod_ip": str,
}  # fmt: skip


def test_pods_have_the_fields_that_the_public_client_reads() -> None:
    found = payload(seen(pulling(), sandbox("box"), job=job()))
    first, second = found["pods"]
    for pod in (first, second):
        assert {name: isinstance(pod[name], kind) for name, kind in INFO.items()} == dict.fromkeys(INFO, True)
    assert (first["component"], first["phase"]) == ("runner", "Pending")
    status = first["container_statuses"][0]
    assert set(status) == {"name", "ready", "state", "reason", "message", "restart_count"}
    assert (status["state"], status["reason"]) == ("waiting", "ImagePullBackOff")
    assert second["sample_id"] == "s1"
    assert found["total"] == 2


def test_of_many_pods_those_in_trouble_are_shown() -> None:
    crowd = [sandbox(f"box-{i:03}", sample=f"s{i}") for i in range(300)]
    stuck = sandbox("zzz", "Pending", {"waiting": {"reason": "ErrImagePull"}})
    found = payload(seen(*crowd, stuck, runner(), job=job()))
    assert [pod["name"] for pod in found["pods"][:2]] == ["hawk-j-g1-aaaaa", "zzz"]
    assert (len(found["pods"]), found["total"]) == (100, 302)


def test_hostile_text_is_made_harmless_and_short() -> None:
    from hawk.kube import parsing

    item = document("box", "sandbox", "Pending", sample="\x1b[31mred\n\x07" + "x" * 2000)
    found = parsing.pod(item)
    assert found.sample_id is not None
    assert found.sample_id.startswith("redx") or found.sample_id.startswith("red x")
    assert len(found.sample_id) <= 500
    assert QUOTA in (refused().events[0].message)


# --- workers with pods of their own


def test_a_job_whose_workers_all_wait_for_room_says_so() -> None:
    waiting = [no_room(200, "worker", name=f"hawk-j-w{i}") for i in (0, 1)]
    found = shown(seen(runner(), *waiting, job=job()), running())
    assert (found.status, found.trouble_reason) == (JobStatus.WAITING_FOR_CAPACITY, "Unschedulable")
    assert found.reason is not None
    assert found.reason.startswith("its workers' pods wait for room")


def test_a_job_of_which_one_worker_runs_goes_on() -> None:
    works = parsing.pod(document("hawk-j-w0", "worker", "Running"))
    found = shown(seen(runner(), works, no_room(900, "worker"), job=job()), running())
    assert (found.status, found.reason) == (JobStatus.RUNNING, None)
