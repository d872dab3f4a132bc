"""`hawk logs`: the runner's output."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from hawk.cli.context import App, complete_job, note, pass_app
from hawk.cli.jobs import hours_ago
from hawk.cli.text import clean, parse_time
from hawk.core.loglevels import LogLevel
from hawk.errors import ServerUnavailableError, UsageError

if TYPE_CHECKING:
    from hawk.replies import LogEntry

POLL = 1.0
EVER = 43_800.0  # hours: five years

OTHERS = ("supervisor", "journal", "cluster", "enumerate", "environment")
"""Who writes logs beside the workers: `cluster` says what became of the job's pods, `enumerate` finds the tasks,
`environment` installs packages."""

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
@click.option(
    "--level",
    type=click.Choice([level.value for level in LogLevel], case_sensitive=False),
    help="Only lines of this level and above.",
)
@click.option(
    "--worker",
    "whose",
    multiple=True,
    metavar="N|supervisor|journal|cluster",
    help="Only lines of this worker, of the supervisor, of the journal or of the cluster; may be repeated.",
)
@click.option("--sample", metavar="UUID|ID", help="Only lines that name this sample (or ID/ATTEMPT).")
@pass_app
def logs(
    app: App,
    job_id: str | None,
    lines: int,
    follow: bool,
    hours: float,
    level: str | None,
    whose: tuple[str, ...],
    sample: str | None,
) -> None:
    """Print what supervisor and workers wrote, what the journal noted, and what the cluster said of the job's pods.

    ID: the last job.
    """
    _check(whose)
    job_id = app.job(job_id)
    chosen = {"level": level, "worker": whose or None, "sample": sample}
    page = app.client.log_page(job_id, since=hours_ago(hours), limit=lines, sort="desc", **chosen)
    app.remember_job(job_id)
    _print(page.entries[::-1])
    if not page.entries:
        note(
            f"No line of {job_id} is of that kind."
            if level or whose or sample
            else f"{job_id} has written nothing yet."
        )
    if follow:
        _follow(app, job_id, page.cursor or "", chosen)


def _check(whose: tuple[str, ...]) -> None:
    """Raises: UsageError for what can't be anybody's."""
    for name in whose:
        if not name.isdecimal() and name not in OTHERS:
            raise UsageError(
                f"--worker {name}: there is none of that name.",
                remedy=f"Give a worker's number, or one of: {', '.join(OTHERS)}.",
            )


def _follow(app: App, job_id: str, cursor: str, chosen: dict[str, Any]) -> None:
    """Print what is written from the cursor on, until the job ends; workers, supervisor and server may come and go."""
    more = False
    while True:
        time.sleep(0 if more else POLL)
        try:
            ended = app.client.job_state(job_id).status.terminal
            page = app.client.log_page(job_id, cursor=cursor, **chosen)
        except ServerUnavailableError:
            app.reconnect()
            continue
        _print(page.entries)
        cursor, more = page.cursor or cursor, page.more
        if ended and not page.entries and not more:
            return


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
