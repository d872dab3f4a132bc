"""A job as Kubernetes objects: the Job with its runner pod, and its Secrets. Pure: a spec in, dicts out."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from hawk.config.cluster import ClusterSettings
from hawk.core import cluster
from hawk.core.cluster_why import NOT_RETRYABLE
from hawk.engine.kubernetes import mounts, names
from hawk.engine.kubernetes.reporting import quantity
from hawk.store.rundir import JobSpec

Manifest = dict[str, Any]

USER = 10001
"""Uid and gid of everything in a runner pod."""

TRIES = 3
"""Times that the Job starts its pod again after it failed by itself."""

KEPT = 45
"""Seconds that a Job that has ended stays, with its pods: the server has written down what they say long before. Short,
so that nothing is left of a job a minute after its end, whoever is there to clean up."""

KEPT_ON_REQUEST = 7 * 86400
GRACE = 60
"""Seconds that a runner has to end by itself: what it has written goes to the server."""

MEMORY = ("1Gi", "4Gi")
CPU = "500m"
"""What a runner asks for, and its memory's limit, where its eval set says nothing: a supervisor and a few workers."""

OF_SIDECAR = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "1Gi"}}
GPU = "nvidia.com/gpu"
PODS = ("pod", "k8s")
"""Sandbox providers whose sandboxes are pods."""

COMMAND = ["python", "-m", "hawk.runner.pod"]
SIDECAR = ["python", "-m", "hawk.runner.sidecar"]
WORKER = ["python", "-m", "hawk.runner.workpods.pod"]

OWNER_UID = "HAWK_KUBE_OWNER_UID"


def job(spec: JobSpec, settings: ClusterSettings, root: str) -> Manifest:
    """The Job, suspended: it makes no pod before its Secrets are there.

    Args:
        root: Mark of the server's run root (`names.root_mark`).
    """
    runner = runner_of(spec)
    name = names.job_name(spec.job_id, spec.generation)
    own = {names.ROOT: root, names.GENERATION: str(spec.generation)}
    labels = names.labels(spec.job_id, "runner", **own)
    queue = {"kueue.x-k8s.io/queue-name": runner["queue"]} if runner.get("queue") else {}
    priority = {"kueue.x-k8s.io/priority-class": runner["priority"]} if runner.get("priority") else {}
    deadline = {"activeDeadlineSeconds": runner["deadline"]} if runner.get("deadline") else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {**labels, **queue, **priority},
            "annotations": _annotations(spec),
        },
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": TRIES,
            "podReplacementPolicy": "Failed",  # two runners must not share a run directory
            "ttlSecondsAfterFinished": KEPT if runner.get("cleanup") is not False else KEPT_ON_REQUEST,
            **deadline,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": "runner",
                            "operator": "In",
                            "values": [NOT_RETRYABLE],
                        },
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {
                "metadata": {"labels": labels, "annotations": _annotations(spec)},
                "spec": _pod(spec, settings, name),
            },
        },
    }


def worker(spec: JobSpec, settings: ClusterSettings) -> Manifest | None:
    """What the pod of any worker of a job is like (`hawk.runner.workpods.pods` makes them of it); None: its workers are
    processes in the runner's pod. There is no secret in it: what a worker must know comes to it over its link."""
    if not workers_are_pods(spec):
        return None
    runner, own = runner_of(spec), mounts.of_worker(spec.base_dir)
    volumes = [*own, *mounts.named(runner.get("volumes") or ())]
    account = _account(spec, settings, sandboxes_are_pods(spec))
    container = {
        "name": "worker",
        "command": WORKER,
        "resources": resources(runner),
        "env": _worker_environment(spec, settings),
        "workingDir": mounts.HOME,
        "volumeMounts": [v.mount for v in volumes],
        **_container(spec, settings),
    }
    return {
        "metadata": {
            "labels": names.labels(spec.job_id, cluster.WORKER, **{names.GENERATION: str(spec.generation)}),
            "annotations": _annotations(spec),
        },
        "spec": {**_placed(spec, settings, account, [v.volume for v in volumes]), "containers": [container]},
    }


