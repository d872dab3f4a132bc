"""The server on a cluster: `overlays/single-node` from nothing to a first eval set, and what it survives.

One deployment serves all tests below. What it takes: `tests.kubernetes.deployment`. HAWK_TEST_NETWORK_POLICIES=1 says that
the cluster enforces network policies, which no API tells.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from hawk.cli import deploy_check
from hawk.cli.doctor_checks import State
from tests.kubernetes.deployment import Deployment, fresh, kubectl, needed, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"

ASKS = """
import sys, time, urllib.request
failed, until = [], time.monotonic() + float(sys.argv[1])
print("asking", flush=True)
asked = 0
while time.monotonic() < until:
    asked += 1
    try:
        urllib.request.urlopen("http://hawk-middleman:8080/health/ready", timeout=5).read()
    except OSError as ex:
        failed.append(str(ex))
    time.sleep(0.05)
print(asked, len(failed), failed[:3])
"""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    found = Deployment(fresh("node"), "single-node", needed(), tmp_path_factory.mktemp("home"))
    try:
        found.apply()
        found.ready()
        yield found
    finally:
        found.close()


def test_it_is_all_there_and_answers(deployed: Deployment) -> None:
    server = deployed.names("server")[0]
    done = kubectl("-n", deployed.namespace, "exec", server, "-c", "server", "--", "id", "-u")
    assert done == "10001\n"
    assert deployed.hawk("list", "eval-sets") is not None
    checks = asyncio.run(deploy_check.survey(os.environ, deployed.namespace, None, run_pod=True))
    unwell = {check.name: check.state for check in checks if check.state is not State.OK}
    unwell.pop("network policies", None)  # no API tells
    # `restricted`: no sandboxes of root; and nobody gave a provider's key
    assert unwell == {"root sandboxes": State.WARN, "secret hawk-provider-keys": State.WARN}
    line = ("exec", server, "-c", "server", "--", "hawk", "middleman", "status", "--json")
    shared = json.loads(deployed.kubectl(*line))["shared"]
    assert (shared["replicas"], shared["problem"]) == (2, None)


def test_a_job_runs_on_while_its_server_is_killed_and_is_adopted_by_the_next(deployed: Deployment) -> None:
    job = "outlives"
    deployed.submit(job, seconds=6.0)
    until("it runs", lambda: deployed.status(job).progress.running)
    (runner,) = deployed.runners(job)
    (before,) = deployed.names("server")
    deployed.kubectl("delete", "pod", before, "--grace-period=0", "--force")
    until("another server is there", lambda: deployed.names("server")[-1:] not in ([], [before]))
    deployed.ready()
    assert deployed.status(job).progress.total == 16
    assert deployed.runners(job) in ([runner], [])  # the same one, or it is done
    deployed.complete(job)
    assert deployed.hawk("report", job)
    deployed.hawk("delete", job, "-y")
    until("nothing of it is left", lambda: deployed.pods(f"hawk/job={job}") == [], 60)


def test_requests_go_on_while_a_middleman_is_taken_away(deployed: Deployment) -> None:
    server = deployed.names("server")[-1]
    line = ["exec", server, "-c", "server", "--", "python", "-c", ASKS, "12"]
    asking = subprocess.Popen(
        ["kubectl", "-n", deployed.namespace, *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert asking.stdout is not None
    assert asking.stdout.readline() == "asking\n"
    deployed.kubectl("delete", "pod", deployed.names("middleman")[0], "--wait=false")
    said = asking.communicate(timeout=60)[0]
    asked, failed = (int(word) for word in said.split()[:2])
    assert asked > 20
    assert failed == 0, said
    deployed.kubectl("rollout", "status", "deployment/hawk-middleman", "--timeout=120s")


def test_one_middleman_always_stays_when_nodes_are_drained(deployed: Deployment) -> None:
    def evict(pod: str) -> str:
        meta = {"name": pod, "namespace": deployed.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"/api/v1/namespaces/{deployed.namespace}/pods/{pod}/eviction?dryRun=All"
        return kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body), check=False)

    first, second = deployed.names("middleman")
    assert '"status":"Success"' in evict(first).replace(" ", "")
    deployed.kubectl("scale", "deployment/hawk-middleman", "--replicas=1")
    try:
        until("one is left", lambda: len(deployed.names("middleman")) == 1, 60)
        (left,) = deployed.names("middleman")
        assert evict(left) == ""  # refused: it would violate the budget
    finally:
        deployed.kubectl("scale", "deployment/hawk-middleman", "--replicas=2")
        deployed.kubectl("rollout", "status", "deployment/hawk-middleman", "--timeout=120s")
    assert second


def test_another_tag_is_let_in(deployed: Deployment) -> None:
    """`kubectl apply` of the overlay with another tag, in which nothing is changed that can't be."""
    text = yaml.safe_dump_all(deployed.objects).replace(deployed.image, f"{deployed.image}-next")
    said = deployed.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)
    assert "deployment.apps/hawk-server configured" in said
    assert "deployment.apps/hawk-middleman configured" in said


def test_a_restart_of_everything_leaves_what_there_was(deployed: Deployment) -> None:
    deployed.submit("kept")
    deployed.complete("kept")
    deployed.kubectl("rollout", "restart", "statefulset,deployment")
    deployed.ready()
    listed = until("it is listed", lambda: deployed.hawk("list", "eval-sets", "--json"))
    assert "kept" in listed
    deployed.hawk("delete", "kept", "-y")


@pytest.mark.skipif(
    not os.environ.get("HAWK_TEST_NETWORK_POLICIES"), reason="NOT TESTED: no HAWK_TEST_NETWORK_POLICIES=1"
)
def test_who_reaches_whom(deployed: Deployment) -> None:
    server, middleman, database = ("hawk-server:8080", "hawk-middleman:8080", "hawk-postgres:5432")
    callers = {
        "stranger": {},
        "runner": {NAME: "hawk", COMPONENT: "runner"},
        "server": {NAME: "hawk", COMPONENT: "server"},
        "impostor": {COMPONENT: "server"},
    }
    found = {
        name: deployed.knocks(name, labels, server, middleman, database) for name, labels in callers.items()
    }
    assert found["stranger"] == {
        server: True,
        middleman: False,
        database: False,
    }  # the server asks for its token
    assert found["runner"] == {server: True, middleman: True, database: False}
    assert found["server"] == {server: True, middleman: True, database: True}
    assert found["impostor"] == found["stranger"]
