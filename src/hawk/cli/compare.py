"""`hawk compare`: two runs of the same pairs, and whether what differs is more than noise."""

from __future__ import annotations

import shutil
import sys

import click

from hawk.cli.context import App, complete_job, pass_app
from hawk.cli.report import print_json


@click.command(short_help="Say whether two eval sets differ by more than noise.")
@click.argument("a", metavar="A", shell_complete=complete_job)
@click.argument("b", metavar="B", shell_complete=complete_job)
@click.option("--json", "as_json", is_flag=True, help="Print the whole comparison as JSON.")
@click.option("--all", "everything", is_flag=True, help="Name every pair that changed.")
@pass_app
def compare(app: App, a: str, b: str, as_json: bool, everything: bool) -> None:
    """Compare eval set B with A, pair by pair: the verdict first, then the evidence.

    The verdict is noise, throttling (and by whom), regression, improvement, or underpowered, with the smallest loss
    that these pairs could have shown. docs/reports.md says how it is reached.
    """
    body = app.client.compare_json(a, b)
    if as_json:
        print_json(body)
        return
    from hawk.calls import decode
    from hawk.cli.compare_text import render
    from hawk.core.attempts.report import Comparison

    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(render(decode(body, Comparison), everything=everything, columns=columns))
