"""Rules of the layer `provider`: what the provider said, or that it said nothing.

What counts is the streak, not the sum: failures that alternate with answers are progress.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from hawk.core.diagnosis.calls import Kind
from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.evidence import CallGroup, Model
from hawk.core.diagnosis.failing import ROW, Failing, failing, name_of, waiting_for_model
from hawk.core.diagnosis.failing_severity import final, own, passing
from hawk.core.diagnosis.failing_words import failing_facts, many
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.rules import silence
from hawk.core.diagnosis.saying import counted, lasted
from hawk.core.diagnosis.verdict import Fact, Fix, FixKind
from hawk.core.diagnosis.view import View

Words = Callable[[Failing], str]
Judge = Callable[[View, Failing], Severity | None]
Look = Callable[[View], Iterable[Finding]]

SAME_AGE = 0.1
"""Ages of calls that a timer ended differ by less than a tenth: what else ends them has no such habit."""

SHORTEST = 2.0
"""Seconds below which a client that goes away, and does not say why, was more likely ended by something else."""

_CLIENTS_OWN = ("APITimeoutError", "AttemptTimeoutError")
"""Errors of a client that has given up by itself."""


def _looked(cause: Cause, judge: Judge, words: Words, fixed: Callable[[View, Failing], Fix | None]) -> Look:
    """A rule's look at all models: a finding for each that fails so."""

    def look(view: View) -> Iterator[Finding]:
        for one in failing(view, cause):
            severity = judge(view, one)
            if severity is None:
                continue
            held = one.held
            if not held and one.streak >= ROW and severity.blocks:
                held = waiting_for_model(view, one.model)
            yield Finding(
                severity,
                f"{one.subject}: {words(one)}",
                failing_facts(view, one, _probe_fact(one)),
                held=held,
                ended=one.over,
                subject=one.subject,
                since=one.model.failing_since if one.streak and one.model.failing_since else one.since,
                clears=one.until if severity is not Severity.FATAL else None,
                cost=one.paused or None,
                fix=fixed(view, one) if severity is not Severity.INFO else None,
                remedy=_remedy(one),
                next=_next(one),
            )

    return look


def _next(one: Failing) -> str | None:
    """Another command than the cause's usual one: whose key it is that is wrong is known here."""
    key = one.cause in (Cause.AUTH_REJECTED, Cause.QUOTA_EXHAUSTED) and one.model.provider
    return f"hawk middleman keys set {one.model.provider}" if key else None


def _remedy(one: Failing) -> str | None:
    command = _next(one)
    return f"Set a key that works: {command}" if command and one.cause is Cause.AUTH_REJECTED else None


def _probe_fact(one: Failing) -> Fact | None:
    probe = one.model.probe
    if probe is None:
        return None
    text = f"answered {probe.status}" if probe.answered else f"did not answer: {probe.why}"
    return fact(Source.MIDDLEMAN, f"asked for its models, the provider {text}", probe.at)


def _pause(view: View, one: Failing) -> Fix:
    return Fix(FixKind.PAUSE_MODEL, subject=one.subject)


