"""What is well: said too, since whoever looks wants to know that nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.view import ACTIVE, View
from hawk.core.states import JobStatus
from hawk.core.text import duration

LATELY = 120.0
"""Seconds within which an end of an attempt counts as progress."""

TAIL, ENOUGH = 0.9, 5
"""The tail begins when nine of ten attempts have ended, of at least five."""


def progressing(view: View) -> Iterator[Finding]:
    if view.job.status.terminal or not view.job.alive:
        return
    active = [i for i, a in enumerate(view.attempts) if a.idle is not None and a.idle < ACTIVE]
    mixed = [i for i, a in enumerate(view.attempts) if "F" in a.outcomes and "S" in a.outcomes[-4:]]
    ended = sum(
        1 for task in view.evidence.tasks if (ago := view.ago(task.last_end)) is not None and ago < LATELY
    )
    if not (active or mixed or ended):
        return
    progress = view.evidence.progress
    done = progress.total - progress.running - progress.waiting
    facts = [
        fact(
            Source.CONTROL,
            f"{len(active)} of {len(view.attempts)} attempts in flight did something in {ACTIVE:.0f} s",
        )
    ]
    if mixed:
        facts.append(
            fact(
                Source.CONTROL,
                f"{len(mixed)} attempts had failed calls that then succeeded: that is progress",
            )
        )
    if ended:
        facts.append(fact(Source.LOGS, f"attempts of {ended} tasks ended in the last {duration(LATELY)}"))
    yield Finding(
        Severity.INFO,
        f"{len(active):,} of {len(view.attempts):,} attempts in flight are active, {done:,} of {progress.total:,} have ended",
        facts,
        held=sorted({*active, *mixed}),
    )


def finishing(view: View) -> Iterator[Finding]:
    progress = view.evidence.progress
    importing = view.job.status is JobStatus.IMPORTING
    over = progress.total and not progress.running and not progress.waiting and not view.job.status.terminal
    if importing or over:
        yield Finding(
            Severity.INFO,
            f"all {progress.total:,} attempts have ended: results are being written",
            [fact(Source.LOGS, f"{progress.completed:,} completed of {progress.total:,}")],
            whole=True,
        )


def long_tail(view: View) -> Iterator[Finding]:
    progress = view.evidence.progress
    if view.job.status.terminal or not view.job.alive or not progress.running or progress.waiting:
        return
    ended = progress.total - progress.running
    if progress.total < ENOUGH or ended < TAIL * progress.total:
        return
    oldest = max((view.ago(a.started_at) or 0.0 for a in view.attempts), default=0.0)
    expected = [a.expected for a in view.attempts if a.expected is not None]
    said = f", such attempts took {duration(max(expected))} before" if expected else ""
    yield Finding(
        Severity.INFO,
        f"the last {progress.running:,} of {progress.total:,} attempts run, the oldest for {duration(oldest)}{said}",
        [fact(Source.CONTROL, f"{ended:,} of {progress.total:,} have ended")],
        held=view.everybody,
    )


RULES: tuple[Rule, ...] = (
    rule(Cause.PROGRESSING, progressing),
    rule(Cause.FINISHING, finishing),
    rule(Cause.LONG_TAIL, long_tail, rules_out=[Cause.PROGRESSING]),
)
