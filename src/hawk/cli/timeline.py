"""`hawk timeline`: where the time of a sample went."""

from __future__ import annotations

import json
import shutil
import sys

import click

from hawk.cli.context import App, note, pass_app, write_bytes
from hawk.cli.text import clean, plural
from hawk.errors import NotFoundError, UsageError

WIDEST = 200
PIPED = 110


@click.command(short_help="Show where a sample's time went.")
@click.argument("sample_uuid", metavar="[UUID]", required=False)
@click.option(
    "--top", type=click.IntRange(min=1), default=10, show_default=True, help="So many of the longest."
)
@click.option("--all", "everything", is_flag=True, help="Every span in the tree, not only the longest.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--otlp", metavar="FILE|URL", help="Write OTLP/JSON, or send it to an OpenTelemetry collector.")
@pass_app
def timeline(
    app: App, sample_uuid: str | None, top: int, everything: bool, as_json: bool, otlp: str | None
) -> None:
    """Show where the time of a sample went ('hawk list samples' shows their UUIDs).

    It works while the sample runs, after it has ended, and after its runner has died. Without UUID: the totals of
    the last eval set.
    """
    if sample_uuid is None:
        if otlp is not None:
            raise UsageError(
                "--otlp sends the spans of one sample.", remedy="hawk timeline UUID --otlp FILE|URL"
            )
        _eval_set(app, top, as_json)
    elif otlp is not None:
        _export(app, sample_uuid, otlp)
    elif as_json:
        _print_json(app.client.timeline_json(_plain(sample_uuid)))
    else:
        _sample(app, sample_uuid, top, everything)


def _sample(app: App, uuid: str, top: int, everything: bool) -> None:
    from hawk.cli.timeline_text import head, sample_blocks
    from hawk.cli.timeline_tree import ROWS, waterfall

    found = app.client.timeline(_plain(uuid))
    if not found.spans:
        click.echo(head(found))
        note("Nothing is recorded of it yet.")
        return
    columns = _columns()
    blocks = [
        *sample_blocks(found, top, columns),
        waterfall(found, columns, rows=None if everything else ROWS),
    ]
    click.echo("\n\n".join(blocks))


def _eval_set(app: App, top: int, as_json: bool) -> None:
    from hawk.cli.timeline_text import eval_set_blocks

    eval_set_id = app.eval_set(None)
    if as_json:
        _print_json(app.client.eval_set_timeline_json(eval_set_id))
        return
    found = app.client.eval_set_timeline(eval_set_id)
    if not found.samples:
        note(f"No sample of {eval_set_id} has begun yet.")
        return
    click.echo("\n\n".join(eval_set_blocks(found, top, _columns())))


def _export(app: App, uuid: str, target: str) -> None:
    from hawk.cli.timeline_otlp import export

    found = app.client.timeline(_plain(uuid))
    if not found.spans:
        raise NotFoundError(f"Nothing is recorded of sample {clean(uuid)!r} yet.", remedy="Try again later.")
    where = export(found, target)
    note(f"{plural(len(found.spans), 'span')} → {where}")


def _plain(uuid: str) -> str:
    """Raises: UsageError for what can't be a uuid, such as the `null` of a query that found nothing."""
    if uuid in ("", "null") or len(uuid) > 200:
        raise UsageError(f"{clean(uuid)[:80]!r} is not a sample UUID.", remedy="hawk list samples")
    return uuid


def _columns() -> int:
    return min(WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else PIPED


def _print_json(body: bytes) -> None:
    if sys.stdout.isatty():
        click.echo(json.dumps(json.loads(body), indent=2))
    else:
        write_bytes(body)
