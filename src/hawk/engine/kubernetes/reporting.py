"""A job's pods for `hawk status`: where they are, how they do, what they use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hawk.core.cluster import Pod, PodsSeen
from hawk.core.cluster_why import how_ended, why_not_started
from hawk.engine.kubernetes import names
from hawk.errors import ClusterError

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

_SIZES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PARTS = {"n": 1e-9, "u": 1e-6, "m": 1e-3}


async def report(cluster: Cluster, seen: PodsSeen) -> dict[str, Any]:
    """Everything about the job's Job and pods; use of CPU (cores) and memory (bytes) where the cluster measures it."""
    used = await usage(cluster, seen.job_id)
    rows = [_row(pod, used.get(pod.name)) for pod in seen.pods]
    job = seen.job
    return {
        "engine": "kubernetes",
        "namespace": seen.namespace,
        "job": None
        if job is None
        else {
            "name": job.name,
            "suspended": job.suspended,
            "queue": job.queue,
            "active": job.active,
            "failed": job.failed,
            "conditions": [
                f"{c.type}: {c.reason} {c.message}".strip() for c in job.conditions if c.status == "True"
            ],
            "gone": job.gone,
        },
        "processes": rows,
        "ended": [_row(pod, None) for pod in seen.gone],
        "problem": seen.problem,
    }


def _row(pod: Pod, used: tuple[float, int] | None) -> dict[str, Any]:
    why, end = why_not_started(pod), how_ended(pod)
    cpu, memory = used or (None, None)
    return {
        "name": pod.name,
        "role": pod.component,
        "service": pod.service or None,
        "task": pod.task or None,
        "sample_id": pod.sample_id,
        "epoch": pod.epoch,
        "state": pod.phase,
        "reason": f"{why.reason}: {why.detail}"
        if why is not None
        else end.words
        if end is not None
        else None,
        "node": pod.node,
        "restarts": pod.restarts,
        "cpu_cores": cpu,
        "memory_bytes": memory,
        "started_at": pod.created,
    }


async def usage(cluster: Cluster, job_id: str) -> dict[str, tuple[float, int]]:
    """Cores and bytes by pod, of the cluster's metrics API; nothing where there is none."""
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{cluster.namespace}/pods"
    try:
        answer = await cluster.requests.send(
            "GET", path, query={"labelSelector": names.of_job(job_id)}, what="read metrics", patience=2
        )
    except ClusterError:
        return {}
    found = {}
    for item in answer.get("items") or [] if isinstance(answer, dict) else []:
        parts = [container.get("usage") or {} for container in item.get("containers") or []]
        cpu = sum(quantity(str(part.get("cpu", "0"))) for part in parts)
        memory = sum(quantity(str(part.get("memory", "0"))) for part in parts)
        found[str(item["metadata"]["name"])] = round(cpu, 4), int(memory)
    return found


def quantity(text: str) -> float:
    """An amount as Kubernetes writes it (`250m`, `12Mi`), as a number; 0 for nonsense."""
    for unit, size in {**_SIZES, **_PARTS}.items():
        if text.endswith(unit):
            return _float(text.removesuffix(unit)) * size
    return _float(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
