"""Removing what dead processes left in the cluster: pods, Services and policies that no owner there answers for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hawk.kube.leftovers import Found, judged, of_its_age, owner_of, remove_found
from hawk.sandbox.pod import names

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

KINDS = ("Pod", "Service", "NetworkPolicy")
"""What a sandbox is made of."""


async def look(cluster: Cluster, *, job: str | None = None, older_than: float | None = None) -> list[Found]:
    """The sandboxes of a namespace, with what may be removed.

    Args:
        job: Only those of this job.
        older_than: What was made by a process that can't be seen from here (of another host), and that the cluster
            will not remove with its owner, counts as abandoned after so many seconds; None: never.

    Raises:
        ClusterError: The cluster refuses.
    """
    selector = names.ALL + (f",{names.JOB}={names.label(job)}" if job else "")
    host, now = names.this_host(), time.time()
    found = []
    for kind in KINDS:
        items, _ = await cluster.list(kind, labels=selector)
        found += [judged(kind, item, _of_process(item, host, older_than, now)) for item in items]
    return found


async def sweep_dead(cluster: Cluster, *, job: str | None = None) -> list[Found]:
    """Remove the sandboxes of processes of this host that have ended. Returns what was to be removed.

    Args:
        job: Only those of this job.

    Raises:
        ClusterError: The cluster refuses.
    """
    found = [one for one in await look(cluster, job=job) if one.abandoned]
    await remove_found(cluster, found)
    return found


async def remove_all(cluster: Cluster, runner: str) -> None:
    """Delete all that one process has made.

    Raises:
        ClusterError: The cluster refuses.
    """
    for kind in KINDS:
        items, _ = await cluster.list(kind, labels=f"{names.ALL},{names.RUNNER}={runner}")
        for item in items:
            await cluster.delete(kind, item["metadata"]["name"], uid=item["metadata"]["uid"])


async def remove(cluster: Cluster, pod: str) -> bool:
    """Delete one sandbox by its pod's name. Returns False when there is none."""
    found = await cluster.get("Pod", pod)
    if found is None or (found["metadata"].get("labels") or {}).get(names.COMPONENT) != names.SANDBOX:
        return False
    return await cluster.delete("Pod", pod)


def _of_process(item: dict[str, Any], host: str, older_than: float | None, now: float) -> tuple[bool, str]:
    """Whether it is abandoned, and why, or whose it is."""
    process = str((item["metadata"].get("annotations") or {}).get(names.PROCESS, ""))
    dead = names.is_dead(process, host)
    if dead:
        return True, "its process has ended"
    if dead is not None:
        return False, f"of process {process.split('/')[1]}, which lives"
    owner = owner_of(item)
    if owner is not None:
        return False, f"of {owner}, with which the cluster removes it"
    return of_its_age(
        item, f"may be of a process of {process.partition('/')[0] or 'another machine'}", older_than, now
    )
