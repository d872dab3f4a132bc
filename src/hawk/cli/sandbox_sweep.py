"""`hawk sandbox sweep`: what dead keepers left, and if asked for what Inspect's docker provider did, or workers in a cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hawk.cli.context import note
from hawk.cli.text import clean, local_time, plural
from hawk.config.settings import Settings
from hawk.sandbox.names import store_path
from hawk.sandbox.sweep import keepers, sweep

if TYPE_CHECKING:
    from hawk.kube.leftovers import Found

SHOWN = 20
"""Objects of a cluster that stay and are named; a Job's hundreds are only counted."""


class InCluster(NamedTuple):
    """Which pods are meant.

    Attributes:
        namespace: None: the one that settings name.
        older_than: Seconds; None: only what is known to be dead.
    """

    namespace: str | None = None
    older_than: float | None = None


def run(settings: Settings, *, docker: bool, pods: InCluster | None, dry_run: bool) -> dict[str, Any]:
    """Sweep: `keepers`, `processes`, `cgroups`, `directories`; with docker `projects`; with pods `namespace` and
    `objects`; `failed`, in words; `dry_run`.

    Raises:
        SandboxError: The docker engine does not answer.
        ClusterError: The cluster does not, or refuses.
    """
    store = store_path(settings)
    if dry_run:
        found: dict[str, Any] = {"keepers": [k.name for k in keepers(store) if not k.alive]}
    else:
        swept = sweep(store)
        found = {
            "keepers": swept.keepers,
            "processes": swept.processes,
            "cgroups": swept.cgroups,
            "directories": swept.directories,
        }
    found |= {"dry_run": dry_run, "failed": []}
    if docker:
        found["projects"] = _sweep_docker(found["failed"], dry_run=dry_run)
    if pods is not None:
        import asyncio

        found |= asyncio.run(_sweep_pods(pods, found["failed"], dry_run=dry_run))
    return found


async def _sweep_pods(wanted: InCluster, failed: list[str], *, dry_run: bool) -> dict[str, Any]:
    from hawk.kube.api import connect
    from hawk.kube.leftovers import look_at_secrets, remove_found
    from hawk.sandbox.pod.sweep import look

    async with await connect(namespace=wanted.namespace) as cluster:
        objects = await look(cluster, older_than=wanted.older_than)
        objects += await look_at_secrets(cluster, older_than=wanted.older_than)
        chosen = [one for one in objects if one.abandoned]
        if not dry_run:
            failed += await remove_found(cluster, chosen)
        return {"namespace": cluster.namespace, "objects": objects}


def _sweep_docker(failed: list[str], *, dry_run: bool) -> list[dict[str, Any]]:
    from datetime import UTC, datetime

    from hawk.sandbox.dockerleft import projects, remove

    rows = []
    for project in projects():
        left = remove(project) if project.abandoned and not dry_run else []
        failed.extend(f"{project.name}: {why}" for why in left)
        rows.append(
            {
                "name": project.name,
                "created": datetime.fromtimestamp(project.created, UTC).isoformat(),
                "containers": len(project.containers),
                "networks": len(project.networks),
                "volumes": len(project.volumes),
                "abandoned": project.abandoned,
                "may_belong_to": project.owners,
                "removed": project.abandoned and not dry_run and not left,
            }
        )
    return rows


def print_sweep(found: dict[str, Any]) -> None:
    """In words; what stays because it may belong to somebody is named with whom."""
    would = "Would remove" if found["dry_run"] else "Removed"
    rest = [
        plural(found[field], noun)
        if noun != "process"
        else f"{found[field]} process{'es'[: 2 * (found[field] != 1)]}"
        for field, noun in (
            ("processes", "process"),
            ("cgroups", "cgroup"),
            ("directories", "scratch directory"),
        )
        if found.get(field)
    ]
    if found["keepers"]:
        click.echo(
            f"{would} what {plural(len(found['keepers']), 'dead keeper')} left"
            f"{': ' if rest else ''}{', '.join(rest)}."
        )
    for project in found.get("projects", ()):
        what = ", ".join(
            plural(project[f"{noun}s"], noun)
            for noun in ("container", "network", "volume")
            if project[f"{noun}s"]
        )
        said = f"{project['name']} of {local_time(project['created'])} ({what})"
        if project["abandoned"]:
            click.echo(
                f"{would} {said}." if found["dry_run"] or project["removed"] else f"Not removed: {said}."
            )
        else:
            owners = project["may_belong_to"]
            more = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
            click.echo(f"Kept {said}: it may belong to process {clean(owners[0])}{more}.")
    _print_objects(found, would)
    for why in found["failed"]:
        note(clean(why))
    if not found["keepers"] and not found.get("projects") and not found.get("objects"):
        note("Nothing was left behind.")


def _print_objects(found: dict[str, Any], would: str) -> None:
    objects: list[Found] = found.get("objects", [])
    for one in objects:
        if one.abandoned:
            click.echo(f"{would} {_named(one)}: {clean(one.why)}.")
    kept = [one for one in objects if not one.abandoned]
    for one in kept[:SHOWN]:
        click.echo(f"Kept {_named(one)}: {clean(one.why)}.")
    if len(kept) > SHOWN:
        counts = Counter(one.kind for one in kept[SHOWN:])
        click.echo(f"Kept {', '.join(f'{count} more of kind {kind}' for kind, count in counts.items())}.")


def _named(one: Found) -> str:
    return (
        f"{one.kind} {clean(one.name)} of {local_time(one.created)}"
        if one.created
        else f"{one.kind} {clean(one.name)}"
    )
