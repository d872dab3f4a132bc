"""What a cluster does to a job's runner and to a server that runs on: nodes that go, tokens that expire, an API that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from hawk.config.cluster import load_cluster_settings
from hawk.config.settings import Settings
from hawk.core.cluster import PodsSeen
from hawk.core.cluster_why import End, how_ended
from hawk.engine.kubernetes import leases, watches
from hawk.engine.kubernetes.kubernetes import KubernetesEngine
from hawk.errors import ClusterError
from hawk.kube import requests
from hawk.kube.access import find_access
from hawk.kube.api import Cluster
from hawk.store.rundir import JobSpec, RunDir, read_json, write_json
from tests.engine.jobs_fake import Running, running, until
from tests.kube.fake import Object

Start = Callable[[], KubernetesEngine]


@pytest.fixture
def start(cluster: Running, settings: Settings) -> Iterator[Start]:
    """Starts the engine, and ends it; the way to the cluster is `cluster.access` at that moment."""
    made: list[KubernetesEngine] = []

    def engine() -> KubernetesEngine:
        made.append(KubernetesEngine(settings, load_cluster_settings({}), access=cluster.access))
        return made[-1]

    yield engine
    for one in made:
        one.close()


def job(settings: Settings, job_id: str = "a") -> RunDir:
    run = RunDir(settings.root / job_id)
    run.create()
    write_json(run.spec_file, JobSpec(job_id, "/srv/evals", {"tasks": []}, engine="kubernetes"))
    return run


@pytest.mark.parametrize(
    ("reason", "said", "words"),
    [
        ("TerminationByKubelet", "The node was low on resource: memory.", "was evicted"),
        ("DeletionByPodGC", "PodGC: node no longer exists", "its node is gone"),
        (
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            "node, which is out of order",
        ),
        ("PreemptionByScheduler", "preempting to accommodate a higher priority pod", "of higher priority"),
    ],
)
def test_a_runner_that_the_cluster_took_away_is_replaced_and_blamed_on_nobody(
    cluster: Running, settings: Settings, start: Start, reason: str, said: str, words: str
) -> None:
    run = job(settings)
    taken: list[str] = []

    async def scenario(pod: Object) -> None:
        await cluster.fake.run_pod(pod)
        if taken:
            return
        taken.append(pod["metadata"]["name"])
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": said}
        pod["status"] |= {"phase": "Failed", "conditions": [condition]}
        if reason == "TerminationByKubelet":
            pod["status"] |= {"reason": "Evicted", "message": said}
        await cluster.fake.put("MODIFIED", "Pod", pod)

    cluster.fake.scenario = scenario
    engine = start()
    engine.launch("a", {})
    until(lambda: (name := engine.runner_pod("a")) is not None and name not in taken)
    found = engine.liveness("a")
    assert (found.alive, found.tries) == (True, 0)
    seen = until(lambda: s if (s := read_json(run.pods_file, PodsSeen)) and (s.gone or s.pods) else None)
    ends = [how_ended(pod) for pod in (*seen.gone, *seen.pods) if pod.name in taken]
    assert [one.end for one in ends if one is not None] == [End.DISRUPTED]
    assert ends[0] is not None
    assert words in ends[0].words


def rotating(tmp_path: Path, cluster: Running, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the way to the cluster one with a token in a file, as a pod's is; the file."""
    token = tmp_path / "token"
    token.write_text("first")
    cluster.fake.tokens = {"first"}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": cluster.access.host}}],
        "users": [{"name": "u", "user": {"tokenFile": str(token)}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "test"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("HAWK_KUBE_NAMESPACE", raising=False)
    cluster.access = asyncio.run(find_access())
    return token


def test_a_token_that_is_replaced_under_a_running_server_is_read_again(
    cluster: Running, settings: Settings, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "EVERY", 0.1)
    token = rotating(tmp_path, cluster, monkeypatch)
    job(settings)
    engine = start()
    engine.launch("a", {})
    first = until(lambda: engine.runner_pod("a"))
    cluster.fake.tokens = {"second"}  # the first one has expired
    cluster.soon(cluster.fake.drop_watches)
    until(lambda: engine.liveness("a").problem is not None)
    assert engine.liveness("a").alive
    token.write_text("second")
    until(lambda: engine.liveness("a").problem is None, 20)
    until(lambda: engine.leading, 20)
    job(settings, "b")
    engine.launch("b", {})
    until(lambda: engine.runner_pod("b"))
    cluster.do(cluster.fake.end_pod(first))  # and what happens is seen again
    until(lambda: (name := engine.runner_pod("a")) is not None and name != first)


def test_an_api_that_is_away_past_the_lease_changes_nothing_for_jobs(
    cluster: Running, settings: Settings, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes of it: the server leads no more, says so, and takes up where it was."""
    monkeypatch.setattr(leases, "EVERY", 0.05)
    monkeypatch.setattr(leases, "SURE", 0.5)
    monkeypatch.setattr(watches, "LOOK", 0.05)
    job(settings)
    engine = start()
    engine.launch("a", {})
    pod = until(lambda: engine.runner_pod("a"))
    until(lambda: engine.leading)
    cluster.fake.away = True
    cluster.soon(cluster.fake.drop_watches)
    until(lambda: not engine.leading, 20)
    found = engine.liveness("a")
    assert (found.alive, found.mine) == (True, False)
    cluster.fake.away = False
    until(lambda: engine.leading, 20)
    until(lambda: engine.liveness("a").problem is None, 20)
    assert engine.runner_pod("a") == pod
    assert [name for _, name in cluster.fake.of("Job")] == ["hawk-a-g1"]


async def test_an_api_that_takes_a_request_and_never_answers_is_left_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "_ANSWER", 0.2)
    hangs = asyncio.Event()

    async def never(_: web.Request) -> None:
        if not hangs.is_set():
            await asyncio.sleep(600)

    def tried(cluster: Running) -> Any:
        async def ask() -> ClusterError:
            cluster.fake.before = never
            async with Cluster(cluster.access) as connection:
                with pytest.raises(ClusterError) as caught:
                    await connection.list("Pod", patience=1.0)
                assert connection.requests.sent["GET pods"] > 1  # not once and for all
                return caught.value

        return cluster.do(ask())

    with running() as cluster:
        failed = await asyncio.to_thread(tried, cluster)
    assert failed.fields["reason"] == "unreachable"
    assert "no answer in time" in failed.message
