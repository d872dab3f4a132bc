"""`hawk probe`: is it the provider, or what lies between?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from hawk.cli.context import App, complete_job, note, pass_app
from hawk.cli.text import clean, shorten
from hawk.errors import HawkError, ServerUnavailableError


@click.command(short_help="Ask a model through the middleman and directly, and compare.")
@click.argument("model")
@click.option(
    "--job",
    metavar="ID",
    shell_complete=complete_job,
    help="As this job: its token, budget, addresses and keys.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
@pass_app
def probe(app: App, model: str, job: str | None, as_json: bool) -> None:
    """Send one small request to MODEL (Inspect's name) through the middleman and the same one directly.

    Says which of them worked, whose fault it is where one did not, and what to do. Ends with 0 when both work.
    """
    from hawk.cli.middleman_link import Link
    from hawk.cli.probe_direct import without_middleman

    down: HawkError | None = None
    try:
        result = Link(app.settings).post("/admin/probe", {"model": model, "job": job})
    except ServerUnavailableError as ex:
        down = ex
        result = without_middleman(app.settings, model, ex)
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        if down is not None:
            note(f"The middleman is down: {down.message}\n  → {down.remedy}\n")
        click.echo("\n".join(_lines(result)))
    works = all(_works(result.get(leg)) for leg in ("through", "direct"))
    raise click.exceptions.Exit(0 if works else 1)


def _lines(result: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{name:<9} {_leg(result.get(key))}" for name, key in (("through", "through"), ("directly", "direct"))
    ]
    lines.append(f"{'verdict':<9} {clean(result.get('verdict'))}")
    remedy = clean(result.get("remedy"))
    if remedy:
        lines.append(f"{'':<9} → {remedy}")
    return lines


def _leg(leg: Mapping[str, Any] | None) -> str:
    if leg is None:
        return "not tried"
    seconds = leg.get("seconds")
    took = f" in {seconds:.2f} s" if isinstance(seconds, int | float) else ""
    if _works(leg):
        return click.style(f"works: {leg.get('status')}{took}", fg="green")
    status = leg.get("status")
    kind = f" {clean(leg.get('type'))}" if leg.get("type") else ""
    said = shorten(clean(leg.get("error") or _message(str(leg.get("body") or ""))), 200)
    head = f"fails: {status}{kind}" if status else f"fails:{kind or ' no answer'}"
    return click.style(f"{head}{took}", fg="red") + (f"  {said}" if said else "")


def _message(body: str) -> str:
    """What the body of an error says, without what is around it; all of it where it has another shape."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body


def _works(leg: Mapping[str, Any] | None) -> bool:
    status = leg.get("status") if leg else None
    return isinstance(status, int) and 200 <= status < 300
