"""From pods as the API describes them to a named cause: alive, dead, and without any supervisor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hawk.core.cluster import Event, Pod, PodsSeen
from hawk.core.cluster_why import how_ended, how_job_ended, why_not_started
from hawk.core.diagnosis.causes import Severity, Source
from hawk.core.diagnosis.diagnose import explain
from hawk.core.diagnosis.evidence import Attempt, Evidence, Job, TaskCount
from hawk.core.diagnosis.pods import ended_how, fill
from hawk.core.diagnosis.verdict import Verdict
from hawk.core.snapshot import Progress, Snapshot
from hawk.core.states import JobStatus, SamplePhase
from hawk.kube import parsing
from hawk.store.evidence import kept_diagnosis
from hawk.store.rundir import RunDir, write_json
from tests.core.cluster_documents import (
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


def queued() -> Evidence:
    """Nobody has run it yet."""
    return Evidence(
        "j", NOW.isoformat(), job=Job(phase="queued", status=JobStatus.PENDING, submitted_at=ago(60))
    )


def at_work(*attempts: Attempt) -> Evidence:
    task = TaskCount("swe/gpt", "swe", progress=Progress(total=9, running=len(attempts), completed=1))
    return Evidence(
        "j",
        NOW.isoformat(),
        job=Job(alive=True),
        progress=task.progress,
        tasks=[task],
        attempts=list(attempts),
    )


def attempt(phase: SamplePhase = SamplePhase.RUNNING, *, since: float = 100.0) -> Attempt:
    return Attempt(
        "swe/gpt", "s1", 1, "swe/s1/1", "u1", phase=phase, started_at=ago(since), since=ago(since), idle=1.0
    )


def causes(evidence: Evidence, pods: PodsSeen) -> dict[str, Verdict]:
    fill(evidence, pods)
    return {f"{v.layer}.{v.cause}": v for v in explain(evidence, NOW).verdicts}


# --- the runner, before any supervisor has run


@pytest.mark.parametrize(
    ("pods", "cause", "severity", "said"),
    [
        (seen(pulling(), job=job()), "sandbox.image_pull", Severity.STUCK, "v9: not found"),
        (seen(pulling("CreateContainerConfigError", 'secret "x" not found'), job=job()), "sandbox.create_failed", Severity.STUCK, "not found"),
        (seen(no_room(30), job=job()), "sandbox.unschedulable", Severity.INFO, "Insufficient cpu"),
        (seen(no_room(400), job=job()), "sandbox.unschedulable", Severity.STUCK, "disk-pressure"),
        (seen(job=refused()), "sandbox.unschedulable", Severity.INFO, "exceeded quota: team"),
        (
            seen(job=refused("pods is forbidden: namespace evals because it is being terminated")),
            "sandbox.create_failed",
            Severity.STUCK,
            "being terminated",
        ),
    ],
)  # fmt: skip
def test_a_runner_that_does_not_start(pods: PodsSeen, cause: str, severity: Severity, said: str) -> None:
    found = causes(queued(), pods)
    assert found[cause].severity is severity
    assert said in found[cause].what
    assert found[cause].scope == "job"
    assert "scheduler.queued" not in found  # it says less


def test_a_mount_that_fails_is_told_by_its_event() -> None:
    item = document("r", "runner", "Pending")
    item["status"]["containerStatuses"] = [
        {"name": "runner", "state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}
    ]
    from hawk.kube import parsing

    pod = parsing.pod(item)
    assert why_not_started(pod) is None
    pod.events = [
        Event("FailedMount", 'MountVolume.SetUp failed: secret "data" not found', "Warning", 3, ago(1))
    ]
    assert 'secret "data" not found' in causes(queued(), seen(pod, job=job()))["sandbox.create_failed"].what


def test_a_quota_has_a_remedy_of_its_own() -> None:
    assert "quota raised" in causes(queued(), seen(job=refused()))["sandbox.unschedulable"].remedy


# --- the runner's ends


@pytest.mark.parametrize(
    ("pod", "cause", "said"),
    [
        (runner("r1", "Failed", ended(137, "OOMKilled"), age=90), "runner.oom_killed", "ran out of memory (OOMKilled, limit 4Gi)"),
        (disrupted("TerminationByKubelet", "The node was low on resource: memory.", "Evicted"), "runner.killed", "low on resource"),
        (disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"), "runner.killed", "preempted"),
        (disrupted("DeletionByPodGC", "PodGC: node no longer exists"), "runner.killed", "its node is gone"),
        (disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"), "runner.killed", "out of order"),
        (runner("r1", "Failed", ended(1, message="Traceback: boom"), age=90), "runner.crashed", "exited with code 1: Traceback: boom"),
    ],
)  # fmt: skip
def test_a_runner_that_ended_and_is_started_again(pod: Pod, cause: str, said: str) -> None:
    between = causes(at_work(attempt()), seen(pod, job=job(age=100)))[cause]
    assert said in between.what
    assert between.severity is Severity.WARNING
    after = causes(at_work(attempt()), seen(pod, runner("r2", age=2), job=job(age=100)))[cause]
    assert after.severity is Severity.INFO
    assert after.what.endswith("it was started again")


@pytest.mark.parametrize(
    ("condition", "pod", "cause", "said", "final"),
    [
        ("BackoffLimitExceeded", runner("r", "Failed", ended(137, "OOMKilled")), "runner.oom_killed", "ran out of memory", False),
        ("BackoffLimitExceeded", runner("r", "Failed", ended(70, message="no space")), "runner.crashed", "exited with code 70", False),
        ("DeadlineExceeded", runner("r", "Failed", ended(143)), "runner.killed", "longer than its deadline of 600 s", True),
        ("PodFailurePolicy", runner("r", "Failed", ended(64, message="hawk 1 is not 2")), "runner.crashed", "hawk 1 is not 2", True),
    ],
)  # fmt: skip
def test_a_job_that_is_over_is_named_when_all_have_died(
    tmp_path: Path, condition: str, pod: Pod, cause: str, said: str, final: bool
) -> None:
    pods = seen(pod, job=job(condition=("Failed", condition), spec={"activeDeadlineSeconds": 600}, age=100))
    end = how_job_ended(pods)
    assert end is not None
    assert (end.final, said in end.detail) == (final, True)
    run = RunDir(tmp_path / "j")
    run.create()
    write_json(run.snapshot_file, Snapshot("j", JobStatus.RUNNING))
    write_json(run.evidence_file, at_work(attempt()))
    write_json(run.pods_file, pods)
    worst = kept_diagnosis(run).verdicts[0]
    assert (f"{worst.layer}.{worst.cause}", worst.severity) == (cause, Severity.FATAL)
    assert said in worst.what


def test_a_job_that_is_at_work_has_not_ended() -> None:
    assert ended_how(seen(runner(), job=job())) is None
    assert ended_how(seen(job=job(suspended=True))) is None
    assert how_ended(runner()) is None


# --- sandboxes


@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        (sandbox("b", "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "denied"}}), "sandbox.image_pull"),
        (sandbox("b", "Pending", {"waiting": {"reason": "RunContainerError", "message": "no such file"}}), "sandbox.create_failed"),
        (sandbox("b", "Running", {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}), "sandbox.crash_loop"),
        (no_room(400, "sandbox", task="swe", sample="s1", epoch="1"), "sandbox.unschedulable"),
    ],
)  # fmt: skip
def test_a_sandbox_that_does_not_start_holds_its_attempt(pod: Pod, cause: str) -> None:
    found = causes(at_work(attempt(SamplePhase.INIT)), seen(runner(), pod, job=job()))
    assert (found[cause].severity, found[cause].uuids) == (Severity.STUCK, ["u1"])


OOM = {"lastState": ended(137, "OOMKilled", before=20), "restartCount": 1}
RESTARTED = {"lastState": ended(1, before=20), "restartCount": 1}


@pytest.mark.parametrize(
    ("pod", "cause", "said"),
    [
        (sandbox("b", container=OOM), "sandbox.oom_killed", "swe/s1/1"),
        (sandbox("b", "Failed", ended(137, "OOMKilled", before=20)), "sandbox.oom_killed", "swe/s1/1"),
        (sandbox("b", container=RESTARTED), "sandbox.exec_lost", "was started again"),
        (
            disrupted(
                "DeletionByPodGC", "node gone", component="sandbox", task="swe", sample="s1", epoch="1"
            ),
            "sandbox.exec_lost",
            "its node is gone",
        ),
    ],
)
def test_a_sandbox_that_broke_under_its_attempt(pod: Pod, cause: str, said: str) -> None:
    found = causes(at_work(attempt()), seen(runner(), pod, job=job()))
    assert said in found[cause].what
    assert found[cause].uuids == ["u1"]


def gone(before: float) -> Pod:
    pod = sandbox("b")
    pod.removed = ago(before)
    return pod


def test_a_sandbox_that_somebody_deleted_is_lost() -> None:
    found = causes(at_work(attempt()), seen(runner(), job=job(), gone=[gone(30)]))
    assert "its pod was deleted" in found["sandbox.exec_lost"].what


@pytest.mark.parametrize(
    ("pods", "in_flight"),
    [
        (seen(runner(), job=job(), gone=[gone(3)]), attempt()),  # its attempt is just ending
        (seen(runner(), job=job(), gone=[gone(30)]), attempt(since=10)),  # of an earlier try
        (seen(runner(), sandbox("b2"), job=job(), gone=[gone(30)]), attempt()),  # another has taken its place
        (seen(runner(), job=job(), gone=[gone(30)]), attempt(SamplePhase.INIT)),
    ],
)
def test_a_sandbox_that_went_in_good_order_is_not(pods: PodsSeen, in_flight: Attempt) -> None:
    assert "sandbox.exec_lost" not in causes(at_work(in_flight), pods)


def test_pods_go_with_the_task_that_has_such_an_attempt() -> None:
    """Two models, one name of the task."""
    evidence = at_work(attempt(SamplePhase.INIT))
    evidence.tasks.insert(0, TaskCount("swe/other", "swe"))
    waits = sandbox("b", "Pending", {"waiting": {"reason": "ErrImagePull"}})
    fill(evidence, seen(runner(), waits, job=job()))
    assert evidence.sandboxes[0].task == "swe/gpt"


def test_a_cluster_that_cannot_be_asked_is_a_missing_source() -> None:
    evidence = at_work(attempt())
    fill(evidence, seen(runner(), job=job(), problem="no answer in time", problem_since=ago(300)))
    assert evidence.missing["engine"] == "the cluster can't be asked: no answer in time"


def test_times_are_the_local_clocks() -> None:
    evidence = at_work(attempt(SamplePhase.INIT))
    fill(evidence, seen(no_room(400, "sandbox", task="swe", sample="s1"), job=job(), skew=-390.0))
    found: Any = evidence.sandboxes[0].since
    assert found == "2026-05-01T11:59:50.000+00:00"
    assert QUOTA


# --- workers with pods of their own


@pytest.mark.parametrize(("running", "severity"), [(False, Severity.STUCK), (True, Severity.WARNING)])
def test_pods_of_workers_that_do_not_start_are_named(running: bool, severity: Severity) -> None:
    waiting = no_room(900, "worker", name="hawk-j-w1")
    others = [parsing.pod(document("hawk-j-w0", "worker", "Running"))] if running else []
    found = causes(at_work(), seen(runner(), *others, waiting, job=job()))
    verdict = found["sandbox.unschedulable"]
    assert (verdict.severity, verdict.subject) == (severity, "workers")
    assert "the pod of 1 worker can't start" in verdict.what
    assert "hawk-j-w1" in str(verdict.evidence)


def test_a_node_that_does_not_answer_is_named_for_the_runner_and_for_sandboxes() -> None:
    lost = {"type": "Ready", "status": "False", "lastTransitionTime": ago(50)}

    def pod(name: str, component: str, **notes: str) -> Pod:
        item = document(name, component, "Running", **notes)
        item["status"] |= {"conditions": [lost], "containerStatuses": [container(component, RUNS)]}
        return parsing.pod(item)

    pods = seen(pod("r", "runner"), pod("b", "sandbox", task="swe", sample="s1", epoch="1"), job=job(age=100))
    found = causes(at_work(attempt()), pods)
    assert "its node node-1 does not answer" in found["runner.killed"].what
    assert found["runner.killed"].severity is Severity.WARNING
    silent = at_work(attempt())
    silent.missing[Source.ENGINE] = "its supervisor has said nothing for 60 s"
    assert causes(silent, pods)["runner.killed"].severity is Severity.STUCK
    pods.problem = "the API is away"  # then what is known of the node is old
    assert causes(silent, pods)["runner.killed"].severity is Severity.WARNING
    pods.problem = None
    assert any("its node node-1 does not answer" in v.what for v in found.values() if v.layer == "sandbox")
