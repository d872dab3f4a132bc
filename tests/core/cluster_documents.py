"""Pods and Jobs as a real API server describes them (1.34), shortened to what is read. Times are before `NOW`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hawk.core.cluster import Event, Job, Pod, PodsSeen
from hawk.kube import parsing

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)

NO_ROOM = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }, 2 Insufficient cpu. "
    "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
)
NOT_FOUND = (
    'failed to pull and unpack image "registry.example/evals:v9": failed to resolve reference '
    '"registry.example/evals:v9": registry.example/evals:v9: not found'
)
QUOTA = (
    'Error creating: pods "hawk-j-g1-x7k2p" is forbidden: exceeded quota: team, requested: memory=4Gi, '
    "used: memory=14Gi, limited: memory=16Gi"
)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def document(
    name: str,
    component: str,
    phase: str,
    *,
    age: float = 60.0,
    status: dict[str, Any] | None = None,
    **notes: str,
) -> dict[str, Any]:
    """A pod. `notes`: `task`, `sample`, `epoch`, `service` of a sandbox."""
    keys = {"task": "hawk/task", "sample": "hawk/sample-id", "epoch": "hawk/epoch"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "evals",
            "uid": f"uid-{name}",
            "creationTimestamp": ago(age),
            "labels": {
                "app.kubernetes.io/name": "hawk",
                "app.kubernetes.io/component": component,
                "hawk/job": "j",
                "hawk/service": notes.get("service", "default"),
            },
            "annotations": {keys[key]: value for key, value in notes.items() if key in keys},
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": component, "resources": {"limits": {"memory": "4Gi"}}}],
        },
        "status": {"phase": phase, "podIP": "10.1.0.9", **(status or {})},
    }


def container(name: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "ready": "running" in state,
        "restartCount": 0,
        "image": "i",
        "state": state,
        **more,
    }


def ended(code: int, reason: str = "Error", *, before: float = 5.0, message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": ago(before), "message": message}}


RUNS: dict[str, Any] = {"running": {"startedAt": ago(50)}}


def runner(
    name: str = "hawk-j-g1-aaaaa", phase: str = "Running", state: dict[str, Any] | None = None, **more: Any
) -> Pod:
    status = {"containerStatuses": [container("runner", state or RUNS)], **more.pop("status", {})}
    return parsing.pod(document(name, "runner", phase, status=status, **more))


def pulling(reason: str = "ImagePullBackOff", message: str = NOT_FOUND, **more: Any) -> Pod:
    return runner(phase="Pending", state={"waiting": {"reason": reason, "message": message}}, **more)


def no_room(age: float, component: str = "runner", **notes: Any) -> Pod:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": NO_ROOM,
        "lastTransitionTime": ago(age),
    }
    item = document(
        notes.pop("name", f"hawk-j-{component}"),
        component,
        "Pending",
        age=age,
        status={"conditions": [condition]},
        **notes,
    )
    del item["spec"]["nodeName"]
    return parsing.pod(item)


def disrupted(
    reason: str, message: str, pod_reason: str = "", component: str = "runner", **notes: Any
) -> Pod:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    status = {"conditions": [condition], **({"reason": pod_reason, "message": message} if pod_reason else {})}
    return parsing.pod(document(notes.pop("name", "hawk-j-x"), component, "Failed", status=status, **notes))


def sandbox(name: str, phase: str = "Running", state: dict[str, Any] | None = None, **more: Any) -> Pod:
    given = {"task": "swe", "sample": "s1", "epoch": "1", **more}
    status = {"containerStatuses": [container("default", state or RUNS, **given.pop("container", {}))]}
    return parsing.pod(document(name, "sandbox", phase, status=status, **given))


def job(
    *, suspended: bool = False, condition: tuple[str, str] | None = None, age: float = 60.0, **more: Any
) -> Job:
    labels = {"kueue.x-k8s.io/queue-name": more.pop("queue")} if "queue" in more else {}
    conditions = [{"type": condition[0], "status": "True", "reason": condition[1]}] if condition else []
    item = {
        "metadata": {"name": "hawk-j-g1", "uid": "uid-job", "creationTimestamp": ago(age), "labels": labels},
        "spec": {"suspend": suspended, **more.pop("spec", {})},
        "status": {"conditions": conditions, **more},
    }
    return parsing.job(item)


def refused(message: str = QUOTA) -> Job:
    """One that can't make its pod."""
    found = job()
    found.events = [Event("FailedCreate", message, "Warning", 4, ago(2))]
    return found


def seen(*pods: Pod, job: Job | None = None, gone: list[Pod] | None = None, **more: Any) -> PodsSeen:
    return PodsSeen(
        "j", NOW.isoformat(), namespace="evals", job=job, pods=list(pods), gone=gone or [], **more
    )
