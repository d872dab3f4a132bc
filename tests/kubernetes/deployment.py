"""A deployment of an overlay on a real cluster, in a namespace of its own, and what a person does with it by kubectl and hawk.

The image of runner and server must be on the nodes (HAWK_KUBE_IMAGE, `hawk image build`). The database's is the overlay's,
or one with `initdb` and `postgres` on its PATH and a user 999: HAWK_TEST_POSTGRES.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from hawk.cli import cluster_checks as look
from hawk.cli import deploy_check, deploy_secrets
from hawk.cli.doctor_checks import Check, State
from hawk.client import HawkClient
from hawk.config.cluster import load_cluster_settings
from hawk.errors import HawkError
from hawk.kube.api import connect
from tests.deploy.conftest import containers, rendered
from tests.kubernetes.conftest import has_cluster
from tests.system import TASKS

T = TypeVar("T")
Object = dict[str, Any]
Change = Callable[[Object], None]

POSTGRES = os.environ.get("HAWK_TEST_POSTGRES", "")
PATIENCE = 240.0
ATTEMPTS = 16

DATABASE = """
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf %s "$POSTGRES_PASSWORD" > /tmp/password
  initdb -E UTF8 --locale=C.UTF-8 -U hawk --pwfile=/tmp/password --auth=scram-sha-256
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  echo "create database hawk" | postgres --single -D "$PGDATA" postgres
fi
chmod 700 "$PGDATA"  # a volume that is mounted again has been opened to its group
exec postgres -c "listen_addresses=*" -c unix_socket_directories=/tmp
"""
"""What PostgreSQL's own image does when it starts, for images that only have its programs."""


