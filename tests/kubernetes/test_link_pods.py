"""The whole way on a real cluster: a server here, an eval set in a runner pod there, and only the link between them.

HAWK_TEST_RUNNER_IMAGE is an image with this Hawk in it that the nodes have. HAWK_TEST_HOST is this machine's address as pods
see it: without it, only the server comes to the pods.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk.kube.api import Cluster, connect
from hawk.link.tokens import link_key
from hawk.store.attempts import read_results
from tests.kubernetes.conftest import nothing_left
from tests.link.podding import _free_port
from tests.system import TASKS, System, repeated, safe, until

RUNNER_IMAGE = os.environ.get("HAWK_TEST_RUNNER_IMAGE", "")
HOST = os.environ.get("HAWK_TEST_HOST", "")
TOTAL = 16
SLOW = 240.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RUNNER_IMAGE, reason="HAWK_TEST_RUNNER_IMAGE names no image of the runner"),
]
DIALS = pytest.param(True, id="the pod dials", marks=pytest.mark.skipif(not HOST, reason="no HAWK_TEST_HOST"))
ATTACHES = pytest.param(False, id="the server attaches")


class ClusterSystem(System):
    """A server with a cluster."""

    def __init__(self, base: Path, namespace: str, *, dial: bool) -> None:
        self.port = _free_port()
        environ = {
            "KUBECONFIG": os.environ["KUBECONFIG"],
            "HAWK_KUBE_NAMESPACE": namespace,
            "HAWK_KUBE_IMAGE": RUNNER_IMAGE,
            "HAWK_KUBE_PULL_POLICY": "IfNotPresent",
        }
        if dial:
            environ["HAWK_KUBE_SERVER_URL"] = f"http://{HOST}:{self.port}"
        super().__init__(base, **environ)
        self.host = HOST if dial else "127.0.0.1"
        self.source = base / "evals"
        self.source.mkdir(parents=True)
        shutil.copy(TASKS, self.source)

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "hawk.server", "--host", self.host, "--port", str(self.port)]
        with (self.home / "server.log").open("ab") as log:
            self.server = subprocess.Popen(
                command,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        pid = self.server.pid
        until("the server is up", lambda: self._record().get("pid") == pid and self.client().alive())

    def submit_away(self, job_id: str, seconds: float = 0.5, config: dict[str, object] | None = None) -> None:
        args = {"ledger": f"/tmp/{job_id}", "samples": 4, "seconds": seconds}
        body = {
            "tasks": [{"file": TASKS.name, "items": [{"name": n, "args": args} for n in ("left", "right")]}],
            "models": [{"file": TASKS.name, "items": [{"name": "counted/m"}]}],
            "epochs": 2,
            "middleman": {"off": True},
            "runner": {"cpu": "500m", "memory": "1Gi"},
            **(config or {}),
        }
        with self.client() as client:
            client.submit(
                {
                    "eval_set_config": body,
                    "eval_set_id": job_id,
                    "base_dir": str(self.source),
                    "engine": "kubernetes",
                }
            )

    def complete(self, job_id: str) -> None:
        end = self.finish(job_id, SLOW)
        assert (end.status, end.reason, end.progress.completed) == ("complete", None, TOTAL)
        results, problems = read_results(self.run_dir(job_id))
        assert (len(results), problems) == (TOTAL, [])
        journal = self.run_dir(job_id).journal_file.read_text().splitlines()
        assert repeated(journal) == []

    def remove(self, job_id: str) -> None:
        self.hawk("delete", job_id, "-y")


@pytest.fixture(params=[ATTACHES, DIALS])
def system(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> Iterator[ClusterSystem]:
    found = ClusterSystem(tmp_path, namespace, dial=request.param)
    found.start()
    try:
        yield found
    finally:
        found.stop()


async def pods_of(namespace: str, job: str) -> list[str]:
    async with await connect(namespace=namespace) as cluster:
        found, _ = await cluster.list("Pod", labels=f"hawk/job={job}")
        return [pod["metadata"]["name"] for pod in found]


async def remove_pods(namespace: str, job: str) -> None:
    async with await connect(namespace=namespace) as cluster:
        for pod in (await cluster.list("Pod", labels=f"hawk/job={job}"))[0]:
            await cluster.delete("Pod", pod["metadata"]["name"], grace=0)


async def left(namespace: str) -> None:
    async with await connect(namespace=namespace) as cluster:
        assert isinstance(cluster, Cluster)
        await nothing_left(cluster)


def test_an_eval_set_runs_in_a_pod_as_it_would_here(system: ClusterSystem, namespace: str) -> None:
    job = "away"
    system.submit_away(job, seconds=2.0)
    until("it runs", lambda: system.status(job).progress.running, SLOW)
    stacks = until("its stacks are there", lambda: _output(system, "stacktrace", job), 60)
    assert "in_steps" in stacks
    assert "died" not in until("its trace is there", lambda: _output(system, "trace", job), 60)
    logs = until("its lines are there", lambda: _output(system, "logs", job), 60)
    assert link_key(system.home).decode() not in logs
    system.complete(job)
    system.remove(job)
    asyncio.run(left(namespace))


def test_a_stop_reaches_the_pod(system: ClusterSystem, namespace: str) -> None:
    job = "stopped"
    system.submit_away(job, seconds=60.0)
    until("it runs", lambda: system.status(job).progress.running == TOTAL, SLOW)
    asked = time.monotonic()
    system.hawk("stop", job)
    assert system.finish(job, SLOW).status == "complete"
    assert time.monotonic() - asked < 60
    system.remove(job)
    asyncio.run(left(namespace))


def test_a_pod_that_is_deleted_is_followed_by_one_that_goes_on(system: ClusterSystem, namespace: str) -> None:
    job = "deleted"
    system.submit_away(job, seconds=4.0)
    until("the server has some that are finished", lambda: len(safe(system.run_dir(job))) >= 3, SLOW)
    kept = set(safe(system.run_dir(job)).values())
    asyncio.run(remove_pods(namespace, job))
    system.kill_server()
    system.start()
    system.complete(job)
    assert kept <= {r.uuid for r in read_results(system.run_dir(job))[0]}
    system.remove(job)
    asyncio.run(left(namespace))


def _output(system: ClusterSystem, *args: str) -> str:
    done = system.hawk(*args, check=False)
    return done.stdout if done.returncode == 0 else ""
