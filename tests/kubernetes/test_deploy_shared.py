"""A deployment whose runners write their run directories themselves, on a volume that they share with the server.

What it takes: `tests.kubernetes.deployment`, and a default storage class whose claims may be ReadWriteMany.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
import yaml

from tests.deploy.conftest import DEPLOY
from tests.kubernetes.deployment import ATTEMPTS, Deployment, fresh, needed, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SOUGHT = "grep -o ' /hawk/runs[^ ]*' /proc/mounts; ls /hawk/runs/other; touch /hawk/runs/writes/mine && echo written"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    image, place = needed(), tmp_path_factory.mktemp("overlay")
    mine = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "hawk",
        "resources": [os.path.relpath(DEPLOY / "overlays/single-node", place)],
        "components": [os.path.relpath(DEPLOY / "shared-volume", place)],
    }
    (place / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    overlay = os.path.relpath(place, DEPLOY / "overlays")
    found = Deployment(fresh("shared"), overlay, image, tmp_path_factory.mktemp("home"))
    try:
        found.apply()
        found.ready()
        yield found
    finally:
        found.close()


def in_server(deployed: Deployment, *command: str) -> str:
    server = deployed.names("server")[-1]
    return deployed.kubectl("exec", server, "-c", "server", "--", *command)


def test_a_runner_writes_where_the_server_reads_and_sees_no_other_job(deployed: Deployment) -> None:
    job = "writes"
    deployed.submit("other")
    deployed.complete("other")
    deployed.submit(job, seconds=4.0)
    until("it is seen to run", lambda: deployed.status(job).progress.running)
    (runner,) = deployed.runners(job)
    said = deployed.kubectl("exec", runner, "-c", "runner", "--", "sh", "-c", SOUGHT).split()
    assert said == [f"/hawk/runs/{job}", "written"]
    assert in_server(deployed, "ls", f"/hawk/runs/{job}/mine")
    deployed.kubectl("delete", "pod", deployed.names("server")[-1], "--grace-period=0", "--force")
    deployed.ready()
    deployed.complete(job)
    report = json.loads(deployed.hawk("report", job, "--json"))
    assert report
    written = in_server(deployed, "find", f"/hawk/runs/{job}/attempts", "-name", "result.json").split()
    assert len(written) == ATTEMPTS
    assert in_server(deployed, "stat", "-c", "%u", written[0]) == "10001\n"


def test_a_job_that_is_stopped_hears_of_it_by_a_file(deployed: Deployment) -> None:
    deployed.submit("halts", seconds=120.0)
    until("it runs", lambda: deployed.status("halts").progress.running)
    deployed.hawk("stop", "halts")
    until("it has stopped", lambda: deployed.status("halts").status.terminal)
    assert deployed.status("halts").reason == "stopped (score)"


def test_attempts_are_scored_again_from_the_volume(deployed: Deployment) -> None:
    deployed.hawk("rescore", "other", "--name", "again")
    deployed.complete("again")
    results = in_server(deployed, "sh", "-c", "cat /hawk/runs/again/attempts/*/*/result.json")
    assert results.count('"rescored_from":"other"') == ATTEMPTS


def test_what_is_deleted_is_gone_from_the_volume(deployed: Deployment) -> None:
    deployed.hawk("delete", "again", "-y")
    until("its directory is gone", lambda: "again" not in in_server(deployed, "ls", "/hawk/runs").split(), 60)
