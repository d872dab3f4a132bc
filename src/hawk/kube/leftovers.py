"""What Hawk has left in a namespace, judged: who answers for it, and what may be removed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hawk.core.text import parse_time
from hawk.errors import ClusterError
from hawk.kube.names import JOB, NAME
from hawk.kube.problems import Reason, reason_of

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

_JOBS = f"{NAME}=hawk,{JOB}"
"""Selects all that belongs to jobs."""


@dataclass(frozen=True)
class Found:
    """An object of ours.

    Attributes:
        created: ISO 8601, by the API server's clock; empty when it does not say.
        abandoned: Nobody answers for it: it may be removed.
        why: Why it may be, or whose it is, in words.
    """

    kind: str
    name: str
    uid: str
    created: str
    abandoned: bool
    why: str


def judged(kind: str, item: dict[str, Any], verdict: tuple[bool, str]) -> Found:
    """An object, with whether it is abandoned, and why, or whose it is."""
    meta = item["metadata"]
    return Found(
        kind, str(meta["name"]), str(meta["uid"]), str(meta.get("creationTimestamp") or ""), *verdict
    )


async def look_at_secrets(cluster: Cluster, *, older_than: float | None = None) -> list[Found]:
    """The Secrets of jobs: abandoned is one that belongs to no Job, of a job that has none; nothing where they may not
    be listed.

    Args:
        older_than: Seconds after which; None: never.

    Raises:
        ClusterError: The cluster refuses.
    """
    try:
        items, _ = await cluster.list("Secret", labels=_JOBS)
        jobs, _ = await cluster.list("Job", labels=_JOBS)
    except ClusterError as ex:
        if reason_of(ex) == Reason.FORBIDDEN:
            return []
        raise
    known = {job["metadata"]["labels"][JOB] for job in jobs}
    now = time.time()
    return [judged("Secret", item, _of_job(item, known, older_than, now)) for item in items]


async def remove_found(cluster: Cluster, found: Sequence[Found]) -> list[str]:
    """Delete objects that are still the same. Returns what could not be, in words."""
    failed = []
    for one in found:
        try:
            await cluster.delete(one.kind, one.name, uid=one.uid)
        except ClusterError as ex:
            failed.append(f"{one.kind} {one.name}: {ex.message}")
    return failed


def _of_job(item: dict[str, Any], jobs: set[str], older_than: float | None, now: float) -> tuple[bool, str]:
    owner = owner_of(item)
    if owner is not None:
        return False, f"of {owner}, with which the cluster removes it"
    job = str((item["metadata"].get("labels") or {}).get(JOB, ""))
    if job in jobs:
        return False, f"of the job {job}"
    return of_its_age(item, f"may be of the job {job}, which is about to begin", older_than, now)


def owner_of(item: dict[str, Any]) -> str | None:
    """With what the cluster removes it."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((f"{owner.get('kind')} {owner.get('name')}" for owner in owners), None)


def of_its_age(item: dict[str, Any], whose: str, older_than: float | None, now: float) -> tuple[bool, str]:
    """Whether something that has no owner in the cluster is old enough to be abandoned, and why, or whose it is."""
    made = parse_time(item["metadata"].get("creationTimestamp"))
    if older_than is None or made is None or now - made.timestamp() < older_than:
        return False, whose
    return True, "it is that old, and no owner of it is in the cluster"