def secret(name: str, job_id: str, owner: Mapping[str, Any], data: Mapping[str, bytes]) -> Manifest:
    """A Secret that goes when the job's Job does.

    Args:
        owner: The Job as the cluster made it.
        data: Content by file name.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "labels": names.labels(job_id, "runner"),
            "ownerReferences": [owner_reference(owner)],
        },
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def owner_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    meta = owner["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": False,
        "blockOwnerDeletion": True,
    }


def runner_of(spec: JobSpec) -> dict[str, Any]:
    """What the eval set says of its runner."""
    return spec.config.get("runner") or {}


def image(spec: JobSpec, settings: ClusterSettings) -> str:
    """The runner's image: the eval set's, else this server's, with the tag that the eval set says."""
    runner = runner_of(spec)
    found = str(runner.get("image") or settings.image)
    tag = runner.get("image_tag")
    if not tag:
        return found
    repository = found.partition("@")[0]
    head, colon, last = repository.rpartition(":")
    return f"{head if colon and '/' not in last else repository}:{tag}"


def sandboxes_are_pods(spec: JobSpec) -> bool:
    sandbox = spec.config.get("sandbox") or {}
    return isinstance(sandbox, dict) and sandbox.get("type") in PODS


def workers_are_pods(spec: JobSpec) -> bool:
    """Whether each worker has a pod of its own. To score again is short, and needs much of another job: that is done in the
    runner's."""
    return runner_of(spec).get("workers") == "pods" and spec.rescore is None


def has_sidecar(spec: JobSpec, settings: ClusterSettings) -> bool:
    """Whether a middleman runs beside the runner: there is none for all, or the job's records or replays, for which it
    needs the job's own files."""
    options = spec.config.get("middleman") or {}
    if options.get("off"):
        return False
    return settings.middleman_url is None or bool(options.get("record") or options.get("replay"))


# --- the pod


def _pod(spec: JobSpec, settings: ClusterSettings, name: str) -> Manifest:
    runner = runner_of(spec)
    sidecar = has_sidecar(spec, settings)
    claim = settings.volume
    runs = mounts.on_claim(claim, spec.job_id, spec.rescore) if claim is not None else None
    own = mounts.own(spec.base_dir, names.secret_name(spec.job_id), runs)
    extra = mounts.named(runner.get("volumes") or ())
    keys = mounts.keys(names.keys_name(spec.job_id)) if sidecar else []
    account = _account(spec, settings, sandboxes_are_pods(spec) or workers_are_pods(spec))
    pod = _placed(spec, settings, account, [v.volume for v in (*own, *extra, *keys)])
    pod["containers"] = [_runner(spec, settings, name, [v.mount for v in (*own, *extra)])]
    if sidecar:
        pod["initContainers"] = [_sidecar(spec, settings, [*(v.mount for v in keys), *mounts.shared(own)])]
    return pod


def _account(spec: JobSpec, settings: ClusterSettings, needed: bool) -> str | None:
    """The service account of a pod that makes pods; None for one that has nothing to say to the cluster."""
    return runner_of(spec).get("service_account") or (settings.service_account if needed else None)


def _placed(
    spec: JobSpec, settings: ClusterSettings, account: str | None, volumes: list[Manifest]
) -> Manifest:
    """A pod without its containers: who it is, where it may be, what it mounts."""
    runner = runner_of(spec)
    pull = [*settings.pull_secrets, *(runner.get("pull_secrets") or ())]
    pod: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "enableServiceLinks": False,
        "automountServiceAccountToken": account is not None,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": volumes,
    }
    if account is not None:
        pod["serviceAccountName"] = account
    if pull:
        pod["imagePullSecrets"] = [{"name": secret} for secret in dict.fromkeys(pull)]
    if runner.get("node_selector"):
        pod["nodeSelector"] = dict(runner["node_selector"])
    if runner.get("tolerations"):
        pod["tolerations"] = [{k: v for k, v in t.items() if v is not None} for t in runner["tolerations"]]
    return pod


def _runner(spec: JobSpec, settings: ClusterSettings, name: str, volumes: list[Manifest]) -> Manifest:
    return {
        "name": "runner",
        "command": COMMAND,
        "resources": _of_the_runner(spec),
        "env": _environment(spec, settings, name),
        "workingDir": mounts.HOME,
        "volumeMounts": volumes,
        **_container(spec, settings),
    }


