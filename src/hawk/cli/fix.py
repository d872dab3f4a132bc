"""`hawk fix`: carry out the remedy of a verdict, after showing it and asking."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from hawk.cli.context import App, note, pass_app
from hawk.cli.text import clean, plural
from hawk.errors import ConflictError, HawkError, UsageError

if TYPE_CHECKING:
    from hawk.replies import Fixed

ACKNOWLEDGE = 30.0
"""Seconds in which the runner must have answered: an attempt that is told to end takes some, a worker too."""
POLL = 0.5
SHOWN = 20


@click.command(short_help="Carry out the remedy of a verdict.")
@click.argument("words", nargs=-1, metavar="[ID] N")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan, or what came of it, as JSON.")
@pass_app
def fix(app: App, words: tuple[str, ...], yes: bool, dry_run: bool, as_json: bool) -> None:
    """Carry out the remedy of verdict N of 'hawk diagnose'. ID: the last job.

    Shows what will be done, to which attempts, and how it is undone, and asks. What was done is in the job's journal.
    Ends with 1 when nothing could be done, or the verdict has no remedy that Hawk can carry out.
    """
    job_id, number = _which(app, words)
    planned = app.client.fix(job_id, {"verdict": number, "dry_run": True})
    app.remember_job(job_id)
    if not as_json:
        click.echo("\n".join(_plan(job_id, number, planned)))
    if not planned.steps or dry_run:
        if as_json:
            _json(planned)
        raise click.exceptions.Exit(0 if planned.steps else 1)
    if not yes:
        _ask(job_id, number)
    verdict = planned.verdict or {}
    body = {"verdict": number, "cause": verdict.get("cause"), "action": planned.fix}
    try:
        answer = carry_out(app, job_id, body)
    except ConflictError as ex:
        _show_changed(ex)
        raise
    if as_json:
        _json(answer)
    else:
        report(job_id, answer)
    raise click.exceptions.Exit(0 if answer.done else 1)


def carry_out(app: App, job_id: str, body: dict[str, Any]) -> Fixed:
    """Ask for it and wait for the runner's answer, with a sign of life.

    Raises:
        HawkError: It has not answered in time.
    """
    answer = app.client.fix(job_id, {**body, "wait": 1.0})
    if not answer.steps or answer.acknowledged or answer.request_id is None:
        return answer
    steps, request_id = answer.steps, answer.request_id
    begun = time.monotonic()
    while not answer.acknowledged:
        if time.monotonic() - begun > ACKNOWLEDGE:
            raise HawkError(
                f"The runner of {job_id} has not answered; the request stays and will be carried out.",
                remedy=f"hawk logs {job_id} -n 20",
            )
        if sys.stderr.isatty():
            click.echo(f"\rwaiting for the runner … {time.monotonic() - begun:.0f} s", nl=False, err=True)
        time.sleep(POLL)
        answer = app.client.fix_outcome(job_id, request_id)
    if sys.stderr.isatty():
        click.echo("\r" + " " * 40 + "\r", nl=False, err=True)
    answer.steps = steps
    return answer


def report(job_id: str, answer: Fixed) -> None:
    """Say what came of it, and what to look at next."""
    if not answer.steps:
        raise ConflictError(clean(answer.said), remedy=clean(answer.remedy) or None)
    for result in answer.results[:SHOWN]:
        mark = click.style("done", fg="green") if result.done else click.style("not done", fg="red")
        click.echo(f"{mark}: {clean(result.target)}: {clean(result.said)}")
    if len(answer.results) > SHOWN:
        click.echo(f"and {len(answer.results) - SHOWN:,} more")
    if not answer.results:
        click.echo(clean(answer.said))
    click.echo(f"Next: hawk diagnose {job_id}")


def _which(app: App, words: tuple[str, ...]) -> tuple[str, int]:
    """The job and the verdict's number that are meant.

    Raises:
        UsageError: No number is among the words, or too much else.
    """
    if len(words) not in (1, 2) or not words[-1].isascii() or not words[-1].isdigit() or int(words[-1]) < 1:
        raise UsageError(
            "Name the number of a verdict, after the id of a job if it is not the last one.",
            remedy="hawk diagnose shows the verdicts; then: hawk fix 1",
        )
    return app.job(words[0] if len(words) == 2 else None), int(words[-1])


def _plan(job_id: str, number: int, planned: Fixed) -> list[str]:
    verdict = planned.verdict or {}
    head = f"{number}. {clean(verdict.get('severity'))}: {clean(verdict.get('layer'))}/{clean(verdict.get('cause'))}"
    held = verdict.get("attempts") or 0
    lines = [f"{head}, holds {plural(held, 'attempt')}" if held else head, f"   {clean(verdict.get('what'))}"]
    if not planned.steps:
        lines += ["", clean(planned.said)]
        if planned.remedy:
            lines.append(f"  → {clean(planned.remedy)}")
        if verdict.get("next"):
            lines.append(f"  Next: {clean(verdict.get('next'))}")
        return lines
    lines += ["", f"Hawk will, in {job_id}:"]
    for step in planned.steps[:SHOWN]:
        lines.append(f"  - {clean(step.what)}: {clean(step.detail)}")
    if len(planned.steps) > SHOWN:
        lines.append(f"  and {len(planned.steps) - SHOWN:,} more like these")
    reversible = all(step.reversible for step in planned.steps)
    lines.append("Undo:" if reversible else "It can't be undone:")
    return lines + [f"  {text}" for text in dict.fromkeys(clean(step.undo) for step in planned.steps) if text]


def _ask(job_id: str, number: int) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            "Nothing was done: there is no terminal to ask at.", remedy=f"hawk fix {job_id} {number} --yes"
        )
    click.confirm("Do it?", abort=True, err=True)


def _show_changed(ex: ConflictError) -> None:
    """The list as it is now, where the number means another verdict than it did."""
    for verdict in ex.fields.get("verdicts") or []:
        if isinstance(verdict, dict):
            note(
                f"{clean(verdict.get('n'))}. {clean(verdict.get('severity'))}: "
                f"{clean(verdict.get('cause'))}: {clean(verdict.get('what'))}"
            )


def _json(answer: Fixed) -> None:
    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(answer), indent=2))
