"""`hawk eval-set`: submit a config or a script, or resume what was submitted."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hawk.cli.context import App, complete_job, job_runs_on, note, pass_app
from hawk.errors import HawkError

if TYPE_CHECKING:
    from hawk.replies import Submitted

PLAN_WAIT = 30.0  # seconds that enumerating may take before the command ends without showing the plan
PLAN_POLL = 0.1


class DefaultGroup(click.Group):
    """`hawk eval-set CONFIG` is `hawk eval-set run CONFIG`."""

    default = "run"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS] CONFIG | resume [ID]"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands[self.default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [*super().shell_complete(ctx, incomplete), CompletionItem(incomplete, type="file")]


@click.group(cls=DefaultGroup, no_args_is_help=True, short_help="Run an eval set, or resume one.")
def eval_set() -> None:
    """Run the eval set that CONFIG describes: a YAML file, or a Python file that calls eval_set().

    Prints the id and the plan, and ends while the job runs on. Submitting twice is safe: a job that runs is
    found, a job that has ended is resumed and its finished attempts are reused.
    """


_secret_options = [
    click.option(
        "--secret",
        "secrets",
        metavar="NAME",
        multiple=True,
        help="Pass on this environment variable; may be repeated.",
    ),
    click.option(
        "--secrets-file",
        "secrets_files",
        type=click.Path(path_type=Path),
        multiple=True,
        help="File with lines NAME=VALUE; may be repeated.",
    ),
]


_selection_options = [
    click.option(
        "--eval",
        "evals",
        metavar="NAME",
        multiple=True,
        help="Only this eval of a folder; may be repeated, hold commas, and * for any text.",
    ),
    click.option(
        "--experiment", "experiments", metavar="NAME", multiple=True, help="Only this experiment; likewise."
    ),
    click.option(
        "--suite", "suites", metavar="NAME", multiple=True, help="Only evals of this suite; likewise."
    ),
]


_upload_option = click.option(
    "--upload/--no-upload",
    "upload",
    default=None,
    envvar="HAWK_UPLOAD",
    help="Whether the config's directory is sent along; by default it is where the server is on another machine. "
    "HAWK_UPLOAD=0 or 1: the same.",
)


def _with_selection(command: Any) -> Any:
    for option in reversed(_selection_options):
        command = option(command)
    return command


def _with_secrets(command: Any) -> Any:
    for option in reversed(_secret_options):
        command = option(command)
    return command


_engine_option = click.option(
    "--engine",
    type=click.Choice(["local", "kubernetes"]),
    envvar="HAWK_ENGINE",
    help="Where it runs, whatever the config says: on this machine or on a cluster. HAWK_ENGINE: the same.",
)


@eval_set.command("run", short_help="Run the eval set of a config (the default).")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--wait/--detach", "wait", default=False, help="Follow the job to its end, or leave it running (default)."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Load the tasks and print the plan: attempts, waves, time, money. Runs nothing.",
)
@click.option("--check", is_flag=True, help="Only check the config; load no task, ask no server.")
@click.option("--name", help="Id of the eval set; what is not valid as an id begins one.")
@click.option(
    "--runs", type=click.IntRange(min=1), metavar="N", help="Attempts of each pair, instead of the config's."
)
@click.option(
    "--parallel-attempts",
    is_flag=True,
    help="Run all attempts of every pair at once. HAWK_PARALLEL_ATTEMPTS=1: unless the config names a policy.",
)
@_engine_option
@_with_selection
@_with_secrets
@click.option("--no-resume", is_flag=True, help="Start over: earlier logs are moved aside, not reused.")
@_upload_option
@pass_app
def run(
    app: App,
    config: Path,
    wait: bool,
    dry_run: bool,
    check: bool,
    name: str | None,
    runs: int | None,
    parallel_attempts: bool,
    engine: str | None,
    evals: tuple[str, ...],
    experiments: tuple[str, ...],
    suites: tuple[str, ...],
    secrets: tuple[str, ...],
    secrets_files: tuple[Path, ...],
    no_resume: bool,
    upload: bool | None,
) -> None:
    """Run the eval set that CONFIG describes."""
    from hawk.cli.selection import Selection
    from hawk.cli.submission import prepare

    submission = prepare(
        config,
        name=name,
        runs=runs,
        secrets=secrets,
        secrets_files=secrets_files,
        parallel=parallel_attempts,
        selection=Selection(evals, experiments, suites),
        engine=engine,
    )
    for warning in submission.warnings:
        note(f"Warning: {warning}")
    if dry_run or check:
        click.echo(submission.describe())
        if dry_run:
            _plan_only(app, submission.body(), upload)
        click.echo("Nothing was submitted.")
        return
    submit(app, {**submission.body(), "restart": no_resume}, wait=wait, upload=upload)


@eval_set.command("resume", short_help="Run again what is missing of an eval set.")
@click.argument("eval_set_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option(
    "--engine",
    type=click.Choice(["local", "kubernetes"]),
    help="Where it runs from now on, instead of where it ran before.",
)
@_with_secrets
@click.option(
    "--wait/--detach", "wait", default=False, help="Follow the job to its end, or leave it running (default)."
)
@pass_app
def resume(
    app: App,
    eval_set_id: str | None,
    engine: str | None,
    secrets: tuple[str, ...],
    secrets_files: tuple[Path, ...],
    wait: bool,
) -> None:
    """Run an eval set again with the config it was submitted with. ID: the last eval set.

    Finished attempts are reused. Secrets are stored nowhere, so they must be given again.
    """
    from hawk.config.secrets import gather_secrets

    body = {
        "eval_set_id": app.eval_set(eval_set_id),
        "eval_set_config": None,
        "resume": True,
        "engine": engine,
        "secrets": gather_secrets([], names=secrets, files=secrets_files, environ=os.environ),
    }
    submit(app, body, wait=wait)


def submit(app: App, body: dict[str, Any], *, wait: bool, upload: bool | None = None) -> None:
    """Submit what is described, say its plan, and follow it to its end if so wished. Ends the command then.

    Args:
        upload: Whether the files go along; None: where the server is elsewhere.
    """
    from hawk.cli import sending

    try:
        submitted, files = sending.submit(app, body, upload)
    except KeyboardInterrupt:
        note("\nInterrupted while submitting: 'hawk list eval-sets' shows whether the job has begun.")
        raise
    with job_runs_on(submitted.eval_set_id):
        app.remember_eval_set(submitted.eval_set_id)
        for warning in submitted.warnings:
            note(f"Warning: {warning}")
        _announce(submitted, resumed=bool(body.get("resume")))
        if files is not None:
            click.echo(files)
        _print_plan(app, submitted.eval_set_id)
        if not wait:
            click.echo(f"Watch it: hawk watch {submitted.eval_set_id}")
            return
        from hawk.cli import follow

        snapshot = follow.follow(app, submitted.eval_set_id)
    raise click.exceptions.Exit(follow.exit_code(snapshot.status))


def _plan_only(app: App, body: dict[str, Any], upload: bool | None) -> None:
    """Have the plan made by a job of its own, which runs nothing and is removed again."""
    from hawk.cli import sending

    submitted, files = sending.submit(app, {**body, "dry_run": True}, upload)
    try:
        if files is not None:
            click.echo(files)
        _print_plan(app, submitted.eval_set_id, dry=True)
    finally:
        app.client.delete(submitted.eval_set_id)


def _announce(submitted: Submitted, *, resumed: bool) -> None:
    if submitted.adopted:
        how = "runs already; nothing new was started"
    elif resumed or not submitted.created:
        how = "resumed; finished attempts are reused"
    else:
        how = "submitted"
    click.echo(f"Eval set ID: {submitted.eval_set_id} ({how})")


def _print_plan(app: App, eval_set_id: str, *, dry: bool = False) -> None:
    """Wait until the tasks are enumerated, and say what will run. A job that fails before says why.

    Args:
        dry: There is only the plan: wait for it as long as it takes.
    """
    from hawk.cli.plan_text import render

    deadline = time.monotonic() + PLAN_WAIT
    while dry or time.monotonic() < deadline:
        plan = app.client.plan(eval_set_id)
        if plan is not None:
            click.echo(render(plan))
            return
        snapshot = app.client.status(eval_set_id).data
        if snapshot.status.terminal:
            what = "The plan can't be made" if dry else f"{eval_set_id} failed before its tasks were known"
            remedy: str | None = snapshot.remedy or f"hawk logs {eval_set_id}"
            if dry and remedy and eval_set_id in remedy:
                remedy = None  # nothing of it will be left
            raise HawkError(f"{what}: {snapshot.reason or snapshot.status.label}", remedy=remedy)
        time.sleep(PLAN_POLL)
    note("The plan is not made yet (packages being installed, or slow task files).")