def kubectl(*args: str, stdin: str = "", check: bool = True) -> str:
    done = subprocess.run(["kubectl", *args], input=stdin, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


def until(what: str, true: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Wait until something is so. What it raises counts as no: the server may be away."""
    end = time.monotonic() + seconds
    said: object = None
    while time.monotonic() < end:
        try:
            if found := true():
                return found
        except (HawkError, AssertionError, subprocess.TimeoutExpired) as ex:
            said = ex
        time.sleep(0.5)
    raise AssertionError(f"it did not come about that {what}: {said}")


def moved(directory: str, namespace: str) -> list[Object]:
    """A kustomization's objects for another namespace."""
    found = []
    for one in rendered(directory):
        if one["kind"] != "Namespace":
            copy: Object = json.loads(json.dumps(one))
            copy["metadata"]["namespace"] = namespace
            for subject in copy.get("subjects", ()):
                subject["namespace"] = namespace
            found.append(copy)
    return found


def small(one: Object, image: str) -> None:
    """With images that the nodes have, and asking for less than they may."""
    if one["kind"] == "PersistentVolumeClaim":
        one["spec"]["resources"]["requests"]["storage"] = "1Gi"
    if one["kind"] not in ("Deployment", "StatefulSet"):
        return
    pod = one["spec"]["template"]["spec"]
    pod.pop("imagePullSecrets", None)
    for container in containers(pod):
        container["resources"]["requests"] = {"cpu": "20m", "memory": "64Mi"}
        if one["kind"] == "Deployment":
            container["image"] = image
        elif POSTGRES:
            container |= {"image": POSTGRES, "command": ["sh", "-ec", DATABASE]}
        for variable in container["env"]:
            if variable["name"] == "HAWK_KUBE_IMAGE":
                variable["value"] = image
            if variable["name"] == "HAWK_KUBE_PULL_SECRETS":
                variable["value"] = ""


KNOCK = """
import json, socket, sys
found = {}
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
        found[place] = True
    except OSError:
        found[place] = False
print(json.dumps(found))
"""

"""Tries to connect to each place that it is given."""


async def lacking(image: str) -> list[Check]:
    """What the cluster itself would have to have."""
    settings = load_cluster_settings({"HAWK_KUBE_IMAGE": image})
    async with await connect(namespace="default") as cluster:
        found = [*await look.image(cluster, settings), *await deploy_check.storage(cluster)]
    return [check for check in found if check.state is State.MISSING]


def needed() -> str:
    """The image; skips where the cluster lacks something."""
    image = os.environ.get("HAWK_TEST_RUNNER_IMAGE") or load_cluster_settings().image
    missing = asyncio.run(lacking(image)) if has_cluster() else []
    if missing:
        pytest.skip(f"NOT TESTED: the server on a cluster: {missing[0].name}: {missing[0].detail}")
    return image


class Deployment:
    """An overlay in a namespace.

    Args:
        namespace: Made, and taken away with everything in it by `close`.
        overlay: `single-node` or `production`.
        image: Of server, middlemen and runners.
        home: Of the command line that asks it.
        change: What is changed in each object besides, as a person's own overlay would.
    """

    def __init__(
        self, namespace: str, overlay: str, image: str, home: Path, change: Change = lambda _: None
    ) -> None:
        self.namespace, self.image, self.home = namespace, image, home
        self.objects = moved(f"overlays/{overlay}", namespace)
        for one in self.objects:
            small(one, image)
            change(one)
        kubectl("create", "namespace", namespace)
        # all of it meets the strictest level
        kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")

    def kubectl(self, *args: str, stdin: str = "", check: bool = True) -> str:
        return kubectl("-n", self.namespace, *args, stdin=stdin, check=check)

    def apply(self, database: str | None = None) -> None:
        """What the docs say: Secrets, then the overlay."""
        self.kubectl("create", "-f", "-", stdin=deploy_secrets.manifest(database))
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(self.objects))

    def ready(self) -> None:
        for one in self.objects:
            if one["kind"] in ("Deployment", "StatefulSet"):
                name = f"{one['kind'].lower()}/{one['metadata']['name']}"
                self.kubectl("rollout", "status", name, f"--timeout={PATIENCE:.0f}s")

    def close(self) -> None:
        # a namespace waits for as long as its pods might take to end, ten minutes, even when they take a second
        self.kubectl("delete", "deployments,statefulsets", "--all", "--wait=false", check=False)
        self.kubectl("delete", "pods", "--all", "--grace-period=1", check=False)
        kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--wait=false")

    # --- its pods

    def pods(self, selector: str) -> list[Object]:
        """Those that are not on their way out, the oldest first."""
        found = json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
        alive = [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]
        return sorted(alive, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def names(self, component: str) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods(f"app.kubernetes.io/component={component}")]

    def runners(self, job: str) -> list[str]:
        return [
            pod["metadata"]["name"] for pod in self.pods(f"hawk/job={job},app.kubernetes.io/component=runner")
        ]

    def knocks(self, name: str, labels: dict[str, str], *places: str) -> dict[str, bool]:
        """Which places a pod with such labels can connect to."""
        pod = f"knock-{name}"
        security = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        container = {
            "name": "main",
            "image": self.image,
            "command": ["python", "-c", KNOCK, *places],
            "securityContext": security,
            "readinessProbe": {"exec": {"command": ["false"]}},  # never in a Service
        }
        spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "labels": labels},
            "spec": spec,
        }
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        try:
            phase = ("get", "pod", pod, "-o", "jsonpath={.status.phase}")
            until("it has knocked", lambda: self.kubectl(*phase) in ("Succeeded", "Failed"), 60)
            found: dict[str, bool] = json.loads(self.kubectl("logs", pod))
            return found
        finally:
            self.kubectl("delete", "pod", pod, "--wait=false")

    # --- its server, by a port that kubectl forwards, as the docs have it

    @contextlib.contextmanager
    def client(self) -> Iterator[HawkClient]:
        with self._forwarded() as url, HawkClient(url, self.token()) as client:
            yield client

    def token(self) -> str:
        line = ("get", "secret", "hawk-server", "-o", "jsonpath={.data.token}")
        return b64decode(self.kubectl(*line)).decode()

    def hawk(self, *args: str, timeout: float = 120.0) -> str:
        """What a command prints."""
        with self._forwarded() as url:
            environ = {name: value for name, value in os.environ.items() if not name.startswith("HAWK_")}
            environ |= {
                "HAWK_HOME": str(self.home),
                "HAWK_API_URL": url,
                "HAWK_ACCESS_TOKEN": self.token(),
                "HAWK_ENGINE": "kubernetes",
            }
            done = subprocess.run(
                [sys.executable, "-m", "hawk.cli", *args],
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextlib.contextmanager
    def _forwarded(self) -> Iterator[str]:
        line = ["kubectl", "-n", self.namespace, "port-forward", "service/hawk-server", ":8080"]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            said = process.stdout.readline()  # Forwarding from 127.0.0.1:41234 -> 8080
            assert "127.0.0.1:" in said, "no server to forward to"
            yield f"http://{said.split()[2]}"
        finally:
            process.terminate()
            process.wait()

    # --- its jobs

    def submit(self, job: str, seconds: float = 0.5) -> None:
        """An eval set of sixteen attempts without models or sandboxes, from a directory of this machine."""
        directory = self.home / job
        directory.mkdir(parents=True)
        shutil.copy(TASKS, directory)
        args = {"ledger": f"/tmp/{job}", "samples": 4, "seconds": seconds}
        config = {
            "tasks": [
                {"file": TASKS.name, "items": [{"name": name, "args": args} for name in ("left", "right")]}
            ],
            "models": [{"file": TASKS.name, "items": [{"name": "counted/m"}]}],
            "epochs": 2,
            "middleman": {"off": True},
            "sandbox": "local",
            "runner": {"cpu": "200m", "memory": "512Mi"},
        }
        (directory / "evals.yaml").write_text(yaml.safe_dump(config))
        self.hawk("eval-set", str(directory / "evals.yaml"), "--name", job)

    def status(self, job: str) -> Any:
        with self.client() as client:
            return client.status(job).data

    def complete(self, job: str) -> None:
        until(f"{job} ends", lambda: self.status(job).status in ENDED)
        end = self.status(job)
        assert (end.status, end.reason, end.progress.completed) == ("complete", None, ATTEMPTS)


ENDED = ("complete", "failed", "stopped", "cancelled")


def fresh(prefix: str) -> str:
    """A name for a namespace."""
    return f"{os.environ.get('HAWK_TEST_NAMESPACE', 'hawk-test')}-{prefix}-{secrets.token_hex(3)}"