def _fewer(view: View, one: Failing) -> Fix:
    """Half of the connections that there are."""
    lane = one.model.lane
    now = (
        view.job.connections
        or (lane.in_flight if lane is not None else 0)
        or len(waiting_for_model(view, one.model))
    )
    return Fix(FixKind.RETUNE, subject="max_connections", value=float(max(1, now // 2)))


def _no_fix(view: View, one: Failing) -> None:
    return None


def _again(view: View, one: Failing) -> Fix | None:
    uuids = view.uuids(one.held)
    return Fix(FixKind.REQUEUE, uuids=uuids) if uuids else None


def _status(one: Failing) -> str:
    return f" ({one.status})" if one.status else ""


def _quoted(one: Failing) -> str:
    return f": {one.said[:160]}" if one.said else ""


# --- limits, with the pause that a provider asks for


_LONG_PAUSE = 60.0
"""Seconds of a pause that a provider asks for which are more than the usual to and fro."""

_refused = _looked(
    Cause.RATE_LIMITED, passing, lambda one: f"{many(one)} refused for the rate (429){_quoted(one)}", _fewer
)


def _rate_limited(view: View) -> Iterator[Finding]:
    paused = {name_of(model): found for model in view.models if (found := _paused(view, model)) is not None}
    for finding in _refused(view):
        pause = paused.pop(finding.subject, None)
        if pause is not None:
            finding.held = sorted({*finding.held, *pause.held})
            finding.facts += pause.facts
            finding.clears = pause.clears
            finding.severity = max(finding.severity, pause.severity, key=lambda severity: severity.rank)
        yield finding
    yield from paused.values()


def _paused(view: View, model: Model) -> Finding | None:
    """Requests that wait in the middleman because the provider said for how long."""
    lane = model.lane
    left = -(view.ago(lane.paused_until) or 0.0) if lane is not None else 0.0
    waiting = [request for request in model.open if request.phase == "waiting"]
    if lane is None or left <= 1 or not waiting:
        return None
    streaks = {group.kind for group in model.calls if group.streak}
    if streaks and Kind.RATE_LIMITED not in streaks:
        return None  # it asks for a pause for another reason, which has a rule of its own
    what = f"{name_of(model)}: the provider said to wait, {lasted(left)} are left; {len(waiting)} requests do"
    return Finding(
        Severity.WARNING if left > _LONG_PAUSE else Severity.INFO,
        what,
        [fact(Source.MIDDLEMAN, f"its lane is paused until {lane.paused_until} ({lane.paused_why})")],
        held=view.with_uuids(request.uuid for request in waiting),
        subject=name_of(model),
        clears=lane.paused_until,
    )


# --- clients that give up


def _client_timeout(view: View) -> Iterator[Finding]:
    if view.job.stopping_since is not None:
        return
    for one in failing(view, Cause.CLIENT_TIMEOUT_TOO_SHORT):
        for group in one.groups:
            said = group.error in _CLIENTS_OWN or Kind.CLIENT_TIMEOUT in one.kinds
            found = _same_age(group, shortest=0.0 if said else SHORTEST)
            tried_again = group.again >= 1 or said
            silent = one.model.probe is not None and not one.model.probe.answered
            if found is None or group.streak < 2 or not tried_again or silent:
                continue
            age, count = found
            held = one.held or waiting_for_model(view, one.model)
            usual = view.model_times(one.model)
            slow = (
                fact(
                    Source.HISTORY,
                    f"answers of this model take {lasted(usual.p50)} to {lasted(usual.p95)}",
                )
                if usual
                else None
            )
            fix = Fix(
                FixKind.RETUNE, subject="attempt_timeout", value=float(math.ceil(max(3 * age, 60) / 30) * 30)
            )
            yield Finding(
                Severity.STUCK if count >= 3 else Severity.WARNING,
                f"{one.subject}: {count} calls were given up by the client after {age:.0f} s each, before any answer",
                failing_facts(view, one, slow, _probe_fact(one)),
                held=held,
                ended=one.over,
                subject=one.subject,
                since=group.first_at,
                cost=one.paused or sum(group.seconds[-count:]),
                fix=fix,
            )
            break
        else:
            if one.over and not one.streak:
                yield Finding(
                    Severity.WARNING,
                    f"{one.subject}: a time-out of the client ended {counted(one.over, 'attempt')}",
                    failing_facts(view, one),
                    ended=one.over,
                    subject=one.subject,
                    since=one.since,
                )


def _same_age(group: CallGroup, *, shortest: float) -> tuple[float, int] | None:
    """(age, how many) of the last calls, where they ended at the same one, and not before `shortest` seconds."""
    ages = group.seconds[-min(max(group.streak, 0), len(group.seconds)) :] if group.streak else []
    if len(ages) < 2:
        return None
    newest = ages[-1]
    same = 0
    for age in reversed(ages):
        if abs(age - newest) > SAME_AGE * newest:
            break
        same += 1
    return (newest, same) if same >= 2 and newest > shortest else None


# --- the table

_Row = tuple[Cause, Judge, Words, Callable[[View, Failing], Fix | None]]
_TABLE: tuple[_Row, ...] = (
    (Cause.OVERLOADED, passing, lambda o: f"{many(o)} refused: it has no capacity{_status(o)}{_quoted(o)}", _pause),
    (Cause.SERVER_ERROR, passing, lambda o: f"{many(o)} failed on its side{_status(o)}{_quoted(o)}", _pause),
    (Cause.AUTH_REJECTED, final, lambda o: f"{_key(o)}{_quoted(o)}", _no_fix),
    (Cause.QUOTA_EXHAUSTED, final, lambda o: f"no credit or quota left{_status(o)}{_quoted(o)}", _no_fix),
    (Cause.MODEL_NOT_FOUND, final, lambda o: f"the provider knows no such model{_status(o)}{_quoted(o)}", _no_fix),
    (Cause.CONTEXT_OVERFLOW, own, lambda o: f"{many(o)} longer than the model's context{_quoted(o)}", _no_fix),
    (Cause.INVALID_REQUEST, own, lambda o: f"{many(o)} refused as wrong{_status(o)}{_quoted(o)}", _no_fix),
    (Cause.CONTENT_REFUSED, own, lambda o: f"{many(o)} refused for the content{_quoted(o)}", _no_fix),
    (Cause.MALFORMED_RESPONSE, passing, lambda o: f"{many(o)} answered with what can't be read{_quoted(o)}", _pause),
    (Cause.EMPTY_OUTPUT, passing, lambda o: f"{many(o)} answered with nothing", _again),
    (Cause.CONNECT_REFUSED, passing, lambda o: f"{many(o)} got no connection{_quoted(o)}", _pause),
    (Cause.DNS_OR_TLS, passing, lambda o: f"{many(o)} never got there{_quoted(o)}", _pause),
)  # fmt: skip


def _key(one: Failing) -> str:
    if Kind.NO_KEY in one.kinds:
        return f"there is no key of {one.model.provider}"
    return f"the key is rejected{_status(one)}"


_NEEDS: dict[Cause, tuple[Cause, ...]] = {
    Cause.AUTH_REJECTED: (Cause.SERVER_ERROR,),
    Cause.QUOTA_EXHAUSTED: (Cause.RATE_LIMITED,),
    Cause.CONTEXT_OVERFLOW: (Cause.INVALID_REQUEST,),
    Cause.EMPTY_OUTPUT: (Cause.AGENT_LOOPING,),
}
"""What is a consequence of what, beside a queue behind it."""

_WAITS = (Cause.QUEUE_WAIT, Cause.SLOW_GENERATION)


def _rule(cause: Cause, look: Look) -> Rule:
    helps = (Source.MIDDLEMAN, Source.SPANS)
    return rule(cause, look, helps=helps, rules_out=(*_NEEDS.get(cause, ()), Cause.RETRY_LOOP, *_WAITS))


RULES: tuple[Rule, ...] = (
    _rule(Cause.RATE_LIMITED, _rate_limited),
    *(_rule(cause, _looked(cause, judge, words, fixed)) for cause, judge, words, fixed in _TABLE),
    rule(
        Cause.BLACK_HOLE,
        silence.black_hole,
        helps=(Source.MIDDLEMAN, Source.HISTORY),
        rules_out=_WAITS,
    ),
    rule(
        Cause.STREAM_STALLED,
        silence.stream_stalled,
        helps=(Source.MIDDLEMAN,),
        rules_out=_WAITS,
    ),
    rule(Cause.SLOW_GENERATION, silence.slow_generation, helps=(Source.MIDDLEMAN, Source.HISTORY)),
    rule(
        Cause.CLIENT_TIMEOUT_TOO_SHORT,
        _client_timeout,
        helps=(Source.SPANS,),
        rules_out=(Cause.SLOW_GENERATION, Cause.BLACK_HOLE, Cause.CONNECT_REFUSED),
    ),
)
