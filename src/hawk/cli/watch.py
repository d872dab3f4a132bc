"""`hawk watch`: one snapshot, or live until the job ends."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from hawk.cli.context import App, complete_job, job_runs_on, on_terminal, pass_app, write_bytes

if TYPE_CHECKING:
    from hawk.core.snapshot import Snapshot


@click.command(short_help="Watch a job until it ends.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("--no-follow", is_flag=True, help="Print one snapshot and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one snapshot as JSON, whole.")
@click.option("--exit-status", is_flag=True, help="End with 3 when the job is stuck (and 1 when it failed).")
@pass_app
def watch(app: App, job_id: str | None, no_follow: bool, as_json: bool, exit_status: bool) -> None:
    """Show how a job is doing, live until it ends. ID: the last job.

    Attempts that most need attention come first, each with what it waits for. Piped, a line is printed for
    each change. Ctrl-C ends the view, never the job. Ends with 0 for complete, 1 for failed or deleted.
    """
    job_id = app.job(job_id)
    if not (no_follow or as_json):
        with job_runs_on(job_id):
            from hawk.cli import follow

            snapshot = follow.follow(app, job_id, until_stuck=exit_status)
        raise click.exceptions.Exit(follow.exit_code(snapshot.status, until_stuck=exit_status))
    from hawk.calls import decode
    from hawk.core.snapshot import StatusResponse

    body = app.client.status_json(job_id)
    snapshot = decode(body, StatusResponse).data
    app.remember_job(job_id)
    if as_json:
        _print_json(body)
    else:
        from hawk.cli.watch_model import server_now

        _print_snapshot_text(snapshot, server_now(snapshot, 0, datetime.now(UTC)))
    if exit_status:
        from hawk.cli import follow

        raise click.exceptions.Exit(follow.exit_code(snapshot.status, until_stuck=True))


def _print_json(body: bytes) -> None:
    """As served; for the eyes indented, and with every odd character escaped."""
    if sys.stdout.isatty():
        import json

        click.echo(json.dumps(json.loads(body), indent=2))
    else:
        write_bytes(body)


def _print_snapshot_text(snapshot: Snapshot, now: datetime) -> None:
    from hawk.cli import watch_plain

    if not on_terminal():
        click.echo(watch_plain.render(snapshot, now))
        return
    from rich.console import Console

    from hawk.cli.watch_view import SNAPSHOT_ROWS, Size, view

    console = Console()
    unicode = console.encoding.lower().startswith("utf")
    console.print(view(snapshot, now, Size(console.width, SNAPSHOT_ROWS), unicode=unicode, live=False))
