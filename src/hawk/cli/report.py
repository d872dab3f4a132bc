"""`hawk report`: what came of an eval set's attempts, in the form that is wanted."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hawk.cli.context import App, complete_job, note, pass_app, write_bytes
from hawk.errors import UsageError

if TYPE_CHECKING:
    from hawk.core.attempts.report import Report

STDOUT = "-"
FAILED, NO_RESULT = 1, 2


@click.command(short_help="Report what came of the attempts.")
@click.argument("eval_set_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.option("--markdown", is_flag=True, help="Print a short summary for a CI run.")
@click.option(
    "--csv",
    metavar="[FILE]",
    is_flag=False,
    flag_value=STDOUT,
    help="Write one line an attempt; without FILE, or for -, to the output.",
)
@click.option("--html", metavar="FILE", help="Write a page that needs nothing else; - is the output.")
@click.option("--junit", metavar="FILE", help="Write JUnit XML, a case a pair; - is the output.")
@click.option("--all", "everything", is_flag=True, help="Show every pair, and lists in full.")
@click.option(
    "--exit-status", is_flag=True, help="End with 1 when a pair failed, with 2 when one has no result."
)
@pass_app
def report(
    app: App,
    eval_set_id: str | None,
    as_json: bool,
    markdown: bool,
    csv: str | None,
    html: str | None,
    junit: str | None,
    everything: bool,
    exit_status: bool,
) -> None:
    """Say what came of the attempts of an eval set, running or ended. ID: the last eval set.

    A pair is passed when one of its attempts passed. Without another form, prints rates, costs and the pairs that
    need a look. Several forms may be asked for at once, one of them for the output. docs/reports.md explains each
    figure.
    """
    _check_names(eval_set_id, csv, html, junit)
    wanted = {"--csv": csv, "--html": html, "--junit": junit}
    printed = [name for name, target in wanted.items() if target == STDOUT]
    printed += [name for name, given in (("--json", as_json), ("--markdown", markdown)) if given]
    if len(printed) > 1:
        raise UsageError(
            f"{' and '.join(printed)} can't both go to the output.", remedy="Give one of them a FILE."
        )
    eval_set_id = app.eval_set(eval_set_id)
    body = app.client.report_json(eval_set_id)
    found = _decode(body)
    app.remember_eval_set(eval_set_id)
    for name, target in wanted.items():
        if target is not None:
            _write(target, _renderer(name)(found))
    if as_json:
        print_json(body)
    elif markdown:
        _write(STDOUT, _markdown(found))
    elif not any(wanted.values()):
        _print_text(found, everything)
    if exit_status:
        raise click.exceptions.Exit(status_of(found))


def status_of(report: Report) -> int:
    """The exit code: `NO_RESULT` when a pair has none, else `FAILED` when a pair failed, else 0."""
    if any(row.passed is None for row in report.pairs):
        return NO_RESULT
    return FAILED if any(row.passed is False for row in report.pairs) else 0


def print_json(body: bytes) -> None:
    """As served, byte for byte; for the eyes indented, and with every odd character escaped."""
    if sys.stdout.isatty():
        import json

        click.echo(json.dumps(json.loads(body), indent=2))
    else:
        write_bytes(body)


def _check_names(eval_set_id: str | None, *files: str | None) -> None:
    """A FILE without a dot or slash, and no ID: the word is more likely the ID."""
    from hawk.config.ids import check_id

    for file in files:
        if file is None or eval_set_id is not None:
            continue
        try:
            check_id(file)
        except UsageError:
            continue
        raise UsageError(
            f"Is {file!r} the ID or the FILE?",
            remedy=f"Name both ('hawk report {file} --csv'), or write ./{file}.",
        )


def _decode(body: bytes) -> Report:
    from hawk.calls import decode
    from hawk.core.attempts.report import Report

    return decode(body, Report)


def _renderer(name: str) -> Callable[[Report], str]:
    if name == "--csv":
        from hawk.cli.report_csv import render
    elif name == "--html":
        from hawk.cli.report_html import render
    else:
        from hawk.cli.report_junit import render
    return render


def _markdown(found: Report) -> str:
    from hawk.cli.report_markdown import render

    return render(found)


def _print_text(found: Report, everything: bool) -> None:
    from hawk.cli.report_text import render

    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(render(found, everything=everything, columns=columns))


def _write(target: str, text: str) -> None:
    """As UTF-8, whatever the terminal's encoding: these are files, also when they are piped."""
    data = text.encode("utf-8", "replace")
    if target == STDOUT:
        write_bytes(data.removesuffix(b"\n"))
        return
    from hawk.cli.outfile import write_whole

    write_whole(Path(target), data)
    note(f"Wrote {target}.")
