"""`hawk sandbox sweep`: what dead keepers left, and if asked for what Inspect's docker provider did."""

from __future__ import annotations

from typing import Any

import click

from hawk.cli.context import note
from hawk.cli.text import clean, local_time, plural
from hawk.config.settings import Settings
from hawk.sandbox.names import store_path
from hawk.sandbox.sweep import keepers, sweep


def run(settings: Settings, *, docker: bool, dry_run: bool) -> dict[str, Any]:
    """Sweep: `keepers`, `processes`, `cgroups`, `directories`; with docker `projects`; `failed`, in words; `dry_run`.

    Raises:
        SandboxError: The docker engine does not answer.
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
    return found


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
    for why in found["failed"]:
        note(why)
    if not found["keepers"] and not found.get("projects"):
        note("Nothing was left behind.")
