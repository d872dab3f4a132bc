"""How bad it is that requests to a model fail: by what kind of failure it is, how many there were, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

from hawk.core.diagnosis.causes import Cause, Severity
from hawk.core.diagnosis.failing import ROW, Failing
from hawk.core.diagnosis.view import View

SEVERAL = 4
"""Attempts of which one that fails by what it asks is that attempt's own affair."""

ALTERNATES = 60.0
"""Seconds for which failures between answers are worth a word."""

LONG = 300.0
"""Seconds of pauses in a row after which an attempt does not go on by itself: later pauses are longer still."""

PATIENCE: Mapping[Cause, float] = {
    Cause.RATE_LIMITED: 300.0,
    Cause.OVERLOADED: 300.0,
    Cause.SERVER_ERROR: 120.0,
    Cause.MALFORMED_RESPONSE: 60.0,
    Cause.EMPTY_OUTPUT: 60.0,
    Cause.CONNECT_REFUSED: 30.0,
    Cause.DNS_OR_TLS: 30.0,
}
"""Seconds without one good answer after which it won't end by itself: a busy provider recovers within minutes, a server that
is not there or answers nonsense does not."""

SETTLED: Mapping[Cause, float] = {Cause.RATE_LIMITED: 12.0}
"""Seconds without a good answer before it is more than the usual to and fro: a burst of 429 is answered by waiting, and the
pauses that providers ask for are mostly shorter than this."""


def passing(view: View, one: Failing) -> Severity | None:
    """How bad a failure is that may end by itself; None: not worth a word."""
    if not one.streak and not one.row:
        if one.over:
            return (
                Severity.FATAL if not view.evidence.progress.completed and one.over >= 2 else Severity.WARNING
            )
        if one.ended or (one.count >= 2 and one.last_ago(view) < ALTERNATES):
            return Severity.INFO
        return None
    if one.over >= 2 and not view.evidence.progress.completed and not view.attempts:
        return Severity.FATAL
    without = view.ago(one.model.failing_since or one.since) or 0.0
    in_a_row = one.streak >= ROW and one.again >= ROW - 2 and without >= SETTLED.get(one.cause, 5.0)
    if not in_a_row and not one.alone:
        return Severity.INFO
    spent = without >= PATIENCE[one.cause] and (one.streak >= ROW or one.row >= 3)
    return Severity.STUCK if spent or one.waited >= LONG else Severity.WARNING


def final(view: View, one: Failing) -> Severity | None:
    """How bad a refusal is that no retry helps, and that everybody gets who asks this model."""
    failures = one.streak + one.ended
    if failures >= 2 or (failures and one.model.last_ok is None and not view.evidence.progress.completed):
        return Severity.FATAL
    return Severity.WARNING if failures else None


def own(view: View, one: Failing) -> Severity | None:
    """How bad a refusal is that comes of what one attempt asks: others may be answered."""
    progress = view.evidence.progress
    others = one.model.last_ok is not None or progress.completed > one.over
    if others and one.over <= 1 and one.row < 2 and len(one.held) <= 1 and progress.total >= SEVERAL:
        return Severity.INFO if one.ended or one.streak or one.held else None
    if one.over >= 2 or one.ended >= 3 or (one.over and not view.evidence.progress.completed):
        return Severity.FATAL
    if one.ended:
        return Severity.WARNING
    if one.status < 400 and one.row < ROW:
        return Severity.INFO if one.streak or one.held else None
    if one.row >= 3:
        return Severity.STUCK
    if one.row >= 2 or (
        one.streak >= ROW and not one.model.last_ok
    ):  # Inspect may end an attempt by it, without an error
        return Severity.WARNING
    return Severity.INFO if one.streak else None
