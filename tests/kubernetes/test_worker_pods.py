"""Workers with pods of their own on a real cluster: a server here, a runner's pod and its workers' pods there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hawk.core.cluster import PodsSeen
from hawk.kube.api import connect
from hawk.store.attempts import read_results
from hawk.store.rundir import read_json
from tests.kubernetes.test_deploy_namespace import kubectl, moved
from tests.kubernetes.test_link_pods import RUNNER_IMAGE, SLOW, TOTAL, ClusterSystem, left
from tests.system import repeated, safe, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RUNNER_IMAGE, reason="HAWK_TEST_RUNNER_IMAGE names no image of the runner"),
]

PODS: dict[str, Any] = {"runner": {"workers": "pods", "cpu": "100m", "memory": "600Mi"}}


@pytest.fixture(scope="module")
def account(namespace: str) -> Iterator[None]:
    """What `kubectl apply -k deploy/engine` makes, but for the policy: that nothing is left is looked at."""
    text = yaml.safe_dump_all([one for one in moved("engine", namespace) if one["kind"] != "NetworkPolicy"])
    kubectl("apply", "-n", namespace, "-f", "-", stdin=text)
    yield
    kubectl("delete", "-n", namespace, "--ignore-not-found", "-f", "-", stdin=text)


@pytest.fixture
def system(tmp_path: Path, namespace: str, account: None) -> Iterator[ClusterSystem]:
    found = ClusterSystem(tmp_path, namespace, dial=False)
    found.start()
    try:
        yield found
    finally:
        found.stop()


async def pods_of(namespace: str, job: str, component: str) -> list[str]:
    async with await connect(namespace=namespace) as cluster:
        labels = f"hawk/job={job},app.kubernetes.io/component={component}"
        found, _ = await cluster.list("Pod", labels=labels)
        return [pod["metadata"]["name"] for pod in found]


async def delete(namespace: str, pod: str, grace: int) -> None:
    async with await connect(namespace=namespace) as cluster:
        await cluster.delete("Pod", pod, grace=grace)


def exits(system: ClusterSystem, job: str) -> list[str]:
    return [e.reason for e in system.run_dir(job).journal() if e.state == "exited" and e.reason]


def test_each_share_of_the_tasks_has_a_pod_that_is_seen_and_leaves_nothing(
    system: ClusterSystem, namespace: str
) -> None:
    job = "spread"
    system.submit_away(job, seconds=3.0, config=PODS)
    until("it runs", lambda: system.status(job).progress.running, SLOW)
    workers = asyncio.run(pods_of(namespace, job, "worker"))
    assert len(workers) == 2
    assert "in_steps" in until("its stacks are there", lambda: _output(system, "stacktrace", job), 60)
    assert "counted" in until("its trace is there", lambda: _output(system, "trace", job), 60)
    seen = read_json(system.run_dir(job).pods_file, PodsSeen)
    assert seen is not None
    assert {pod.name for pod in seen.of("worker")} == set(workers)
    system.complete(job)
    results, _ = read_results(system.run_dir(job))
    assert {result.worker for result in results} == {0, 1}
    system.remove(job)
    asyncio.run(left(namespace))


def test_a_stop_ends_the_pods(system: ClusterSystem, namespace: str) -> None:
    job = "stopped"
    system.submit_away(job, seconds=60.0, config=PODS)
    until("it runs", lambda: system.status(job).progress.running == TOTAL, SLOW)
    system.hawk("stop", job)
    assert system.finish(job, SLOW).status == "complete"
    system.remove(job)
    asyncio.run(left(namespace))


@pytest.mark.parametrize("grace", [0, 30], ids=["killed", "evicted"])
def test_a_workers_pod_that_is_deleted_is_followed_by_one_that_goes_on(
    system: ClusterSystem, namespace: str, grace: int
) -> None:
    job = f"deleted-{grace}"
    system.submit_away(job, seconds=3.0, config={**PODS, "log_buffer": 1})
    until("some are finished", lambda: len(safe(system.run_dir(job))) >= 3, SLOW)
    kept = set(safe(system.run_dir(job)).values())
    first = sorted(asyncio.run(pods_of(namespace, job, "worker")))[0]
    asyncio.run(delete(namespace, first, grace))
    system.complete(job)
    assert kept <= {r.uuid for r in read_results(system.run_dir(job))[0]}
    assert exits(system, job)[0].startswith("its pod was deleted")
    system.remove(job)
    asyncio.run(left(namespace))


def test_workers_live_on_when_the_runners_pod_is_lost(system: ClusterSystem, namespace: str) -> None:
    job = "orphaned"
    system.submit_away(job, seconds=6.0, config=PODS)
    until("it runs", lambda: system.status(job).progress.running == TOTAL, SLOW)
    workers = asyncio.run(pods_of(namespace, job, "worker"))
    (runner,) = asyncio.run(pods_of(namespace, job, "runner"))
    asyncio.run(delete(namespace, runner, 0))
    system.complete(job)
    found = [e.reason for e in system.run_dir(job).journal() if e.state == "pod found"]
    assert (sorted(found), repeated(found)) == (sorted(workers), [])
    assert exits(system, job) == []
    system.remove(job)
    asyncio.run(left(namespace))


def test_a_worker_that_runs_out_of_memory_says_so(system: ClusterSystem, namespace: str) -> None:
    job = "small"
    small = {"runner": {"workers": "pods", "cpu": "100m", "memory": "60Mi"}}
    config = {**small, "retry_attempts": 0}
    system.submit_away(job, seconds=1.0, config=config)
    end = system.finish(job, SLOW)
    assert end.status == "failed"
    said = " ".join([str(end.reason), *exits(system, job)])
    assert "memory" in said
    system.remove(job)
    asyncio.run(left(namespace))


def _output(system: ClusterSystem, *args: str) -> str:
    done = system.hawk(*args, check=False)
    return done.stdout if done.returncode == 0 else ""
