"""`hawk server deploy --check`: is everything there before the server, or anything of it, runs?"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from hawk.cli import cluster_checks as look
from hawk.cli.deploy_secrets import NAMES, PROVIDER_KEYS
from hawk.cli.doctor_checks import Check, State
from hawk.cli.text import clean, plural, table
from hawk.config.cluster import ClusterSettings, load_cluster_settings
from hawk.errors import ClusterError
from hawk.kube import trial
from hawk.kube.permissions import RUNNER, RUNNER_ACCOUNT, SERVER, SERVER_ACCOUNT

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

RUN = 120.0
"""Seconds that a trial pod has, its image included."""

CLAIM = "hawk-server"
DEPLOYMENT = "hawk-server"


def run(
    namespace: str | None, context: str | None, image: str | None, *, run_pod: bool, as_json: bool
) -> int:
    """Look, print a table, and return the exit code: 1 when something needed is missing.

    Raises:
        HawkError: There is no cluster to look at.
    """
    said = {**os.environ, "HAWK_KUBE_IMAGE": image} if image else dict(os.environ)
    checks = asyncio.run(survey(said, namespace, context, run_pod=run_pod))
    missing = sum(check.state is State.MISSING for check in checks)
    if as_json:
        import msgspec

        click.echo(json.dumps({"ok": not missing, "checks": msgspec.to_builtins(checks)}, indent=2))
    else:
        show(checks)
        click.echo()
        click.echo(
            f"{plural(missing, 'thing')} missing." if missing else "Everything that is needed is there."
        )
    return 1 if missing else 0


async def survey(
    said: Mapping[str, str], namespace: str | None, context: str | None, *, run_pod: bool = False
) -> list[Check]:
    """All findings about a namespace, as who runs the cluster sees it.

    Args:
        said: The environment; what it does not say of the cluster is as the server that is deployed there has it.
    """
    from hawk.kube.api import connect

    load_cluster_settings(said)  # what is wrong here is said before anything is looked at
    async with await connect(context=context, namespace=namespace) as cluster:
        first = await look.api(cluster)
        if first.state is State.MISSING:
            return [first]
        where = await look.gather([look.named("namespace", lambda: look.namespace(cluster))])
        if any(check.state is State.MISSING for check in where):
            return [first, *where]
        settings = load_cluster_settings({**await deployed(cluster), **said})
        probes = {
            "permissions": lambda: look.account_permissions(cluster, SERVER_ACCOUNT, SERVER),
            "runner's permissions": lambda: look.account_permissions(cluster, RUNNER_ACCOUNT, RUNNER),
            "secrets": lambda: secrets(cluster),
            "pods": lambda: look.pods_allowed(cluster, settings),
            "quota": lambda: look.quota(cluster),
            "image": lambda: look.image(cluster, settings),
            "storage": lambda: storage(cluster),
            "network policies": lambda: look.network(cluster),
        }
        found = await look.gather([look.named(name, probe) for name, probe in probes.items()])
        if run_pod:
            found += await look.gather([look.named("trial pod", lambda: trial_pod(cluster, settings))])
        return [first, *where, *found]


def show(checks: list[Check]) -> None:
    """The findings as a table, and below it what to do about those that are not well."""
    marks = {State.OK: "ok", State.WARN: "without", State.MISSING: "MISSING"}
    columns = None
    if sys.stdout.isatty():
        import shutil

        columns = shutil.get_terminal_size().columns
    rows = [(marks[check.state], check.name, check.detail) for check in checks]
    click.echo(table(("", "what", "found"), rows, columns=columns))
    to_do: dict[str, list[str]] = {}
    for check in checks:
        if check.remedy and check.state is not State.OK:
            to_do.setdefault(clean(check.remedy), []).append(clean(check.name))
    for remedy, names in to_do.items():
        click.echo(f"\n{', '.join(names)}\n  → {remedy}")


async def deployed(cluster: Cluster) -> dict[str, str]:
    """Variables of the server that is deployed in the namespace, as far as they stand in its Deployment; {}: none is."""
    try:
        found = await cluster.get("Deployment", DEPLOYMENT, patience=look.PATIENCE) or {}
        containers = found["spec"]["template"]["spec"]["containers"]
        (server,) = [one for one in containers if one["name"] == "server"]
        return {one["name"]: one["value"] for one in server["env"] if one.get("value")}
    except (ClusterError, KeyError, ValueError, TypeError):  # not for this account to see, or not as ours is
        return {}


async def secrets(cluster: Cluster) -> list[Check]:
    """Whether the Secrets are there that server and middlemen mount."""
    found = []
    for name, keys in NAMES.items():
        there = await cluster.get("Secret", name, patience=look.PATIENCE)
        lacking = [key for key in keys if not ((there or {}).get("data") or {}).get(key)]
        if there is None or lacking:
            detail = "not there" if there is None else f"without {', '.join(lacking)}"
            remedy = (
                f"hawk server deploy --secrets --bundled-database | kubectl create -n {cluster.namespace} -f - "
                "(or --database-url FILE)"
            )
            found.append(Check(f"secret {name}", State.MISSING, detail, remedy))
        else:
            found.append(Check(f"secret {name}", State.OK, ", ".join(keys)))
    there = await cluster.get("Secret", PROVIDER_KEYS, patience=look.PATIENCE)
    held = sorted((there or {}).get("data") or {})
    if held:
        found.append(Check(f"secret {PROVIDER_KEYS}", State.OK, ", ".join(held)))
    else:
        remedy = (
            f"kubectl create secret generic {PROVIDER_KEYS} -n {cluster.namespace} --from-file=OPENAI_API_KEY=FILE, "
            "unless no model needs one."
        )
        found.append(Check(f"secret {PROVIDER_KEYS}", State.WARN, "no key of a model provider", remedy))
    return found


async def storage(cluster: Cluster) -> list[Check]:
    """Whether the server's volume is there, or can be made."""
    claim = await cluster.get("PersistentVolumeClaim", CLAIM, patience=look.PATIENCE)
    phase = str(((claim or {}).get("status") or {}).get("phase") or "")
    if phase == "Bound":
        return [Check("storage", State.OK, f"{CLAIM} is bound")]
    wanted = ((claim or {}).get("spec") or {}).get("storageClassName")
    try:
        answer = await cluster.requests.send(
            "GET",
            "/apis/storage.k8s.io/v1/storageclasses",
            what="list storage classes",
            patience=look.PATIENCE,
        )
    except ClusterError as ex:
        if ex.fields.get("status") != 403:
            raise
        return [Check("storage", State.WARN, "unknown: this account may not see storage classes")]
    classes = {item["metadata"]["name"]: item for item in answer.get("items") or ()}
    default = [name for name, item in classes.items() if _is_default(item)]
    chosen = wanted or (default[0] if default else None)
    if chosen is not None and (not wanted or wanted in classes):
        return [Check("storage", State.OK, f"class {clean(chosen)}")]
    detail = f"no class {clean(wanted)}" if wanted else "no default storage class"
    remedy = f"Name a storage class in the claim {CLAIM} of your overlay, or make a volume for it."
    return [Check("storage", State.MISSING, detail, remedy)]


