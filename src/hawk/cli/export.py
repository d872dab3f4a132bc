"""`hawk export`: everything that came of the attempts, as files."""

from __future__ import annotations

from pathlib import Path

import click

from hawk.cli.context import App, complete_job, note, pass_app
from hawk.cli.outfile import unwritable, write_whole
from hawk.cli.text import plural, size
from hawk.errors import UsageError


@click.command(short_help="Save results and workspaces of an eval set.")
@click.argument("eval_set_id", metavar="ID", shell_complete=complete_job)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@pass_app
def export(app: App, eval_set_id: str, directory: Path) -> None:
    """Save what came of the attempts of an eval set into DIR, which must be empty or new.

    DIR gets attempts/<pair>/<k>/ with result.json and, where one was kept, workspace.tar.zst as they are; report.json,
    report.html and attempts.csv. Of a running eval set, what there is by now.
    """
    from hawk.calls import decode
    from hawk.cli import report_csv, report_html
    from hawk.cli.untar import unpack
    from hawk.core.attempts.report import Report

    client = app.client
    client.report_json(eval_set_id)  # an unknown id, or one without a plan, makes no directory
    _prepare(directory)
    files, bytes_ = unpack(client.export(eval_set_id), directory)
    body = client.report_json(eval_set_id)
    found = decode(body, Report)
    write_whole(directory / "attempts.csv", report_csv.render(found).encode("utf-8", "replace"))
    write_whole(directory / "report.html", report_html.render(found).encode("utf-8", "replace"))
    write_whole(directory / "report.json", body)
    app.remember_eval_set(eval_set_id)
    note(f"Wrote {plural(files, 'file')} of attempts ({size(bytes_)}) and the report to {directory}.")


def _prepare(directory: Path) -> None:
    """Raises: UsageError for a directory with something in it; StorageError when it can't be made."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if next(directory.iterdir(), None) is not None:
            raise UsageError(
                f"{directory} is not empty.",
                remedy="Name a new directory: an export never mixes with other files.",
            )
    except OSError as ex:
        raise unwritable(directory, ex) from ex
