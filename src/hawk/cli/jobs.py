"""`hawk status`, `hawk stop`, `hawk delete`: one job, once."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

import click

from hawk.cli.context import App, complete_job, note, pass_app
from hawk.core.states import StopAction
from hawk.errors import ConflictError, HawkError, UsageError

ACKNOWLEDGE = 10.0  # seconds a runner may take, beyond those that the server has waited
POLL = 0.25


@click.command(short_help="Print the raw report of a job as JSON.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option(
    "--hours", type=click.FloatRange(min=0), default=24, show_default=True, help="How far back logs go."
)
@pass_app
def status(app: App, job_id: str | None, hours: float) -> None:
    """Print processes or pods, metrics, logs and config of a job as JSON. ID: the last job."""
    import json

    job_id = app.job(job_id)
    report = app.client.monitoring(job_id, since=hours_ago(hours))
    app.remember_job(job_id)
    click.echo(json.dumps(report, indent=2))


@click.command(short_help="Stop an eval set or one sample, and keep the work so far.")
@click.argument("eval_set_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option(
    "--sample", metavar="UUID", help="Stop only this sample: its uuid, id, ID/ATTEMPT or TASK/ID/ATTEMPT."
)
@click.option(
    "--error",
    is_flag=True,
    help="Mark what is interrupted as an error (a resume runs it again) instead of scoring it.",
)
@pass_app
def stop(app: App, eval_set_id: str | None, sample: str | None, error: bool) -> None:
    """Stop an eval set: what is in flight is scored as it is. ID: the last eval set.

    Prints what the runner has acknowledged. Finished attempts keep their results, and
    'hawk eval-set resume' goes on with the rest.
    """
    eval_set_id = app.eval_set(eval_set_id)
    action = StopAction.ERROR if error else StopAction.SCORE
    answer = app.client.stop(eval_set_id, action, sample)
    app.remember_eval_set(eval_set_id)
    said = _acknowledgement(app, eval_set_id, answer.request_id, wait=not answer.acknowledged)
    if said is None and not answer.acknowledged:
        raise HawkError(
            f"The runner of {eval_set_id} has not acknowledged the stop; the request stays and will be obeyed.",
            remedy=f"hawk watch {eval_set_id} --no-follow",
        )
    what = f"sample {sample}" if sample else f"eval set {eval_set_id}"
    fate = "marked as error" if error else "scored as it is"
    detail = f": {said}" if said and said != action else ""
    note(f"Acknowledged{detail}. Stopping {what}; what is in flight is {fate}.")


def _acknowledgement(app: App, job_id: str, request_id: str, *, wait: bool) -> str | None:
    """What the runner wrote into the journal about a request, or None when it has written nothing."""
    deadline = time.monotonic() + (ACKNOWLEDGE if wait else 0)
    while True:
        for line in reversed(app.client.journal(job_id)):
            if line.kind != "stop" or line.subject != request_id:
                continue
            if line.state == "refused":
                raise ConflictError(
                    f"The runner of {job_id} refused to stop it: {line.reason or 'no reason given'}."
                )
            return line.reason or line.state
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL)


@click.command(short_help="Delete a job and everything it produced.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("-y", "--yes", is_flag=True, help="Do not ask; ID must be given.")
@pass_app
def delete(app: App, job_id: str | None, yes: bool) -> None:
    """End a job and delete its logs, results and evidence. ID: the last job.

    Asks first. Without a terminal to ask at, it refuses unless -y is given, which wants ID spelt out.
    """
    if yes and job_id is None:
        raise UsageError("With -y the id must be spelt out.", remedy="hawk delete ID -y")
    target = app.job(job_id)
    if not yes and not sys.stdin.isatty():
        raise UsageError(
            f"Not deleting {target}: there is no terminal to ask at.", remedy=f"hawk delete {target} -y"
        )
    if not yes:
        note(_description(app, target))
        click.confirm("Delete it with all its logs and results?", abort=True, err=True)
    app.client.delete(target)
    note(f"Deleted {target}.")


def _description(app: App, job_id: str) -> str:
    """The job in one line. Raises: NotFoundError for an unknown id, before anything is asked."""
    from hawk.cli.watch_model import counts_text

    snapshot = app.client.status(job_id).data
    return f"{job_id}: {snapshot.status.label}, {counts_text(snapshot.progress)}"


def hours_ago(hours: float) -> str:
    """ISO time so many hours ago; as far back as there is a calendar."""
    try:
        return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC).isoformat()
