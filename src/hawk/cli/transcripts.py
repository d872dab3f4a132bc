"""`hawk transcript`, `hawk transcripts`: what happened, step by step."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hawk.cli.context import App, complete_job, note, pass_app, write_bytes
from hawk.cli.text import clean, plural
from hawk.errors import HawkError, StorageError, UsageError

if TYPE_CHECKING:
    from hawk.client import HawkClient

_UUID = re.compile(r"[A-Za-z0-9_-]{1,64}")

raw_option = click.option("--raw", is_flag=True, help="Inspect's JSON instead of Markdown.")
output_option = click.option(
    "--output-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write UUID.md (or .json) files there.",
)


@click.command(short_help="Print what happened in one sample.")
@click.argument("sample_uuid", metavar="UUID")
@raw_option
@output_option
@pass_app
def transcript(app: App, sample_uuid: str, raw: bool, output_dir: Path | None) -> None:
    """Print the transcript of a sample ('hawk list samples' shows their UUIDs)."""
    uuid = _checked(sample_uuid)
    body = app.client.transcript(uuid, raw=raw)
    if output_dir is None:
        _print(body, raw)
    else:
        click.echo(_write(output_dir, uuid, body, raw))


@click.command(short_help="Print or save the transcripts of an eval set.")
@click.argument("eval_set_id", metavar="[ID]", required=False, shell_complete=complete_job)
@raw_option
@output_option
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@pass_app
def transcripts(
    app: App, eval_set_id: str | None, raw: bool, output_dir: Path | None, limit: int | None
) -> None:
    """Print the transcripts of all samples of an eval set. ID: the last eval set.

    With --raw, one JSON document a line.
    """
    eval_set_id = app.eval_set(eval_set_id)
    client = app.client
    uuids = [item.uuid for item in client.samples(eval_set_id, limit=limit)]
    app.remember_eval_set(eval_set_id)
    missing = sum(not _one(client, uuid, raw, output_dir) for uuid in uuids)
    note(f"{plural(len(uuids) - missing, 'transcript')} of {eval_set_id}.")
    if missing:
        raise HawkError(
            f"{plural(missing, 'transcript')} could not be read.", remedy=f"hawk logs {eval_set_id}"
        )


def _one(client: HawkClient, uuid: str, raw: bool, output_dir: Path | None) -> bool:
    """Print or write one; one that can't be read is said and does not end the rest."""
    try:
        body = client.transcript(_checked(uuid), raw=raw)
    except HawkError as ex:
        note(f"{uuid}: {ex.message}")
        return False
    if output_dir is not None:
        click.echo(_write(output_dir, uuid, body, raw))
    else:
        _print(body, raw)
    return True


def _checked(uuid: str) -> str:
    """Raises: UsageError for what can't be a sample's id: it becomes part of a path."""
    if not _UUID.fullmatch(uuid):
        raise UsageError(f"{clean(uuid)!r} is not a sample UUID.", remedy="hawk list samples")
    return uuid


def _print(body: bytes, raw: bool) -> None:
    """Markdown made harmless; JSON on one line, on a terminal with every odd character escaped."""
    if not raw:
        click.echo(clean(body.decode("utf-8", "replace"), lines=True).rstrip("\n"))
    elif sys.stdout.isatty():
        click.echo(json.dumps(json.loads(body), indent=2))
    else:
        write_bytes(body)


def _write(directory: Path, uuid: str, body: bytes, raw: bool) -> Path:
    path = directory / f"{uuid}.{'json' if raw else 'md'}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    except OSError as ex:
        raise StorageError(f"{path}: {ex.strerror or ex}.", remedy="Choose another --output-dir.") from ex
    return path
