"""`hawk stacktrace`: where the attempts of a job wait, frame by frame."""

from __future__ import annotations

import click

from hawk.cli.context import App, complete_job, pass_app, write_bytes


@click.command(short_help="Print what a job's attempts wait for, frame by frame.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option(
    "--sample", metavar="UUID", help="Only this sample: its uuid, id, ID/ATTEMPT or TASK/ID/ATTEMPT."
)
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="Only this worker.")
@click.option(
    "--all", "everything", is_flag=True, help="Every task and thread, not only what attempts wait in."
)
@click.option("--before", is_flag=True, help="What a process did last whose worker was started again.")
@click.option("--native", is_flag=True, help="Frames of C code too; holds the workers for a moment.")
@click.option("--json", "as_json", is_flag=True, help="The records as JSON.")
@pass_app
def stacktrace(
    app: App,
    job_id: str | None,
    sample: str | None,
    worker: int | None,
    everything: bool,
    before: bool,
    native: bool,
    as_json: bool,
) -> None:
    """Print threads and await chains of a job's workers, by attempt. ID: the last job.

    Asks the workers themselves while they live, busy or not. When they are gone, prints what they wrote last, and
    says when that was. First comes what most attempts wait for; '>' marks the innermost line of the author's own code.
    """
    job_id = app.job(job_id)
    query = {"sample": sample, "worker": worker, "native": "true" if native else None}
    query["before"] = "true" if before else None
    if as_json:
        body = app.client.stacktrace(job_id, format="json", **query)
    else:
        body = app.client.stacktrace(job_id, format="text", all="true" if everything else None, **query)
    app.remember_job(job_id)
    write_bytes(body.rstrip(b"\n"))
