"""Removing all that a job has in the cluster, and waiting until none of it is left."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from hawk.core.text import parse_time, plural
from hawk.engine.kubernetes import names
from hawk.errors import ClusterError

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

KINDS = ("Job", "Pod", "Secret", "ConfigMap", "Service", "NetworkPolicy", "PersistentVolumeClaim")
"""What a job may have, in the order in which it goes: first what would make more of it."""

PATIENCE = 60.0
"""Seconds in which all of it has to be gone."""

GENTLE = 2
"""Seconds that processes have to end by themselves."""

FORCE = 20.0
"""Seconds after which pods are struck off that their node does not let go of: it may be gone."""

_log = logging.getLogger(__name__)


async def remove_all(cluster: Cluster, job_id: str, *, patience: float = PATIENCE) -> int:
    """Delete everything that bears the job's label, until nothing does: also what is being made meanwhile.

    Returns:
        How many objects there were.

    Raises:
        ClusterError: The cluster can't be asked, or something does not go.
    """
    began = time.monotonic()
    seen: set[str] = set()
    empty = 0
    refused: set[str] = set()
    while True:
        found = await _list(cluster, job_id, refused)
        seen.update(str(item["metadata"]["uid"]) for _, item in found)
        empty = 0 if found else empty + 1
        if empty >= (2 if seen else 1):  # a pod that was asked for just before its runner ended comes late
            return len(seen)
        lasted = time.monotonic() - began
        if lasted > patience:
            left = ", ".join(f"{kind} {item['metadata']['name']}" for kind, item in found[:5])
            raise ClusterError(
                f"{plural(len(found), 'object')} of {job_id} did not go within {patience:.0f} s: {left}.",
                remedy=f"kubectl get all -l {names.of_job(job_id)}, then hawk delete {job_id} again",
                reason="busy",
            )
        await _delete(cluster, job_id, found, grace=0 if lasted > FORCE else GENTLE)
        await asyncio.sleep(min(1.0, 0.2 + lasted / 10))


async def _list(cluster: Cluster, job_id: str, refused: set[str]) -> list[tuple[str, dict[str, Any]]]:
    async def one(kind: str) -> list[tuple[str, dict[str, Any]]]:
        try:
            items, _ = await cluster.list(kind, labels=names.of_job(job_id))
        except ClusterError as ex:
            if ex.fields.get("status") == 404:  # the namespace itself has gone
                return []
            if ex.fields.get("status") != 403 or kind in ("Job", "Pod"):
                raise
            if kind == "Secret":  # a list would show their content, and so may be forbidden
                return await _named_secrets(cluster, job_id)
            refused.add(kind)  # who may not list them can't have made them
            return []
        return [(kind, item) for item in items]

    found = await asyncio.gather(*(one(kind) for kind in KINDS if kind not in refused))
    return [pair for part in found for pair in part]


async def _named_secrets(cluster: Cluster, job_id: str) -> list[tuple[str, dict[str, Any]]]:
    found = [
        await cluster.get("Secret", name) for name in (names.secret_name(job_id), names.keys_name(job_id))
    ]
    return [("Secret", item) for item in found if item is not None]


async def _delete(
    cluster: Cluster, job_id: str, found: list[tuple[str, dict[str, Any]]], *, grace: int
) -> None:
    for kind in KINDS:
        there = [item for its, item in found if its == kind]
        fresh = [item for item in there if _lasts(item["metadata"], grace)]
        if not fresh:
            continue
        try:
            if kind == "Pod" and len(fresh) > 3:
                await cluster.delete_all(kind, labels=names.of_job(job_id), grace=grace)
                continue
            for item in fresh:
                meta = item["metadata"]
                await cluster.delete(
                    kind, meta["name"], uid=meta["uid"], grace=grace if kind == "Pod" else None
                )
        except ClusterError as ex:
            if ex.fields.get("status") not in (403, 404, 409):
                raise
            _log.warning("job %s: %s", job_id, ex.message)


def _lasts(meta: dict[str, Any], grace: int) -> bool:
    """Nobody has deleted it yet, or with more patience than ours: the cluster gives a pod its own."""
    return (
        not meta.get("deletionTimestamp")
        or int(meta.get("deletionGracePeriodSeconds") or 0) > grace
        or grace == 0
    )


async def remove_job(cluster: Cluster, name: str, uid: str, *, patience: float = 90.0) -> None:
    """Delete a Job with what it owns, and wait until its name is free.

    Raises:
        ClusterError: It does not go.
    """
    until = time.monotonic() + patience
    while True:
        there = await cluster.get("Job", name)
        if there is None or there["metadata"]["uid"] != uid:
            return
        if not there["metadata"].get("deletionTimestamp"):
            await cluster.delete("Job", name, uid=uid, propagation="Foreground")
        if time.monotonic() > until:
            raise ClusterError(
                f"The Job {name} does not go: something that it owns is held back.",
                remedy=f"kubectl describe job {name}",
                reason="busy",
            )
        await asyncio.sleep(0.2)


def age(item: dict[str, Any], now: float) -> float:
    """Seconds since an object was made, at a time of the API server's clock (seconds since the epoch)."""
    made = parse_time(item["metadata"].get("creationTimestamp"))
    return now - made.timestamp() if made is not None else 0.0
