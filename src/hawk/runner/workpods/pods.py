"""The pod of one worker in the cluster: made, found again, looked at, removed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hawk.core.cluster import WORKER, Pod
from hawk.core.cluster_why import PodEnd, ending
from hawk.errors import ClusterError, ConfigError
from hawk.kube import names, parsing
from hawk.kube.api import Cluster
from hawk.kube.problems import Reason, reason_of
from hawk.store.rundir import storage_error

CONTAINER = "worker"
INDEX, GENERATION = "hawk/worker", "hawk/generation"
"""Labels of a worker's pod."""

GENTLE = 5
"""Seconds that a pod which is removed has to end by itself."""

Manifest = dict[str, Any]


class Owner(NamedTuple):
    """The runner's Job, with which its workers' pods go."""

    name: str
    uid: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Owner:
        """As the runner's pod knows it. Raises: ConfigError."""
        try:
            name = json.loads(environ["HAWK_KUBE_OWNER"])["name"]
            return cls(str(name), environ["HAWK_KUBE_OWNER_UID"])
        except (KeyError, ValueError, TypeError) as ex:
            raise ConfigError(
                "workers can have pods of their own only in the pod of a Job of Hawk's."
            ) from ex


def read_template(path: Path) -> Manifest:
    """The pod of any worker of the job, as the engine made it (`worker-pod.json`). Raises: StorageError, ConfigError."""
    try:
        found: Manifest = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as ex:
        raise storage_error(path, ex) from ex
    except msgspec.MsgspecError as ex:
        raise ConfigError(f"{path} is no pod: {ex}.") from ex
    return found


def manifest(template: Manifest, owner: Owner, index: int, name: str) -> Manifest:
    """The pod of a worker. Pure."""
    made: Manifest = {"apiVersion": "v1", "kind": "Pod", **json.loads(json.dumps(template))}
    meta = made["metadata"]
    meta["name"] = name
    meta["labels"] = {**meta["labels"], INDEX: str(index)}
    meta["ownerReferences"] = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": owner.name,
            "uid": owner.uid,
            "controller": False,
            "blockOwnerDeletion": True,
        }
    ]
    container = made["spec"]["containers"][0]
    container["env"] = [
        *container["env"],
        {"name": "HAWK_POD_WORKER", "value": str(index)},
        {"name": "HAWK_KUBE_OWNER", "value": json.dumps(_ITSELF)},
    ]
    return made


_ITSELF = {"apiVersion": "v1", "kind": "Pod", "name": "$(HAWK_POD_NAME)", "uid": "$(HAWK_POD_UID)"}
"""The owner of a worker's sandboxes is its pod, with which they go. Kubernetes fills in what is between parentheses."""


class Pods:
    """The pods of one job's workers, in one generation.

    Args:
        template: As the engine made it.
    """

    def __init__(self, cluster: Cluster, template: Manifest, owner: Owner) -> None:
        self._cluster, self._template, self._owner = cluster, template, owner
        labels = template["metadata"]["labels"]
        self._selector = f"{names.JOB}={labels[names.JOB]},{names.COMPONENT}={WORKER}"
        self._generation = labels[GENERATION]

    async def living(self) -> dict[int, str]:
        """Names of the pods of this generation that have not ended, by worker: the newest of each. Raises: ClusterError."""
        found, _ = await self._cluster.list("Pod", labels=f"{self._selector},{GENERATION}={self._generation}")
        known: dict[int, str] = {}
        for item in sorted(found, key=lambda item: str(item["metadata"].get("creationTimestamp"))):
            pod, index = parsing.pod(item), str(item["metadata"]["labels"].get(INDEX))
            if pod.active and pod.deleting is None and index.isdecimal():
                known[int(index)] = pod.name
        return known

    def new_name(self, index: int) -> str:
        """A name for the next pod of a worker."""
        mark = secrets.token_hex(3)
        return f"{names.fit(f'{self._owner.name}-w{index}', names.LONGEST - len(mark) - 1)}-{mark}"

    async def make(self, index: int, name: str) -> None:
        """Make the pod of a worker; those that it had before are removed.

        Raises:
            ClusterError: The cluster refuses (`reason` quota: it may not later), or can't be reached.
        """
        found, _ = await self._cluster.list("Pod", labels=f"{self._selector},{INDEX}={index}")
        for item in found:
            if item["metadata"]["name"] != name:
                await self._cluster.delete("Pod", item["metadata"]["name"], grace=0)
        await self._cluster.create(manifest(self._template, self._owner, index, name), exist_ok=True)

    async def look(self, name: str) -> Pod | None:
        """A pod as it is now, with its events while it does not run; None: there is none. Raises: ClusterError."""
        item = await self._cluster.get("Pod", name)
        if item is None:
            return None
        pod = parsing.pod(item)
        if pod.phase == "Pending":
            with contextlib.suppress(ClusterError):
                events, _ = await self._cluster.list(
                    "Event", fields=f"involvedObject.uid={pod.uid}", patience=5, limit=50
                )
                pod.events = parsing.newest(map(parsing.event, events))
        return pod

    async def end_of(self, name: str, seconds: float) -> PodEnd | None:
        """How a pod has ended; None: it goes on, as far as can be seen in some seconds. One that is not there was deleted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(ClusterError):
                        pod = await self.look(name)
                        if pod is None:
                            pod = Pod(name, removed="now")
                        if (end := ending(pod, CONTAINER)) is not None:
                            return end
                    await asyncio.sleep(0.25)
        return None

    async def remove(self, name: str, grace: int = GENTLE) -> None:
        """Delete a pod. Raises: ClusterError."""
        await self._cluster.delete("Pod", name, grace=grace)


def for_want_of_room(ex: ClusterError) -> bool:
    """Whether a pod was refused that may be taken later."""
    return reason_of(ex) in (Reason.QUOTA, Reason.UNREACHABLE, Reason.BUSY)
