"""`hawk rescore`: new scores for what a job's attempts left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from hawk.cli.context import App, complete_job, pass_app
from hawk.cli.eval_set import _upload_option, _with_secrets, submit


@click.command(short_help="Score the attempts of an eval set again, without an agent.")
@click.argument("eval_set_id", metavar="ID", shell_complete=complete_job)
@click.option("--name", metavar="NEW_ID", help="Id of the new job, instead of ID-rescore-1, ID-rescore-2, …")
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="Another config of the same tasks, agents and models, with another pass rule, say.",
)
@_with_secrets
@click.option(
    "--wait/--detach", "wait", default=False, help="Follow the job to its end, or leave it running (default)."
)
@_upload_option
@pass_app
def rescore(
    app: App,
    eval_set_id: str,
    name: str | None,
    config: Path | None,
    secrets: tuple[str, ...],
    secrets_files: tuple[Path, ...],
    wait: bool,
    upload: bool | None,
) -> None:
    """Score what the attempts of eval set ID left once more: their transcripts and workspaces, as they were kept.

    No agent runs and its model is not called; a scorer that asks a model does. Task files are read anew, so a scorer that
    was mended or changed is used. It is a new job: 'hawk compare ID NEW_ID' shows what changed, and 'hawk eval-set resume
    NEW_ID' goes on with one that was interrupted. docs/rescoring.md says what scorers see.
    """
    submit(app, _body(eval_set_id, name, config, secrets, secrets_files), wait=wait, upload=upload)


def _body(
    eval_set_id: str,
    name: str | None,
    config: Path | None,
    secrets: tuple[str, ...],
    secrets_files: tuple[Path, ...],
) -> dict[str, Any]:
    """The body of `POST /eval_sets/`."""
    from hawk.config.ids import check_id
    from hawk.config.secrets import gather_secrets

    asked = {"rescore": eval_set_id, "eval_set_id": None if name is None else check_id(name)}
    if config is None:
        given = gather_secrets([], names=secrets, files=secrets_files, environ=os.environ)
        return {"eval_set_config": None, "secrets": given, **asked}
    from hawk.cli.submission import prepare

    prepared = prepare(config, name=None, runs=None, secrets=secrets, secrets_files=secrets_files)
    return {**prepared.body(), **asked}