def _sidecar(spec: JobSpec, settings: ClusterSettings, volumes: list[Manifest]) -> Manifest:
    environment = {
        "HAWK_HOME": mounts.MIDDLEMAN_HOME,
        "HAWK_ROOT": mounts.RUNS,
        "HAWK_JOB_ID": spec.job_id,
        "HAWK_MIDDLEMAN_KEYS_DIR": mounts.KEYS_DIR,
        "HAWK_MIDDLEMAN_KEY_FILE": f"{mounts.KEYS_DIR}/{SIGNING_KEY}",
        "HOME": mounts.MIDDLEMAN_HOME,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return {
        "name": "middleman",
        "restartPolicy": "Always",  # beside the runner, not before it
        "command": SIDECAR,
        "resources": OF_SIDECAR,
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "workingDir": mounts.MIDDLEMAN_HOME,
        "volumeMounts": volumes,
        **_container(spec, settings),
    }


SIGNING_KEY = "signing-key"
"""File of the keys' Secret with which the middleman beside the runner checks tokens."""


def _container(spec: JobSpec, settings: ClusterSettings) -> Manifest:
    policy = {"imagePullPolicy": settings.pull_policy} if settings.pull_policy else {}
    return {
        "image": image(spec, settings),
        **policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # its last words, without asking for its log
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def resources(runner: Mapping[str, Any]) -> Manifest:
    """What it asks for and what it may use: what the eval set says is both."""
    requests: dict[str, Any] = {"cpu": runner.get("cpu") or CPU, "memory": runner.get("memory") or MEMORY[0]}
    limits: dict[str, Any] = {"memory": runner.get("memory") or MEMORY[1]}
    if runner.get("cpu"):
        limits["cpu"] = runner["cpu"]
    if runner.get("disk"):
        requests["ephemeral-storage"] = limits["ephemeral-storage"] = runner["disk"]
    gpu = runner.get("gpu")
    for name, count in gpu.items() if isinstance(gpu, dict) else [(GPU, gpu)] if gpu else ():
        requests[name] = limits[name] = str(count)
    return {"requests": requests, "limits": limits}


def _of_the_runner(spec: JobSpec) -> Manifest:
    """What the runner's own pod asks for: where workers have pods, it loads the tasks and watches, for which it may use as much
    memory as they, and needs no more than any."""
    said = runner_of(spec)
    if not workers_are_pods(spec):
        return resources(said)
    found = resources({k: v for k, v in said.items() if k not in ("cpu", "gpu")})
    if quantity(str(found["limits"]["memory"])) > quantity(MEMORY[0]):
        found["requests"]["memory"] = MEMORY[0]
    return found


def _environment(spec: JobSpec, settings: ClusterSettings, name: str) -> list[Manifest]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"$({OWNER_UID})"}
    said = runner_of(spec).get("environment") or {}
    own = _own_variables(spec, settings)
    fields = {**FIELDS, OWNER_UID: "metadata.labels['batch.kubernetes.io/controller-uid']"}
    theirs = {
        key: _literal(str(value)) for key, value in said.items() if key not in own and key not in fields
    }
    return [
        *({"name": key, "value": value} for key, value in theirs.items()),
        *({"name": key, "value": value} for key, value in own.items() if value),
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()),
        {"name": "HAWK_KUBE_OWNER", "value": json.dumps(owner)},
    ]


FIELDS = {
    "HAWK_KUBE_NAMESPACE": "metadata.namespace",
    "HAWK_POD_NAME": "metadata.name",
    "HAWK_POD_UID": "metadata.uid",
}
"""What a pod of Hawk's knows of itself."""


def _own_variables(spec: JobSpec, settings: ClusterSettings) -> dict[str, str | None]:
    return {
        "HAWK_HOME": mounts.HOME,
        "HAWK_ROOT": mounts.RUNS,
        "HAWK_RUN_BASE": "/tmp/hawk",  # noqa: S108
        "HAWK_WARM": "0",
        "HOME": mounts.HOME,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "HAWK_KUBE_IMAGE": image(spec, settings),
        "HAWK_KUBE_PULL_POLICY": settings.pull_policy,
        "HAWK_KUBE_PULL_SECRETS": ",".join(settings.pull_secrets),
        "HAWK_KUBE_RUNTIME_CLASS": settings.runtime_class,
    }


def _worker_environment(spec: JobSpec, settings: ClusterSettings) -> list[Manifest]:
    return [
        *({"name": key, "value": value} for key, value in _own_variables(spec, settings).items() if value),
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in FIELDS.items()),
        {"name": "HAWK_POD_JOB", "value": spec.job_id},
    ]


def _literal(value: str) -> str:
    """Kubernetes replaces `$(NAME)` in values; theirs mean what they say."""
    return value.replace("$(", "$$(")


def _annotations(spec: JobSpec) -> dict[str, str]:
    found = {names.CREATED_BY: spec.created_by or "", "hawk/created-at": spec.created_at}
    return {key: value for key, value in found.items() if value}
