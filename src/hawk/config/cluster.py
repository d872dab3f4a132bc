"""How Hawk uses a cluster, from the environment. Local-only users need none of it. No heavy import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from hawk import __version__
from hawk.errors import UsageError

PULL_POLICIES = ("Always", "IfNotPresent", "Never")


@dataclass(frozen=True)
class ClusterSettings:
    """Everything that the environment decides about a cluster.

    Attributes:
        namespace: `HAWK_KUBE_NAMESPACE`: where jobs run. None: the one of the pod that this runs in, or of the kubeconfig.
        context: `HAWK_KUBE_CONTEXT`: of the kubeconfig. None: its current one.
        image: `HAWK_KUBE_IMAGE`: the runner's image, else `hawk-runner:<version>`. An eval set may name its own.
        pull_policy: `HAWK_KUBE_PULL_POLICY`: Always, IfNotPresent, Never. None: the cluster decides.
        pull_secrets: `HAWK_KUBE_PULL_SECRETS`: names, with commas between.
        server_url: `HAWK_KUBE_SERVER_URL`: this server's address as pods see it: they dial it. None: the server reaches
            them by the cluster's API.
        middleman_url: `HAWK_KUBE_MIDDLEMAN_URL`: a middleman that pods see. None: each runner pod has one of its own.
        volume: `HAWK_KUBE_VOLUME`: a volume claim that holds the run root, shared with this server.
        service_account: `HAWK_KUBE_SERVICE_ACCOUNT` of runners whose sandboxes are pods, else `hawk-runner`.
        runtime_class: `HAWK_KUBE_RUNTIME_CLASS` of sandbox pods.
    """

    namespace: str | None
    context: str | None
    image: str
    pull_policy: str | None
    pull_secrets: tuple[str, ...]
    server_url: str | None
    middleman_url: str | None
    volume: str | None
    service_account: str
    runtime_class: str | None


def load_cluster_settings(environ: Mapping[str, str] | None = None) -> ClusterSettings:
    """Read the environment.

    Raises:
        UsageError: A variable has a value that can't be.
    """
    env = os.environ if environ is None else environ

    def text(name: str) -> str | None:
        return (env.get(f"HAWK_KUBE_{name}") or "").strip() or None

    policy = text("PULL_POLICY")
    if policy is not None and policy not in PULL_POLICIES:
        raise UsageError(
            f"HAWK_KUBE_PULL_POLICY={policy!r} is none of {', '.join(PULL_POLICIES)}.",
            remedy="Unset HAWK_KUBE_PULL_POLICY or correct it.",
        )
    return ClusterSettings(
        namespace=text("NAMESPACE"),
        context=text("CONTEXT"),
        image=text("IMAGE") or f"hawk-runner:{__version__}",
        pull_policy=policy,
        pull_secrets=tuple(n for name in (text("PULL_SECRETS") or "").split(",") if (n := name.strip())),
        server_url=_url("SERVER_URL", text("SERVER_URL")),
        middleman_url=_url("MIDDLEMAN_URL", text("MIDDLEMAN_URL")),
        volume=text("VOLUME"),
        service_account=text("SERVICE_ACCOUNT") or "hawk-runner",
        runtime_class=text("RUNTIME_CLASS"),
    )


def _url(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    if not value.startswith(("http://", "https://")):
        raise UsageError(
            f"HAWK_KUBE_{name}={value!r} is no address.",
            remedy="Write it as http://host:port or https://host.",
        )
    return value.rstrip("/")
