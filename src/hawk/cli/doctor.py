"""`hawk doctor`: what this machine can do, and how to mend what it can't."""

from __future__ import annotations

import json

import click

from hawk.cli.context import App, pass_app
from hawk.cli.text import clean


@click.command(short_help="Say what this machine can do, and how to mend what it can't.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--engine",
    type=click.Choice(["local", "kubernetes"]),
    default="local",
    show_default=True,
    help="Where jobs are to run: this machine, or the cluster of your kubeconfig.",
)
@pass_app
def doctor(app: App, as_json: bool, engine: str) -> None:
    """Check what Hawk needs and what it can use. Ends with 1 when something needed is missing."""
    import msgspec

    from hawk.cli.doctor_checks import State, run_checks

    if engine == "kubernetes":
        from hawk.cli import doctor_cluster

        checks = doctor_cluster.run_checks()
    else:
        checks = run_checks(app.settings)
    missing = any(check.state is State.MISSING for check in checks)
    if as_json:
        click.echo(json.dumps({"ok": not missing, "checks": msgspec.to_builtins(checks)}, indent=2))
    else:
        marks = {
            State.OK: click.style("ok     ", fg="green"),
            State.WARN: click.style("without", fg="yellow"),
            State.MISSING: click.style("MISSING", fg="red", bold=True),
        }
        for check in checks:
            click.echo(f"{marks[check.state]}  {check.name:<16} {clean(check.detail)}")
            if check.remedy:
                click.echo(f"{'':25} → {clean(check.remedy)}")
    raise click.exceptions.Exit(1 if missing else 0)
