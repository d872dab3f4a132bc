"""`hawk pause` and `hawk unpause`: hold a running job or one of its models, and let it go on."""

from __future__ import annotations

import click

from hawk.cli.context import App, complete_job, pass_app
from hawk.cli.fix import carry_out, report


@click.command(short_help="Hold a running job, or one model of it.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("--model", metavar="NAME", help="Only this model, as Inspect names it.")
@click.option(
    "--soft", is_flag=True, help="Let attempts in flight go on; only those that have not begun wait."
)
@pass_app
def pause(app: App, job_id: str | None, model: str | None, soft: bool) -> None:
    """Hold a running job: no attempt begins, and no new model call is made, until 'hawk unpause'. ID: the last job.

    Answers that are under way arrive, tools that run run on. The time limits of attempts run on too; limits of working
    time do not. Nothing is lost, and a worker or runner that is started again stays paused.
    """
    _act(app, job_id, "pause_model", model, soft=soft)


@click.command(short_help="Let a paused job, or one model of it, go on.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("--model", metavar="NAME", help="Only this model, as Inspect names it.")
@pass_app
def unpause(app: App, job_id: str | None, model: str | None) -> None:
    """Let a job that was paused go on. ID: the last job.

    A model that was paused by name stays so until it is named: the two pauses do not know of each other.
    """
    _act(app, job_id, "resume_model", model)


def _act(app: App, job_id: str | None, kind: str, model: str | None, *, soft: bool = False) -> None:
    job_id = app.job(job_id)
    answer = carry_out(app, job_id, {"action": {"kind": kind, "subject": model or ""}, "soft": soft})
    app.remember_job(job_id)
    report(job_id, answer)
    raise click.exceptions.Exit(0 if answer.done else 1)
