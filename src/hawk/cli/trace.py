"""`hawk trace`: what a job's workers have in flight, and what they traced."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from hawk.cli.context import App, complete_job, note, pass_app, write_bytes
from hawk.cli.text import clean, plural
from hawk.errors import ConflictError, NotFoundError, ServerUnavailableError, UsageError

POLL = 1.0
MUCH = 1 << 20  # bytes of an answer after which the next is asked for at once
MOST_LINES = 50_000
MOST_ACTIONS = 100_000


@click.command(short_help="Print what a job's runner has in flight, and its trace.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(1, MOST_LINES),
    default=100,
    show_default=True,
    help="How many of the last lines.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--full", is_flag=True, help="All that is kept, not only the last lines.")
@click.option(
    "--raw", is_flag=True, help="Lines of JSON as they were written, for 'inspect trace anomalies'."
)
@click.option("--sample", metavar="UUID|ID", help="Only what is of this sample (or ID/ATTEMPT).")
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="Only what is of this worker.")
@click.option("--all", "everything", is_flag=True, help="Every action in flight, not only the longest.")
@click.option("--json", "as_json", is_flag=True, help="Actions in flight and last lines as JSON.")
@pass_app
def trace(
    app: App,
    job_id: str | None,
    lines: int,
    follow: bool,
    full: bool,
    raw: bool,
    sample: str | None,
    worker: int | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Print the actions in flight, the longest first, then the last lines of the trace. ID: the last job.

    An action (a model call, a tool call, a command in a sandbox) that is in flight has begun and not ended:
    that is what its attempt waits for. Works as well when the worker has died: then it is what was in flight.
    """
    _check(follow=follow, full=full, raw=raw, as_json=as_json)
    job_id = app.job(job_id)
    chosen = {"sample": sample, "worker": worker}
    if as_json:
        most = MOST_ACTIONS if everything else None
        write_bytes(app.client.trace_actions_json(job_id, lines=lines, most=most, **chosen))
        app.remember_job(job_id)
        return
    if raw:
        _raw(app, job_id, lines, chosen, follow=follow, full=full)
    else:
        _shown(app, job_id, lines, chosen, follow=follow, full=full, everything=everything)


def _check(*, follow: bool, full: bool, raw: bool, as_json: bool) -> None:
    if follow and full:
        raise UsageError("--full and -f exclude each other.", remedy="Use -f -n 50000 to see much and go on.")
    if as_json and (follow or full or raw):
        raise UsageError("--json goes with neither -f, --full nor --raw.", remedy="--raw prints JSON lines.")


def _raw(app: App, job_id: str, lines: int, chosen: dict[str, Any], *, follow: bool, full: bool) -> None:
    if full:
        _write(app.client.whole_trace(job_id, **chosen))
        app.remember_job(job_id)
        return
    cursor = "0"
    try:
        part = app.client.trace(job_id, lines=lines, **chosen)
    except NotFoundError:
        if not follow:
            raise
        app.client.job_state(job_id)  # an unknown job is an error still
        note(f"{job_id} has no trace yet; waiting for it.")
    else:
        cursor = part.cursor
        _write([part.lines])
    app.remember_job(job_id)
    if follow:
        for data in _follow(app, job_id, cursor, chosen):
            _write([data])


def _shown(
    app: App,
    job_id: str,
    lines: int,
    chosen: dict[str, Any],
    *,
    follow: bool,
    full: bool,
    everything: bool,
) -> None:
    from hawk.cli import trace_text

    most = MOST_ACTIONS if everything else trace_text.FEW
    found = app.client.trace_actions(job_id, lines=0 if full else lines, most=most, **chosen)
    app.remember_job(job_id)
    if not found.workers:
        _say_empty(app, job_id, chosen["worker"])
    else:
        click.echo(trace_text.in_flight(found, _columns()) + "\n")
    if full and found.workers:
        for raw in _lines(app.client.whole_trace(job_id, **chosen)):
            click.echo(trace_text.line(raw))
        return
    for item in found.lines:
        click.echo(trace_text.line(item))
    if found.workers and not found.lines and chosen["sample"]:
        note(f"No line of the trace is of sample {chosen['sample']!r}: hawk list samples {job_id}")
    if follow:
        for data in _follow(app, job_id, found.cursor, chosen):
            for raw in data.splitlines():
                click.echo(trace_text.line(raw))
            sys.stdout.flush()
    elif found.truncated:
        note(f"(the last {plural(len(found.lines), 'line')}; --full prints all)")


def _say_empty(app: App, job_id: str, worker: int | None) -> None:
    state = app.client.job_state(job_id)
    whose = f"Worker {worker} of {job_id}" if worker is not None else job_id
    note(
        f"{whose} has no trace: no worker of it has begun to run attempts ({state.status.label}).\n"
        f"  → hawk watch {job_id} --no-follow says what it waits for, hawk logs {job_id} what was written."
    )


def _follow(app: App, job_id: str, cursor: str, chosen: dict[str, Any]) -> Iterator[bytes]:
    """What is written from the cursor on, until the job ends; workers and servers may come and go meanwhile."""
    hurry = False
    while True:
        sys.stdout.flush()
        time.sleep(0 if hurry else POLL)
        try:
            ended = app.client.job_state(job_id).status.terminal
            part = app.client.trace(job_id, since_bytes=cursor, **chosen)
        except ServerUnavailableError:
            app.reconnect()
            continue
        except ConflictError:
            return
        except NotFoundError:  # no worker has begun
            if ended:
                return
            continue
        cursor, hurry = part.cursor, len(part.lines) > MUCH
        if part.lines:
            yield part.lines


def _write(parts: Iterable[bytes]) -> None:
    """Bytes as they are; without what a terminal would obey, where there is one."""
    sys.stdout.flush()
    terminal = sys.stdout.isatty()
    for part in parts:
        data = (
            clean(part.decode("utf-8", "replace"), lines=True).encode("utf-8", "replace")
            if terminal
            else part
        )
        rest = memoryview(data)
        while rest:
            rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def _lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _columns() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
