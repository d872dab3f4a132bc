"""`hawk logs`: the runner's output."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from hawk.cli.context import App, complete_job, note, pass_app
from hawk.cli.jobs import hours_ago
from hawk.cli.text import clean, parse_time
from hawk.errors import ServerUnavailableError

if TYPE_CHECKING:
    from hawk.replies import LogEntry

POLL = 1.0
PAGE = 10_000  # lines one poll fetches at most
EVER = 43_800.0  # hours: five years

_COLOURS = {"ERROR": "red", "CRITICAL": "red", "WARNING": "yellow", "DEBUG": "bright_black"}


@click.command(short_help="Print the output of a job's runner.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How many of the last lines.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option(
    "--hours", type=click.FloatRange(min=0), default=EVER, help="How far back.  [default: everything]"
)
@pass_app
def logs(app: App, job_id: str | None, lines: int, follow: bool, hours: float) -> None:
    """Print what supervisor and workers wrote, and what the journal noted. ID: the last job."""
    job_id = app.job(job_id)
    entries = app.client.logs(job_id, since=hours_ago(hours), limit=lines, newest_first=True)[::-1]
    app.remember_job(job_id)
    _print(entries)
    if not entries:
        note(f"{job_id} has written nothing yet.")
    if follow:
        _follow(app, job_id, entries)


def _follow(app: App, job_id: str, entries: list[LogEntry]) -> None:
    """Poll from the last line's moment on; lines of that very moment that were shown are passed over."""
    shown = entries
    while True:
        time.sleep(POLL)
        since = max((entry.timestamp for entry in shown), default=None)
        try:
            ended = app.client.job_state(job_id).status.terminal
            known = {_key(entry) for entry in shown}
            fresh = [e for e in app.client.logs(job_id, since=since, limit=PAGE) if _key(e) not in known]
        except ServerUnavailableError:
            app.reconnect()
            continue
        _print(fresh)
        latest = max((entry.timestamp for entry in [*shown, *fresh]), default=None)
        shown = [entry for entry in [*shown, *fresh] if entry.timestamp == latest]
        if ended and not fresh:
            return


def _key(entry: LogEntry) -> tuple[str, str, str]:
    return entry.timestamp, entry.service, entry.message


def _print(entries: list[LogEntry]) -> None:
    for entry in entries:
        click.echo(_line(entry))
    sys.stdout.flush()


def _line(entry: LogEntry) -> str:
    time_ = parse_time(entry.timestamp)
    when = time_.astimezone().strftime("%Y-%m-%d %H:%M:%S") if time_ else clean(entry.timestamp)
    level = clean(entry.level).upper()
    head = " ".join(part for part in (when, level and f"[{level}]", clean(entry.service)) if part)
    colour = _COLOURS.get(level)
    message = clean(entry.message, lines=True).rstrip("\n")
    return f"{click.style(head, fg=colour) if colour else head} {message}"
