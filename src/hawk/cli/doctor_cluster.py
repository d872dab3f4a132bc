"""`hawk doctor --engine kubernetes`: what your cluster lets you do, from this machine."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING

from hawk.cli import cluster_checks as look
from hawk.cli.doctor_checks import Check, State
from hawk.cli.text import clean
from hawk.config.cluster import ClusterSettings, load_cluster_settings
from hawk.errors import ClusterError, HawkError
from hawk.kube.permissions import RUNNER, SERVER

if TYPE_CHECKING:
    from hawk.kube.api import Cluster


MANUAL = "docs/kubernetes-permissions.md"


def run_checks() -> list[Check]:
    """All findings; the first one that makes the others pointless is the last."""
    try:
        settings = load_cluster_settings()
    except HawkError as ex:
        return [Check("settings", State.MISSING, clean(ex.message), ex.remedy)]
    package = client()
    if package.state is State.MISSING:
        return [package]
    return [package, *asyncio.run(_survey(settings))]


def client() -> Check:
    """The Python package that knows kubeconfigs."""
    if importlib.util.find_spec("kubernetes_asyncio") is None:
        remedy = "pip install 'hawk-evals[kubernetes]'"
        return Check("kubernetes client", State.MISSING, "kubernetes-asyncio is not installed", remedy)
    return Check("kubernetes client", State.OK, "kubernetes-asyncio")


async def _survey(settings: ClusterSettings) -> list[Check]:
    from hawk.kube.api import connect

    try:
        cluster = await connect(context=settings.context, namespace=settings.namespace)
    except ClusterError as ex:
        return [Check("kubeconfig", State.MISSING, clean(ex.message), ex.remedy)]
    async with cluster:
        first = [await look.api(cluster)]
        if first[0].state is State.MISSING:
            return first
        first += await look.gather([look.named("namespace", lambda: look.namespace(cluster))])
        if first[-1].state is State.MISSING:
            return first
        probes = {
            "permissions": lambda: _mine(cluster),
            "runner's account": lambda: _runner(cluster, settings),
            "pods": lambda: look.pods_allowed(cluster, settings),
            "quota": lambda: look.quota(cluster),
            "image": lambda: look.image(cluster, settings),
            "network policies": lambda: look.network(cluster),
        }
        found = await look.gather([look.named(name, probe) for name, probe in probes.items()])
    return [*first, *found, link(settings), middleman(settings)]


async def _mine(cluster: Cluster) -> list[Check]:
    found = _summed("permissions", await look.own_permissions(cluster, SERVER))
    if any(check.state is State.MISSING for check in found):
        remedy = (
            f"Whoever runs it can allow all at once: kubectl apply -n {cluster.namespace} -f deploy/base/server-account.yaml; "
            f"kubectl create rolebinding YOU -n {cluster.namespace} --role=hawk-server --user=YOU"
        )
        found.append(Check("all permissions", State.MISSING, f"see {MANUAL}", remedy))
    return found


async def _runner(cluster: Cluster, settings: ClusterSettings) -> list[Check]:
    """Only eval sets whose sandboxes are pods need it."""
    account = settings.service_account
    name = "runner's account"
    try:
        found = await look.account_permissions(cluster, account, RUNNER)
    except ClusterError as ex:
        if ex.fields.get("status") != 403:
            raise
        detail = f"{account}: what it may do is not for this account to see"
        return [Check(name, State.OK, detail)]
    worst = _summed(name, found)
    if len(found) == 1 and found[0].state is State.MISSING:
        detail = f"no ServiceAccount {account}: sandboxes can't be pods"
        return [Check(name, State.WARN, detail, f"kubectl apply -n {cluster.namespace} -k deploy/engine")]
    return worst


def _summed(name: str, found: list[Check]) -> list[Check]:
    """One finding in the place of many that are well; those that are not stay."""
    bad = [check for check in found if check.state is not State.OK]
    well = len(found) - len(bad)
    return (
        [*bad, Check(name, State.OK, f"{well} of {len(found)} resources as they should be")] if well else bad
    )


def link(settings: ClusterSettings) -> Check:
    """How runners and this machine's server reach each other."""
    if settings.server_url is not None:
        return Check("link", State.OK, f"runners dial {settings.server_url} (HAWK_KUBE_SERVER_URL)")
    return Check("link", State.OK, "through the cluster's API: runners need not reach this machine")


def middleman(settings: ClusterSettings) -> Check:
    """Where runners find models."""
    if settings.middleman_url is not None:
        return Check("middleman", State.OK, f"{settings.middleman_url} (HAWK_KUBE_MIDDLEMAN_URL)")
    return Check(
        "middleman", State.OK, "one in each runner pod, with the keys that the eval set's models need"
    )