def _is_default(item: dict[str, object]) -> bool:
    meta = item.get("metadata")
    notes = meta.get("annotations") if isinstance(meta, dict) else None
    return (notes or {}).get("storageclass.kubernetes.io/is-default-class") == "true"


async def trial_pod(cluster: Cluster, settings: ClusterSettings) -> list[Check]:
    """Run the image for a moment: it is there or can be pulled, and starts as runners do."""
    manifest = trial.runner(
        settings.image, pull_policy=settings.pull_policy, pull_secrets=settings.pull_secrets
    )
    manifest["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "10m", "memory": "64Mi"},
        "limits": {"memory": "512Mi"},
    }
    began = time.monotonic()
    pod = await cluster.create(manifest)
    name = pod["metadata"]["name"]
    try:
        while True:
            found = await cluster.get("Pod", name) or {}
            phase, why = _state(found)
            took = time.monotonic() - began
            if phase == "Succeeded":
                said = clean((await cluster.logs(name, "runner")).strip())
                return [Check("trial pod", State.OK, f"{said} after {took:.1f} s")]
            if phase == "Failed" or "ImagePull" in why or why.startswith("ErrImage") or took > RUN:
                remedy = f"kubectl -n {cluster.namespace} get events shows more."
                return [
                    Check("trial pod", State.MISSING, f"{phase}: {clean(why) or 'no reason given'}", remedy)
                ]
            await asyncio.sleep(0.3)
    finally:
        await cluster.delete("Pod", name, grace=0)


def _state(pod: dict[str, object]) -> tuple[str, str]:
    """(phase, why it is not further)"""
    status = pod.get("status")
    if not isinstance(status, dict):
        return "Gone", ""
    for container in status.get("containerStatuses") or ():
        for state in (container.get("state") or {}).values():
            if state.get("reason") and state["reason"] != "Completed":
                return str(status.get("phase")), f"{state['reason']} {state.get('message', '')}".strip()
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("reason") == "Unschedulable":
            return str(status.get("phase")), f"Unschedulable: {condition.get('message', '')}"
    return str(status.get("phase")), str(status.get("message") or "")
