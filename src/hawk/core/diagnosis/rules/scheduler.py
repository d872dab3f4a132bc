"""Rules of the scheduler: what waits for its turn, for a person who paused it, or for a stop to end."""

from __future__ import annotations

from collections.abc import Iterator

from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.verdict import Fix, FixKind
from hawk.core.diagnosis.view import View
from hawk.core.states import QUEUED, JobStatus, Operation
from hawk.core.text import duration, one_line

STOP = 95.0
"""Seconds that a stop may take with all its steps: a minute for scoring, then the signals."""

BEGUN = 10.0
"""Seconds in which all attempts that may begin at once have begun."""

_GATE = "PauseGate"

_TURN = "their turn"


def no_slot(view: View) -> Iterator[Finding]:
    waiting = sum(count for why, count in view.evidence.waiting.items() if why.startswith(_TURN))
    running, slots = view.evidence.progress.running, view.job.slots
    if running and (view.ago(view.job.phase_since) or 0.0) > BEGUN:
        waiting += view.evidence.waiting.get(QUEUED, 0)
    if not waiting or view.job.operation is not None or view.job.status.terminal:
        return
    bound = f" ({one_line(view.job.slots_by, 120)})" if view.job.slots_by else ""
    yield Finding(
        Severity.INFO,
        f"{waiting:,} attempts wait for a place: {running:,} run, {slots:,} may at once{bound}",
        [
            fact(Source.PLAN, f"{slots:,} attempts run at once{bound}"),
            fact(Source.CONTROL, f"{running:,} run now"),
        ],
        waiting=waiting,
        subject=one_line(view.job.slots_by, 60),
    )


def paused(view: View) -> Iterator[Finding]:
    if view.job.operation is Operation.PAUSED:
        running = view.evidence.progress.running
        yield Finding(
            Severity.INFO,
            f"it is paused: nothing new begins{f', {running:,} attempts still run' if running else ''}",
            [fact(Source.JOURNAL, "it was paused")],
            whole=not running,
            waiting=view.evidence.progress.waiting,
            next="hawk unpause {job}",
        )
    held = [i for i, a in enumerate(view.attempts) if a.wait is not None and _GATE in " ".join(a.wait.frames)]
    if held and view.job.operation is not Operation.PAUSED:
        place = view.attempts[held[0]].wait
        yield Finding(
            Severity.INFO,
            f"{len(held)} attempts wait at a pause: somebody paused their model, task or process",
            [fact(Source.RECORDER, "they wait at Inspect's gate for pauses", place.since if place else None)],
            held=held,
            next="hawk unpause {job}",
        )
    for task in view.evidence.tasks:
        if task.paused:
            yield Finding(
                Severity.INFO,
                f"task {task.name} is paused",
                [fact(Source.CONTROL, f"task {task.name} is paused")],
                waiting=task.progress.waiting,
                subject=task.name,
            )
    for change in view.evidence.journal[-50:]:
        if (
            change.kind == "fix"
            and change.state == "paused"
            and not _resumed(view, change.subject, change.at)
        ):
            yield Finding(
                Severity.INFO,
                f"model {change.subject} is paused",
                [fact(Source.JOURNAL, change.reason or "it was paused", change.at)],
                subject=change.subject,
                since=change.at,
                fix=Fix(FixKind.RESUME_MODEL, subject=change.subject),
            )


def _resumed(view: View, subject: str, at: str) -> bool:
    return any(
        c.kind == "fix" and c.state == "resumed" and c.subject == subject and c.at > at
        for c in view.evidence.journal
    )


def queued(view: View) -> Iterator[Finding]:
    job = view.job
    if job.status is not JobStatus.PENDING or job.phase not in ("queued", "new"):
        return
    place = f", {job.queue_place} in the queue" if job.queue_place else ""
    since = view.ago(job.submitted_at) or 0.0
    yield Finding(
        Severity.INFO,
        f"it waits to be started for {duration(since)}{place}",
        [fact(Source.ENGINE, f"no runner has taken it yet{place}", job.submitted_at)],
        whole=True,
        since=job.submitted_at,
    )


def stopping(view: View) -> Iterator[Finding]:
    if view.job.operation is not Operation.STOPPING or view.job.status.terminal:
        return
    since = view.ago(view.job.stopping_since) or 0.0
    left = len(view.attempts)
    waits = ", ".join(a.name for a in view.attempts[:3]) + (" …" if left > 3 else "")
    yield Finding(
        Severity.WARNING if since > STOP else Severity.INFO,
        f"it is being stopped for {duration(since)}: {left:,} attempts are still being ended"
        + (f" ({one_line(waits, 200)})" if waits else ""),
        [fact(Source.JOURNAL, "a stop was asked for", view.job.stopping_since)],
        held=view.everybody,
        since=view.job.stopping_since,
        cost=0.0,
    )


RULES: tuple[Rule, ...] = (
    rule(Cause.NO_SLOT, no_slot),
    rule(
        Cause.PAUSED,
        paused,
        rules_out=[
            Cause.NO_SLOT,
            Cause.QUEUE_WAIT,
            Cause.AWAIT_NEVER_RESOLVED,
            Cause.BLACK_HOLE,
            Cause.SLOW_GENERATION,
            Cause.SCORER_HUNG,
        ],
    ),
    rule(Cause.QUEUED, queued),
    rule(Cause.STOPPING, stopping, rules_out=[Cause.NO_SLOT, Cause.PROGRESSING, Cause.LONG_TAIL]),
)
