"""`hawk diagnose`: the causes of what a job waits for, with evidence, what to do and the next command."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hawk.cli.context import App, complete_job, job_runs_on, on_terminal, pass_app, write_bytes
from hawk.errors import UsageError

if TYPE_CHECKING:
    from hawk.core.diagnosis.verdict import Diagnosis

AGAIN = 2.0
"""Seconds between looks of `--follow`: a runner takes evidence as often."""


@click.command(short_help="Name the cause of a stuck job, with evidence and the next command.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("--why", is_flag=True, help="Every rule too: what it saw, or what ruled it out.")
@click.option(
    "--follow", "-f", "following", is_flag=True, help="Go on, and print what changes, until the job ends."
)
@click.option(
    "--file",
    "bundle",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="From a bundle ('hawk bundle'), without a server.",
)
@click.option("--exit-status", is_flag=True, help="End with 3 when something won't go on by itself.")
@click.option("--json", "as_json", is_flag=True, help="The whole diagnosis as JSON.")
@pass_app
def diagnose(
    app: App,
    job_id: str | None,
    why: bool,
    following: bool,
    bundle: Path | None,
    exit_status: bool,
    as_json: bool,
) -> None:
    """Say why a job does not go on: the causes, what blocks most first. ID: the last job.

    Each says what is wrong, how many attempts it holds, since when, whether it ends by itself, what was seen, what to do,
    and a command to paste. Then what is well. It works while the job runs and after its runner has died.
    'hawk fix N' carries out the remedy of verdict N, where that is safe.
    """
    if bundle is not None and (job_id or following):
        raise UsageError("--file takes no ID and can't be followed: a bundle does not change.")
    if following and as_json:
        raise UsageError("--follow prints lines for people; poll --json instead.")
    if bundle is not None:
        found = _of_bundle(bundle)
    else:
        job_id = app.job(job_id)
        if following:
            with job_runs_on(job_id):
                found = _follow(app, job_id, why)
        else:
            found = app.client.diagnosis(job_id)
        app.remember_job(job_id)
    if as_json:
        import msgspec

        write_bytes(
            msgspec.json.format(msgspec.json.encode(found))
            if sys.stdout.isatty()
            else msgspec.json.encode(found)
        )
    elif not following:
        _show(found, why)
    if exit_status and any(v.severity.blocks for v in found.verdicts):
        from hawk.cli.follow import EXIT_STUCK

        raise click.exceptions.Exit(EXIT_STUCK)


def _of_bundle(path: Path) -> Diagnosis:
    from hawk.store.bundles import open_bundle
    from hawk.store.evidence import kept_diagnosis

    with open_bundle(path) as run:
        return kept_diagnosis(run)


def _show(found: Diagnosis, why: bool) -> None:
    import shutil

    from hawk.cli.diagnose_text import explained, render

    columns = max(60, shutil.get_terminal_size((110, 24)).columns)
    text = render(found, columns)
    if why:
        text += "\n\n" + explained(found, columns)
    if on_terminal():
        click.echo_via_pager(text) if text.count("\n") > 400 else click.echo(text)
    else:
        click.echo(text)


def _follow(app: App, job_id: str, why: bool) -> Diagnosis:
    """Print the whole once, then a line for each verdict that comes, changes or goes, until the job has ended."""
    from hawk.cli.diagnose_text import changes
    from hawk.core.states import JobStatus

    found = app.client.diagnosis(job_id)
    _show(found, why)
    while not (found.status and JobStatus(found.status).terminal):
        sys.stdout.flush()
        time.sleep(AGAIN)
        before, found = found, app.client.diagnosis(job_id)
        for line in changes(before, found):
            click.echo(f"{time.strftime('%H:%M:%S')} {line}")
    return found
