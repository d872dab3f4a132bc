"""Removing what dead processes left in the cluster: pods, Services and policies that no owner there answers for."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hawk.errors import ClusterError
from hawk.sandbox.pod import names

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

KINDS = ("Pod", "Service", "NetworkPolicy")


@dataclass
class Swept:
    """What was removed, or would be, by kind; and pods that stay because their process may live."""

    removed: dict[str, list[str]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


async def sweep_dead(
    cluster: Cluster, *, job: str | None = None, everything: bool = False, dry_run: bool = False
) -> Swept:
    """Remove the sandboxes of processes of this host that have ended.

    Args:
        job: Only those of this job.
        everything: Also those whose process can't be seen from here (of other hosts), unless the cluster has their
            owner and removes them itself.

    Raises:
        ClusterError: The cluster refuses.
    """
    host = names.this_host()
    selector = names.ALL + (f",{names.JOB}={names.label(job)}" if job else "")
    swept = Swept()
    for kind in KINDS:
        items, _ = await cluster.list(kind, labels=selector)
        for item in items:
            name = item["metadata"]["name"]
            if not _abandoned(item, host, everything=everything):
                if kind == "Pod":
                    swept.kept.append(name)
                continue
            if not dry_run:
                with contextlib.suppress(ClusterError):
                    await cluster.delete(kind, name, uid=item["metadata"]["uid"])
            swept.removed.setdefault(kind, []).append(name)
    return swept


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


def _abandoned(item: dict[str, Any], host: str, *, everything: bool) -> bool:
    meta = item["metadata"]
    dead = names.is_dead(str((meta.get("annotations") or {}).get(names.PROCESS, "")), host)
    if dead is None:
        return everything and not meta.get("ownerReferences")
    return dead
