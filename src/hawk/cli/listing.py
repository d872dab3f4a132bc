"""`hawk list`: eval sets, evals, samples."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from hawk.cli.context import App, complete_job, note, pass_app
from hawk.cli.text import clean, local_time, table

if TYPE_CHECKING:
    from hawk.replies import SampleItem

SCORES = 3  # shown of one sample

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("list", short_help="List eval sets, evals or samples.")
def list_() -> None:
    """List what there is: eval sets, their evals, their samples."""


@list_.command("eval-sets", short_help="Eval sets, newest first.")
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="At most so many.")
@click.option("--search", metavar="TEXT", help="Only those with this text in id or task names.")
@as_json_option
@pass_app
def eval_sets(app: App, limit: int, search: str | None, as_json: bool) -> None:
    """List eval sets, newest first."""
    items = app.client.eval_sets(limit=limit, search=search)
    if as_json:
        _print_json(items)
        return
    _print_table(
        ["id", "status", "created", "by", "tasks"],
        [
            [
                item.eval_set_id,
                item.status or "",
                local_time(item.created_at),
                item.created_by or "",
                ", ".join(item.task_names),
            ]
            for item in items
        ],
        empty="No eval sets.",
    )


@list_.command("evals", short_help="Evals (a task with a model) of an eval set.")
@click.argument("eval_set_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@as_json_option
@pass_app
def evals(app: App, eval_set_id: str | None, limit: int, as_json: bool) -> None:
    """List the evals of an eval set. ID: the last eval set."""
    eval_set_id = app.eval_set(eval_set_id)
    items = app.client.evals(eval_set_id)
    app.remember_eval_set(eval_set_id)
    if as_json:
        _print_json(items[:limit])
        return
    _print_table(
        ["task", "model", "status", "samples"],
        [
            [
                item.task_name,
                item.model or "",
                item.status or "",
                f"{item.completed_samples or 0}/{item.total_samples or 0}",
            ]
            for item in items[:limit]
        ],
        empty=f"No evals of {eval_set_id} yet.",
        more=max(0, len(items) - limit),
    )


@list_.command("samples", short_help="Samples of an eval set.")
@click.argument("eval_set_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@click.option("--search", metavar="TEXT", help="Only those with this text in id, uuid, task or model.")
@as_json_option
@pass_app
def samples(app: App, eval_set_id: str | None, limit: int, search: str | None, as_json: bool) -> None:
    """List the samples of an eval set, one line an attempt. ID: the last eval set."""
    eval_set_id = app.eval_set(eval_set_id)
    found = list(islice(app.client.samples(eval_set_id, limit=limit + 1, search=search), limit + 1))
    app.remember_eval_set(eval_set_id)
    items = found[:limit]
    if as_json:
        _print_json(items)
        return
    _print_table(
        ["uuid", "sample", "#", "task", "status", "scores"],
        [
            [item.uuid, item.id, str(item.epoch), item.task_name or "", _status(item), _scores(item)]
            for item in items
        ],
        empty=f"No samples of {eval_set_id} yet.",
        more=len(found) - len(items),
    )


def _status(item: SampleItem) -> str:
    text = clean(item.status) or ("error" if item.error_message else "success")
    return "running" if item.is_provisional and text == "success" else text


def _scores(item: SampleItem) -> str:
    scores = item.scores or []
    shown = ", ".join(f"{clean(s.scorer)}={clean(s.value)}" for s in scores[:SCORES])
    return shown + (f", … {len(scores) - SCORES} more" if len(scores) > SCORES else "")


def _print_json(items: list[Any]) -> None:
    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(items), indent=2))


def _print_table(headers: list[str], rows: list[list[str]], *, empty: str, more: int = 0) -> None:
    """Fit a terminal; piped, nothing is cut. What is not shown is said apart from the output."""
    if not rows:
        note(empty)
        return
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(table(headers, rows, columns=columns))
    if more:
        note("… more; --limit shows them.")
