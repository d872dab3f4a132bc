"""Starting a job's runner: a suspended Job, its Secrets, then go. Whoever does it twice finds what the first one made."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hawk.config.cluster import ClusterSettings
from hawk.engine.kubernetes import manifests, names
from hawk.engine.kubernetes.jobsecrets import JobSecrets
from hawk.engine.kubernetes.removal import remove_job
from hawk.errors import ClusterError, ConflictError, HawkError
from hawk.store.rundir import JobSpec

if TYPE_CHECKING:
    from hawk.kube.api import Cluster


class Launch:
    """Of one generation of a job.

    Args:
        root: Mark of this server's run root.
    """

    def __init__(self, cluster: Cluster, settings: ClusterSettings, root: str, spec: JobSpec) -> None:
        self._cluster, self._settings, self._root, self._spec = cluster, settings, root, spec
        self.name = names.job_name(spec.job_id, spec.generation)

    async def run(self, secrets: JobSecrets) -> dict[str, Any]:
        """Returns the Job as the cluster has it.

        Raises:
            ClusterError: The cluster refuses, or can't be reached.
            ConflictError: The name belongs to a Hawk with other run directories.
        """
        await self._clear()
        job = await self._job()
        try:
            await self._secret(names.secret_name(self._spec.job_id), job, secrets.own)
            if secrets.keys:
                await self._secret(names.keys_name(self._spec.job_id), job, secrets.keys)
        except HawkError:
            with contextlib.suppress(HawkError):
                await remove_job(self._cluster, self.name, job["metadata"]["uid"], patience=5)
            raise
        if (job.get("spec") or {}).get("suspend") and not manifests.runner_of(self._spec).get("queue"):
            job = await self._cluster.patch("Job", self.name, {"spec": {"suspend": False}})
        return job

    async def _clear(self) -> None:
        """Earlier generations, and one of this generation that has ended, go first: two must not share a directory."""
        found, _ = await self._cluster.list("Job", labels=names.of_job(self._spec.job_id))
        for item in found:
            if item["metadata"]["name"] != self.name or _ended(item):
                self._require_ours(item)
                await remove_job(self._cluster, item["metadata"]["name"], item["metadata"]["uid"])

    async def _job(self) -> dict[str, Any]:
        job = await self._cluster.create(manifests.job(self._spec, self._settings, self._root), exist_ok=True)
        self._require_ours(job)
        return job

    def _require_ours(self, job: Mapping[str, Any]) -> None:
        if (job["metadata"].get("labels") or {}).get(names.ROOT) != self._root:
            raise ConflictError(
                f"Another Hawk runs {self._spec.job_id!r} in namespace {self._cluster.namespace}.",
                remedy="Choose another id (--name), or another namespace (HAWK_KUBE_NAMESPACE).",
            )

    async def _secret(self, name: str, job: dict[str, Any], data: Mapping[str, bytes]) -> None:
        """One that an earlier Job left is replaced; one of this Job was made by whoever launched it first."""
        manifest = manifests.secret(name, self._spec.job_id, job, data)
        for _ in range(3):
            made = await self._cluster.create(manifest, exist_ok=True)
            if _owned(made, job):
                return
            await self._cluster.delete("Secret", name, uid=made["metadata"]["uid"])
        raise ClusterError(
            f"The Secret {name} is of another Job, and does not go.", remedy=f"kubectl delete secret {name}"
        )


def _owned(item: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    owners = item["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == job["metadata"]["uid"] for owner in owners)


def _ended(job: Mapping[str, Any]) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    done = any(c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in conditions)
    return done or bool(job["metadata"].get("deletionTimestamp"))
