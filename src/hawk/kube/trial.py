"""A pod like a runner's, to find out what a namespace thinks of one: sent as a dry run, or run for a moment."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

CPU, MEMORY, MOST_MEMORY = "500m", "1Gi", "4Gi"
"""What a runner asks for where its eval set says nothing, and its memory's limit."""

_USER = 10001


def runner(
    image: str,
    *,
    pull_policy: str | None = None,
    pull_secrets: Sequence[str] = (),
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """A pod with everything that runners have and Pod Security looks at."""
    container: dict[str, Any] = {
        "name": "runner",
        "image": image,
        "command": list(command) or ["hawk", "--version"],
        "resources": {
            "requests": {"cpu": CPU, "memory": MEMORY},
            "limits": {"memory": MOST_MEMORY},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }
    if pull_policy:
        container["imagePullPolicy"] = pull_policy
    return _pod(
        container,
        {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
        pull_secrets,
    )


def root_sandbox(image: str) -> dict[str, Any]:
    """A pod like a sandbox's that says nothing of its security: root, with what installing packages takes."""
    container = {
        "name": "default",
        "image": image,
        "command": ["sleep", "1"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "SETUID", "SETGID"]},
        },
    }
    return _pod(container, {}, ())


def _pod(container: dict[str, Any], security: dict[str, Any], pull_secrets: Sequence[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": 300,
        "securityContext": {**security, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    labels = {
        "app.kubernetes.io/name": "hawk",
        "app.kubernetes.io/managed-by": "hawk",
        "app.kubernetes.io/component": "check",
    }
    return {
        "kind": "Pod",
        "metadata": {"name": f"hawk-check-{secrets.token_hex(4)}", "labels": labels},
        "spec": spec,
    }
