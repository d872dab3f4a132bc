"""What a namespace must and may have, each look on its own: for `hawk server deploy --check` and `hawk doctor`.

Nothing is kept in the cluster. What this account may not see is said to be unknown, and never to be missing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from hawk.cli.doctor_checks import Check, State
from hawk.cli.text import clean, plural
from hawk.config.cluster import ClusterSettings
from hawk.errors import ClusterError
from hawk.kube import trial
from hawk.kube.permissions import RUNNER_ACCOUNT, Rule, pairs

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

OLDEST = (1, 29)
"""The first version with containers that run beside the main one (the middleman of a runner), and Jobs that wait for a
pod to be gone before they make the next."""

PATIENCE = 10.0
"""Seconds that one question may take."""

ENFORCERS = ("calico", "cilium", "antrea", "kube-router", "weave", "ovn", "canal", "romana", "kindnet")
"""Network plugins that enforce policies, by what their DaemonSets are called."""

LEVELS = ("privileged", "baseline", "restricted")
_ENFORCE = "pod-security.kubernetes.io/enforce"

Probe = Callable[[], Awaitable[list[Check]]]


async def gather(probes: Sequence[Probe]) -> list[Check]:
    """All of them at once; one that fails is a finding too."""
    return [check for found in await asyncio.gather(*map(_guarded, probes)) for check in found]


async def _guarded(probe: Probe) -> list[Check]:
    name = getattr(probe, "name", None) or "cluster"
    try:
        return await probe()
    except ClusterError as ex:
        return [Check(name, State.WARN, f"could not be checked: {clean(ex.message)}", ex.remedy)]


def named(name: str, probe: Probe) -> Probe:
    """A probe with a name for the finding that it failed."""

    async def run() -> list[Check]:
        return await probe()

    run.name = name  # type: ignore[attr-defined]
    return run


# --- the cluster


async def api(cluster: Cluster) -> Check:
    """Whether the API answers, and is new enough."""
    try:
        version = await cluster.version(patience=PATIENCE)
    except ClusterError as ex:
        return Check("api", State.MISSING, clean(ex.message), ex.remedy)
    match = re.match(r"v?(\d+)\.(\d+)", version)
    detail = f"Kubernetes {clean(version) or 'of an unknown version'} at {cluster.host}"
    if match and (int(match[1]), int(match[2])) < OLDEST:
        return Check("api", State.MISSING, detail, "Hawk needs Kubernetes {}.{} or newer.".format(*OLDEST))
    return Check("api", State.OK, detail)


async def namespace(cluster: Cluster) -> list[Check]:
    """Whether the namespace is there, and which pods its Pod Security level lets in."""
    name = cluster.namespace
    try:
        found = await cluster.get("Namespace", name, patience=PATIENCE)
    except ClusterError as ex:
        if ex.fields.get("status") != 403:
            raise
        return [Check("namespace", State.OK, f"{name} (this account may not look at the namespace itself)")]
    if found is None:
        return [Check("namespace", State.MISSING, f"There is no {name}.", f"kubectl create namespace {name}")]
    if found["metadata"].get("deletionTimestamp"):
        return [Check("namespace", State.MISSING, f"{name} is being deleted.", "Choose another.")]
    level = (found["metadata"].get("labels") or {}).get(_ENFORCE)
    said = f"Pod Security enforces {clean(level)}" if level else "Pod Security enforces nothing by label"
    return [Check("namespace", State.OK, f"{name}; {said}")]


# --- permissions


async def own_permissions(cluster: Cluster, rules: Sequence[Rule]) -> list[Check]:
    """One finding a rule: what this account may do."""

    async def may(rule: Rule, verb: str) -> bool:
        return await cluster.may(verb, rule.plural, subresource=rule.subresource, group=rule.group)

    return await _permissions(rules, may, "you")


async def account_permissions(cluster: Cluster, account: str, rules: Sequence[Rule]) -> list[Check]:
    """One finding a rule: what a service account of the namespace may do. Asking takes an administrator."""
    if await cluster.get("ServiceAccount", account, patience=PATIENCE) is None:
        where = "deploy/engine" if account == RUNNER_ACCOUNT else "deploy/overlays/…"
        remedy = f"kubectl apply -n {cluster.namespace} -k {where}"
        return [Check(f"account {account}", State.MISSING, "There is no such ServiceAccount.", remedy)]

    async def may(rule: Rule, verb: str) -> bool:
        attributes = {
            "namespace": cluster.namespace,
            "verb": verb,
            "group": rule.group,
            "resource": rule.plural,
            "subresource": rule.subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "LocalSubjectAccessReview",
            "metadata": {"namespace": cluster.namespace},
            "spec": {
                "user": f"system:serviceaccount:{cluster.namespace}:{account}",
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": attributes,
            },
        }
        path = f"/apis/authorization.k8s.io/v1/namespaces/{cluster.namespace}/localsubjectaccessreviews"
        answer = await cluster.requests.send(
            "POST", path, body=body, what=f"look up the permissions of {account}", patience=PATIENCE
        )
        return bool((answer.get("status") or {}).get("allowed"))

    return await _permissions(rules, may, account)


async def _permissions(
    rules: Sequence[Rule], may: Callable[[Rule, str], Awaitable[bool]], who: str
) -> list[Check]:
    asked = list(pairs(tuple(rules)))
    answers = await asyncio.gather(*(may(rule, verb) for rule, verb in asked))
    refused: dict[Rule, list[str]] = {rule: [] for rule in rules}
    for (rule, verb), allowed in zip(asked, answers, strict=True):
        if not allowed:
            refused[rule].append(verb)
    return [_verdict(rule, verbs, who) for rule, verbs in refused.items()]


def _verdict(rule: Rule, refused: list[str], who: str) -> Check:
    name = f"{who}: {rule.resource}"
    if not refused:
        return Check(name, State.OK, ", ".join(rule.verbs))
    state = State.WARN if rule.optional else State.MISSING
    group = f" in group {rule.group}" if rule.group else ""
    remedy = f"Allow it in a Role: {', '.join(refused)} on {rule.resource}{group}. {rule.why}"
    return Check(name, state, f"may not {', '.join(refused)}", remedy)


# --- pods


async def pods_allowed(cluster: Cluster, settings: ClusterSettings) -> list[Check]:
    """Whether the namespace lets in a runner, and a sandbox that needs root: by a dry run, which keeps nothing."""
    runner = trial.runner(
        settings.image, pull_policy=settings.pull_policy, pull_secrets=settings.pull_secrets
    )
    found = []
    for what, manifest, refused in (
        ("runner pods", runner, State.MISSING),
        ("root sandboxes", trial.root_sandbox(settings.image), State.WARN),
    ):
        try:
            await cluster.create(manifest, dry_run=True, patience=PATIENCE)
        except ClusterError as ex:
            found.append(_refusal(what, ex, refused))
        else:
            found.append(Check(what, State.OK, "let in"))
    return found


def _refusal(what: str, ex: ClusterError, state: State) -> Check:
    said = str(ex.fields.get("said") or ex.message)
    if "violates PodSecurity" in said:
        level = re.search(r'violates PodSecurity "([a-z]+)', said)
        remedy = "Label the namespace pod-security.kubernetes.io/enforce=baseline, or use images that run as another user."
        return Check(what, state, f"not let in: Pod Security enforces {level[1] if level else 'it'}", remedy)
    if ex.fields.get("reason") == "forbidden" and "cannot create resource" in said:
        return Check(what, State.OK, "not tried: this account makes no pods itself, its Jobs do")
    return Check(what, state, f"not let in: {clean(said)[:300]}", ex.remedy)


async def quota(cluster: Cluster) -> list[Check]:
    """Whether one more runner fits into the namespace's quota."""
    items, _ = await cluster.list("ResourceQuota", patience=PATIENCE)
    need = {
        "pods": 1.0,
        "requests.cpu": amount(trial.CPU),
        "cpu": amount(trial.CPU),
        "requests.memory": amount(trial.MEMORY),
        "memory": amount(trial.MEMORY),
        "limits.memory": amount(trial.MOST_MEMORY),
        "count/jobs.batch": 1.0,
        "secrets": 2.0,
    }
    short = []
    for item in items:
        status = item.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        for name, asked in need.items():
            if name in hard and amount(str(hard[name])) - amount(str(used.get(name, "0"))) < asked:
                short.append(f"{name} {used.get(name, 0)} of {hard[name]}")
    if short:
        remedy = "Wait until something ends, or have the ResourceQuota raised."
        return [Check("quota", State.MISSING, f"no room for a runner: {clean(', '.join(short))}", remedy)]
    return [Check("quota", State.OK, f"room in {plural(len(items), 'quota')}" if items else "none is set")]


