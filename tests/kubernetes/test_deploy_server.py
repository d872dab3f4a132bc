"""The server on a cluster: `overlays/single-node` from nothing to a server that answers, and a middleman that two share.

The image of runner and server must be on the nodes (HAWK_KUBE_IMAGE, `hawk image build`). The database's may be any with
`initdb` and `postgres` on its PATH and a user 999: HAWK_TEST_POSTGRES.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from hawk import __version__
from hawk.cli import cluster_checks as look
from hawk.cli import deploy_check, deploy_secrets
from hawk.cli.doctor_checks import State
from hawk.config.cluster import load_cluster_settings
from hawk.kube.api import Cluster, connect
from tests.kubernetes.test_deploy_namespace import kubectl, moved

POSTGRES = os.environ.get("HAWK_TEST_POSTGRES", "")
PATIENCE = 180.0

DATABASE = """
printf %s "$POSTGRES_PASSWORD" > /tmp/password
initdb -E UTF8 --locale=C.UTF-8 -U hawk --pwfile=/tmp/password --auth=scram-sha-256
echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
echo "create database hawk" | postgres --single -D "$PGDATA" postgres
exec postgres -c "listen_addresses=*" -c unix_socket_directories=/tmp
"""
"""What PostgreSQL's own image does when it starts, for images that only have its programs."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def objects(namespace: str, image: str) -> str:
    """The overlay without volumes that stay, with images that the nodes have."""
    found = []
    for one in yaml.safe_load_all(moved("overlays/single-node", namespace)):
        if one["kind"] == "PersistentVolumeClaim":
            continue
        if one["kind"] in ("Deployment", "StatefulSet", "Job"):
            _lighten(one, image)
        found.append(one)
    return yaml.safe_dump_all(found)


def _lighten(one: dict[str, Any], image: str) -> None:
    pod = one["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["resources"]["requests"] = {"cpu": "10m", "memory": "64Mi"}
    if one["kind"] == "StatefulSet":
        del one["spec"]["volumeClaimTemplates"]
        pod["volumes"].append({"name": "data", "emptyDir": {}})
        container |= {"image": POSTGRES, "command": ["sh", "-ec", DATABASE]}
        return
    container["image"] = image
    for variable in container["env"]:
        if variable["name"] == "HAWK_KUBE_IMAGE":
            variable["value"] = image
    for volume in pod["volumes"]:
        if "persistentVolumeClaim" in volume:
            del volume["persistentVolumeClaim"]
            volume["emptyDir"] = {}


@pytest_asyncio.fixture(loop_scope="function")
async def deployed(namespace: str) -> AsyncIterator[Cluster]:
    """The overlay in a namespace that enforces Pod Security `restricted`: all of its pods meet that."""
    settings = load_cluster_settings()
    async with await connect(namespace=namespace) as cluster:
        (image,) = await look.image(cluster, settings)
        if image.state is State.MISSING or not POSTGRES:
            pytest.skip(
                f"NOT TESTED: the server on a cluster: {image.detail}; HAWK_TEST_POSTGRES={POSTGRES!r}"
            )
        label = {"pod-security.kubernetes.io/enforce": "restricted"}
        await cluster.patch("Namespace", namespace, {"metadata": {"labels": label}})
        text = objects(namespace, settings.image)
        kubectl("apply", "-n", namespace, "-f", "-", stdin=deploy_secrets.manifest(None))
        kubectl("apply", "-n", namespace, "-f", "-", stdin=text)
        try:
            yield cluster
        finally:
            kubectl("delete", "-n", namespace, "--ignore-not-found", "--wait=false", "-f", "-", stdin=text)
            kubectl("delete", "-n", namespace, "secret", *deploy_secrets.NAMES)
            await cluster.delete_all("Pod", labels="app.kubernetes.io/name=hawk", grace=0)
            none = {"pod-security.kubernetes.io/enforce": None}
            await cluster.patch("Namespace", namespace, {"metadata": {"labels": none}})


async def ready(cluster: Cluster, kind: str, name: str, count: int) -> None:
    """Wait until so many pods of a Deployment or StatefulSet are ready."""
    until = time.monotonic() + PATIENCE
    while True:
        found = await cluster.get(kind, name) or {}
        status = found.get("status") or {}
        current = status.get("observedGeneration") == (found.get("metadata") or {}).get("generation")
        if current and status.get("readyReplicas") == count and not status.get("unavailableReplicas"):
            return
        assert time.monotonic() < until, (name, status)
        await asyncio.sleep(0.5)


async def server_pod(cluster: Cluster) -> str | None:
    """The server's pod that is ready; None while there is none."""
    pods, _ = await cluster.list("Pod", labels="app.kubernetes.io/component=server")
    for pod in pods:
        ready = {one["type"]: one["status"] for one in (pod.get("status") or {}).get("conditions") or ()}
        if not pod["metadata"].get("deletionTimestamp") and ready.get("Ready") == "True":
            return str(pod["metadata"]["name"])
    return None


async def on_the_server(cluster: Cluster, *command: str) -> str:
    """The output of a command in the server's pod, once it works: a Service follows its pods a moment later."""
    until = time.monotonic() + PATIENCE
    while True:
        name, said = await server_pod(cluster), "no server is ready"
        if name is not None:
            line = ["env", "HAWK_API_URL=http://hawk-server:8080", *command]
            done = await cluster.exec(name, line, timeout=60)
            if done.code == 0:
                return done.stdout.decode()
            said = done.stderr.decode()
        assert time.monotonic() < until, said
        await asyncio.sleep(1)


async def test_the_server_answers_and_two_middlemen_share(deployed: Cluster) -> None:
    await ready(deployed, "StatefulSet", "hawk-postgres", 1)
    await ready(deployed, "Deployment", "hawk-middleman", 2)
    await ready(deployed, "Deployment", "hawk-server", 1)
    job = await deployed.get("Job", f"hawk-migrate-{__version__.replace('.', '-')}") or {}
    assert (job.get("status") or {}).get("failed") is None or (job.get("status") or {}).get("succeeded") == 1
    assert "http://hawk-server:8080" in await on_the_server(deployed, "hawk", "version")
    assert json.loads(await on_the_server(deployed, "hawk", "list", "eval-sets", "--json")) is not None
    shared = json.loads(await on_the_server(deployed, "hawk", "middleman", "status", "--json"))["shared"]
    assert (shared["replicas"], shared["problem"]) == (2, None)
    secrets = await deploy_check.secrets(deployed)
    assert {check.name for check in secrets if check.state is not State.OK} == {"secret hawk-provider-keys"}
    # Another server takes over: the token, the database and the address are the same.
    first = await server_pod(deployed)
    await deployed.delete_all("Pod", labels="app.kubernetes.io/component=server", grace=1)
    assert "http://hawk-server:8080" in await on_the_server(deployed, "hawk", "version")
    assert await server_pod(deployed) != first
