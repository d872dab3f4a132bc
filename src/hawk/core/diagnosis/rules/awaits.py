"""The rule for code that awaits what never comes: no call is in flight, no timer runs, and nobody sets what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.evidence import Attempt
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.rules.commands import chain_fact, is_command, steady
from hawk.core.diagnosis.rules.tools import at_limiter
from hawk.core.diagnosis.saying import counted, lasted, named
from hawk.core.diagnosis.verdict import Fix, FixKind
from hawk.core.diagnosis.view import View
from hawk.core.recorder.waitkinds import WaitKind
from hawk.core.states import ActivityType, SamplePhase

IDLE = 40.0
"""Seconds without a sign: what other code of the same process has to do takes milliseconds, or is waiting itself."""

DOUBT = 90.0
"""The same while other attempts of the task go on: one of them may set what this one waits for."""

LOCKED = 180.0
"""The same for a lock that somebody who goes on may hold."""

_KINDS = frozenset(
    str(kind) for kind in (WaitKind.EVENT, WaitKind.LOCK, WaitKind.CONDITION, WaitKind.QUEUE, WaitKind.FUTURE)
)


_OUTSIDE = frozenset({"Model", "Tool Call", "Sandbox Exec", "Subprocess", "MCPServer"})
"""Actions that end from outside, or are told of by other rules."""


def never_resolved(view: View) -> Iterator[Finding]:
    """Attempts at the same place in one finding."""
    places: dict[tuple[str, str], list[int]] = {}
    for i in view.doing(ActivityType.SOLVER, None):
        attempt = view.attempts[i]
        if _suspended(view, attempt) and attempt.wait is not None:
            places.setdefault((attempt.wait.place, attempt.wait.kind), []).append(i)
    for (place, kind), held in places.items():
        yield _finding(view, place, kind, held)


def _suspended(view: View, attempt: Attempt) -> bool:
    wait = attempt.wait
    if (
        wait is None
        or attempt.phase is not SamplePhase.RUNNING
        or any(call.action in _OUTSIDE for call in attempt.calls)
    ):
        return False
    if wait.kind not in _KINDS or set(wait.others) - _KINDS or at_limiter(attempt) or is_command(attempt):
        return False
    if wait.label in ("an approval", "its turn", "a model's answer") or (wait.label and not wait.own):
        return False  # a wait of Inspect's that has a name
    quiet = _quiet(view, attempt)
    return quiet is not None and quiet > IDLE and steady(view, attempt)


def _quiet(view: View, attempt: Attempt) -> float | None:
    """Seconds for which nothing of an attempt has moved: neither its events nor its chain."""
    wait = attempt.wait
    there = view.ago(wait.since) if wait is not None else None
    known = [seconds for seconds in (attempt.idle, there) if seconds is not None]
    return min(known, default=None)


def _finding(view: View, place: str, kind: str, held: list[int]) -> Finding:
    first = view.attempts[held[0]]
    assert first.wait is not None
    quiet = max(_quiet(view, view.attempts[i]) or 0.0 for i in held)
    mine, tasks = set(held), {view.attempts[i].task for i in held}
    goes_on = [i for i in view.active_of(tasks) if i not in mine]
    severity, why = _severity(view, kind, held, goes_on, quiet)
    who = named(view.attempts[i].name for i in held)
    what = (
        f"{counted(len(held))} ({who}) {'await' if len(held) > 1 else 'awaits'} {WaitKind(kind).words} "
        f"in {place}, for {lasted(quiet)}{why}"
    )
    facts = [chain_fact(first), fact(Source.CONTROL, f"no call is in flight; nothing for {lasted(quiet)}")]
    if goes_on:
        facts.append(fact(Source.CONTROL, f"{counted(len(goes_on))} of the same task go on"))
    uuids = view.uuids(held)
    return Finding(
        severity,
        what,
        facts,
        held,
        subject=place,
        since=min(
            (w.since for i in held if (w := view.attempts[i].wait) is not None and w.since), default=None
        ),
        fix=Fix(FixKind.SCORE, uuids) if uuids and severity.blocks else None,
        remedy=None
        if severity.blocks
        else "Wait a moment: another attempt may be about to set it; see the line",
        next="hawk stacktrace {job} --sample {uuid}",
    )


def _severity(
    view: View, kind: str, held: list[int], goes_on: list[int], quiet: float
) -> tuple[Severity, str]:
    usual = view.learnt.idle if view.learnt.idle > IDLE else 0.0
    patience = max(DOUBT if goes_on else IDLE, min(usual, 600.0))
    if kind == WaitKind.LOCK:
        if any(_may_hold(view.attempts[i], view.attempts[held[0]]) for i in goes_on):
            return Severity.INFO, ": who holds it goes on"
        if not goes_on and len(held) > 1:
            return Severity.STUCK, ": each waits for the others"
        # Of several none of which is past the lock, somebody holds what the others want.
        patience = LOCKED if goes_on and len(held) == 1 else patience
    return (Severity.STUCK if quiet > patience else Severity.INFO), ""


def _may_hold(attempt: Attempt, waiter: Attempt) -> bool:
    """Whether an attempt is within the function in which the other waits for the lock, and past it."""
    if attempt.wait is None or waiter.wait is None or attempt.wait.place == waiter.wait.place:
        return False
    function = waiter.wait.place.rpartition(" ")[2]
    return function in attempt.wait.frames


RULES: tuple[Rule, ...] = (
    rule(
        Cause.AWAIT_NEVER_RESOLVED,
        never_resolved,
        needs=[Source.RECORDER, Source.CONTROL],
        helps=[Source.TRACE],
    ),
)