def amount(quantity: str) -> float:
    """A quantity as Kubernetes writes it, as a number: `500m`, `4Gi`, `2`. Infinite when it can't be read."""
    match = re.fullmatch(r"([0-9.]+)([kKMGTPE]i?|m)?", quantity.strip())
    if match is None:
        return float("inf")
    unit = match[2] or ""
    if unit == "m":
        return float(match[1]) / 1000
    power = "kmgtpe".find(unit[:1].lower()) + 1 if unit else 0
    return float(match[1]) * float((1024 if unit.endswith("i") else 1000) ** power)


async def image(cluster: Cluster, settings: ClusterSettings) -> list[Check]:
    """Whether nodes have the image, or can be expected to fetch it."""
    from hawk.images.archive import qualified

    name = settings.image
    policy = settings.pull_policy or ("Always" if qualified(name).endswith(":latest") else "IfNotPresent")
    detail = f"{name}, pulled: {policy}"
    for secret in settings.pull_secrets:
        if await _secret(cluster, secret) is None:
            remedy = "Make it: kubectl create secret docker-registry …, or correct HAWK_KUBE_PULL_SECRETS."
            return [Check("image", State.MISSING, f"{detail}; there is no Secret {secret}", remedy)]
    try:
        nodes, _ = await cluster.list("Node", patience=PATIENCE)
    except ClusterError as ex:
        if ex.fields.get("status") != 403:
            raise
        return [Check("image", State.OK, f"{detail} (whether nodes have it is not for this account to see)")]
    wanted = qualified(name)
    have = sum(
        any(
            wanted in map(qualified, one.get("names") or ())
            for one in (node.get("status") or {}).get("images") or ()
        )
        for node in nodes
    )
    detail += f"; on {have} of {plural(len(nodes), 'node')}"
    local = wanted.startswith("docker.io/library/")
    if have == 0 and (local or policy == "Never"):
        remedy = (
            "hawk image build, then load the tar on each node; or HAWK_KUBE_IMAGE with a registry's name."
        )
        return [Check("image", State.MISSING, detail, remedy)]
    if have < len(nodes) and local:
        return [Check("image", State.WARN, detail, "Load it on the others, too: pods start there as well.")]
    return [Check("image", State.OK, detail)]


async def _secret(cluster: Cluster, name: str) -> dict[str, Any] | None:
    return await cluster.get("Secret", name, patience=PATIENCE)


async def network(cluster: Cluster) -> list[Check]:
    """Whether the cluster's network plugin enforces policies, as far as its name tells."""
    what = "find out the network plugin"
    try:
        found = await cluster.requests.send(
            "GET", "/apis/apps/v1/daemonsets", query={"limit": "500"}, what=what, patience=PATIENCE
        )
    except ClusterError as ex:
        if ex.fields.get("status") != 403:
            raise
        return [_unknown_network("this account may not see the network plugin")]
    names = [str(item["metadata"]["name"]) for item in found.get("items") or ()]
    plugin = next((name for name in names if any(word in name for word in ENFORCERS)), None)
    if plugin is None:
        return [_unknown_network("no network plugin is known that enforces them")]
    return [Check("network policies", State.OK, f"enforced by {clean(plugin)}")]


def _unknown_network(why: str) -> Check:
    remedy = (
        "Without enforcement sandboxes reach the cluster's network: try it, or ask whoever runs the cluster."
    )
    return Check("network policies", State.WARN, f"unknown: {why}", remedy)
