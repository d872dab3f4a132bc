"""A server whose jobs run on a cluster: what is shown, what is done when runners end, and what local jobs notice of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hawk.cli.eval_set import eval_set
from hawk.core.states import SamplePhase
from hawk.engine.engines import Engines
from hawk.server.services import reconcile
from hawk.store.rundir import RunDir, write_json
from tests.core.cluster_documents import NO_ROOM, NOT_FOUND, QUOTA
from tests.engine.jobs_fake import Running, running
from tests.kube.fake import Object
from tests.server.fakes import FakeEngine
from tests.server.serving import CONFIG, Service, serving, until
from tests.store.runs import settings_in, snapshot_of

ON_CLUSTER = {**CONFIG, "engine": "kubernetes"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(reconcile, "FIRST_DELAY", 0.05)
    with running() as found:
        file = tmp_path / "kubeconfig"
        file.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "clusters": [{"name": "k", "cluster": {"server": found.access.host}}],
                    "contexts": [
                        {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "test"}}
                    ],
                    "users": [{"name": "u", "user": {}}],
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(file))
        monkeypatch.delenv("HAWK_KUBE_NAMESPACE", raising=False)
        yield found


@pytest.fixture
def service(tmp_path: Path, cluster: Running) -> Iterator[Service]:
    settings = settings_in(tmp_path / "home")
    with serving(settings, Engines(settings, FakeEngine(settings.root))) as found:
        yield found


def waits(cluster: Running, **status: Any) -> None:
    """Runner pods come to no more than this."""

    async def scenario(pod: Object) -> None:
        pod["status"] |= status
        await cluster.fake.put("MODIFIED", "Pod", pod)

    cluster.fake.scenario = scenario


def ends(cluster: Running, code: int, message: str) -> None:
    async def scenario(pod: Object) -> None:
        ended = {
            "terminated": {
                "exitCode": code,
                "reason": "Error",
                "message": message,
                "finishedAt": cluster.fake.now(),
            }
        }
        pod["status"] = {
            "phase": "Failed",
            "containerStatuses": [{"name": "runner", "restartCount": 0, "state": ended}],
        }
        await cluster.fake.put("MODIFIED", "Pod", pod)

    cluster.fake.scenario = scenario


def diagnosis(service: Service, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = service.get(f"/monitoring/jobs/{job_id}/diagnosis").json()
    return found.get("data", found)


def test_an_image_that_is_not_there_is_shown_and_diagnosed_before_any_runner_ran(
    cluster: Running, service: Service
) -> None:
    state = {"waiting": {"reason": "ImagePullBackOff", "message": NOT_FOUND}}
    waits(cluster, containerStatuses=[{"name": "runner", "restartCount": 0, "ready": False, "state": state}])
    assert service.submit("a", ON_CLUSTER).status_code == 200
    data = service.until_status("a", "stuck")
    assert data["trouble_reason"] == "ImagePullBackOff"
    assert "v9: not found" in data["reason"]
    assert data["pods"]["pods"][0]["container_statuses"][0]["reason"] == "ImagePullBackOff"
    worst = diagnosis(service, "a")["verdicts"][0]
    assert (worst["cause"], worst["severity"]) == ("image_pull", "stuck")
    assert service.get("/monitoring/jobs/a/status").json()["data"]["processes"]["engine"] == "kubernetes"
    assert service.client.delete("/eval_sets/a").status_code == 200
    assert [name for kind in ("Job", "Pod", "Secret") for _, name in cluster.fake.of(kind)] == []


def test_a_runner_without_room_says_what_the_scheduler_says(cluster: Running, service: Service) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_ROOM}
    waits(cluster, conditions=[condition])
    service.submit("a", ON_CLUSTER)
    data = until(lambda: d if (d := service.status("a"))["reason"] else None)
    assert data["status"] == "pending"
    assert "2 Insufficient cpu" in data["reason"]


def test_a_quota_that_is_used_up_is_told_by_the_jobs_event(cluster: Running, service: Service) -> None:
    async def refused(job: Object) -> Object:
        await cluster.fake.event(job, "FailedCreate", QUOTA)
        raise RuntimeError("no pod")

    cluster.fake.make_pod = refused  # type: ignore[method-assign]
    service.submit("a", ON_CLUSTER)
    data = until(lambda: d if (d := service.status("a"))["reason"] else None)
    assert "exceeded quota: team" in data["reason"]


def test_a_runner_for_which_trying_again_is_no_use_ends_the_job_at_once(
    cluster: Running, service: Service
) -> None:
    ends(cluster, 64, "hawk 0.1 does not run jobs of hawk 0.2")
    service.submit("a", ON_CLUSTER)
    data = service.until_status("a", "failed")
    assert data["reason"] == "its runner exited with code 64: hawk 0.1 does not run jobs of hawk 0.2"
    assert cluster.fake.of("Job") == {}
    assert [
        c["object"]["metadata"]["name"]
        for c in cluster.fake.log
        if c["type"] == "ADDED" and c["kind"] == "Job"
    ] == ["hawk-a-g1"]
    worst = diagnosis(service, "a")["verdicts"][0]
    assert "hawk 0.1 does not run jobs" in worst["what"]


def test_a_runner_that_keeps_failing_is_given_up_after_the_jobs_own_tries(
    cluster: Running, service: Service
) -> None:
    ends(cluster, 1, "boom")
    service.submit("a", ON_CLUSTER)
    data = service.until_status("a", "failed")
    assert data["reason"] == "its runner exited with code 1: boom; started again 3 times without progress"


def test_a_job_whose_runner_says_it_is_complete_is_complete(cluster: Running, service: Service) -> None:
    service.submit("a", ON_CLUSTER)
    until(lambda: service.context.engine.kubernetes.runner_pod("a"))
    run: RunDir = service.context.registry.run("a")
    done = snapshot_of("a", SamplePhase.COMPLETED)
    done.status = "complete"  # type: ignore[assignment]
    write_json(run.snapshot_file, done)
    (pod,) = cluster.fake.of("Pod").values()
    cluster.do(cluster.fake.status(pod, "Succeeded", terminated={"exitCode": 0, "reason": "Completed"}))
    service.until_status("a", "complete")
    until(lambda: service.context.registry.get("a") is None)


def test_a_cluster_that_goes_away_is_an_error_beside_the_status(cluster: Running, service: Service) -> None:
    service.submit("a", ON_CLUSTER)
    until(lambda: service.context.engine.kubernetes.runner_pod("a"))
    write_json(service.context.registry.run("a").snapshot_file, snapshot_of("a", SamplePhase.RUNNING))
    service.until_status("a", "running")
    cluster.fake.away = True
    cluster.soon(cluster.fake.drop_watches)
    data = until(lambda: d if "pod_status" in (d := service.status("a"))["errors"] else None)
    assert data["status"] == "running"
    assert service.context.registry.get("a").restarts == 0


def test_a_submit_that_the_cluster_refuses_leaves_nothing(cluster: Running, service: Service) -> None:
    cluster.fake.tokens = {"another"}
    answer = service.submit("a", ON_CLUSTER)
    assert (answer.status_code, answer.json()["code"]) == (502, "cluster")
    assert service.get("/monitoring/jobs/a/eval-set-status").status_code == 404


def test_local_jobs_never_connect_to_a_cluster(cluster: Running, service: Service) -> None:
    service.submit("a")
    service.status("a")
    service.client.delete("/eval_sets/a")
    assert cluster.fake.asked == []
    assert service.context.engine.kubernetes is None


def test_a_request_says_where_and_a_resume_goes_elsewhere(cluster: Running, service: Service) -> None:
    service.submit("a", ON_CLUSTER, engine="local")
    run: RunDir = service.context.registry.run("a")
    assert run.read_spec().engine == "local"
    assert cluster.fake.asked == []
    service.submit("b", CONFIG, engine="kubernetes")
    assert service.context.registry.run("b").read_spec().engine == "kubernetes"
    assert cluster.fake.named("Job", "hawk-b-g1") is not None


def test_the_command_line_wins_over_the_config(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("from inspect_ai import task\n\n@task\ndef t(): ...\n")
    file = tmp_path / "e.yaml"
    file.write_text("tasks: [tasks.py@t]\nengine: local\n")
    for arguments, environ in ((["--engine", "kubernetes"], {}), ([], {"HAWK_ENGINE": "kubernetes"})):
        done = CliRunner().invoke(
            eval_set, ["run", str(file), "--check", *arguments], env=environ, obj=object()
        )
        assert "engine    kubernetes" in done.output, done.output
