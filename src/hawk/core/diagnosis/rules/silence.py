"""Requests that were sent and of which nothing comes: never answered, stopped half-way, or just long.

From outside these look alike for a while. What tells them apart: whether the provider answers a question that costs
nothing, how long this model takes otherwise, whether the request may think first, whether others are answered meanwhile,
and in the end, minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.evidence import Model, OpenRequest, Probe, Times
from hawk.core.diagnosis.failing import failing, name_of
from hawk.core.diagnosis.failing_words import failing_facts
from hawk.core.diagnosis.rule import Finding, fact
from hawk.core.diagnosis.saying import counted, lasted
from hawk.core.diagnosis.verdict import Fact, Fix, FixKind
from hawk.core.diagnosis.view import View
from hawk.core.states import ActivityType

SUSPICIOUS = 45.0
"""Seconds without a byte that are worth a word: most answers begin sooner, and a word costs nothing."""

SUSPICIOUS_STREAM = 40.0
"""The same where the answer was asked for in pieces: its head comes as soon as the model has begun."""

THINKS = 600.0
"""Seconds that a model which was asked to think may be silent: what clients' own time-outs allow it."""

SILENT_FOR_LONG = 600.0
"""Seconds after which a whole answer, without history or any other sign, is given up hope of: clients' default time-out."""

STREAM_FOR_LONG = 180.0
"""The same for the head of a stream: only a long queue at the provider explains as much."""

PAUSED = 30.0
"""Seconds in the middle of a stream that are worth a word: providers send signs of life every 15 s or so."""

STALLED = 90.0
"""Seconds in the middle of a stream that are no pause any more, though the provider lives."""

GONE = 180.0
"""Seconds in the middle of a stream after which nothing more will come."""

LONG = 20.0
"""Seconds from which on a call counts as long."""

FRESH = 60.0
"""Seconds for which the answer to a question counts."""

BLOCKING = ("llama-cpp-python",)
"""Servers that answer nothing else while they generate: that they don't answer a question says nothing."""


@dataclass
class Silent:
    """Requests of one model of which nothing has come, the oldest first. `quiet` is the oldest one's silence."""

    model: Model
    requests: list[OpenRequest]
    quiet: float
    severity: Severity
    because: str


def black_hole(view: View) -> Iterator[Finding]:
    """Requests without a first byte."""
    for model in view.models:
        cut = next((o for o in failing(view, Cause.BLACK_HOLE) if o.model is model and o.streak >= 2), None)
        found = silent(view, model)
        if found is None and cut is None:
            continue
        held = view.with_uuids(r.uuid for r in found.requests) if found is not None else []
        severity = found.severity if found is not None else Severity.WARNING
        what, facts = [], []
        if found is not None:
            what.append(
                f"{counted(len(found.requests), 'request')} without a byte for up to {lasted(found.quiet)}"
            )
            facts += _facts(view, found)
        if cut is not None:
            severity = Severity.STUCK
            held = sorted({*held, *cut.held})
            what.append(f"{cut.streak} requests in a row were cut off without a byte")
            facts += failing_facts(view, cut)
        hedge = f" ({found.because})" if found is not None and severity is Severity.INFO else ""
        finding = _finding(
            view, model, severity, "; ".join(what) + hedge, [*facts, *_probe_facts(view, model)], held
        )
        finding.since = (
            view.before(found.quiet) if found is not None else cut.since if cut is not None else None
        )
        finding.ended = cut.over if cut is not None else 0
        yield finding
    yield from _without_middleman(view)
    yield from _ended(view, Cause.BLACK_HOLE)


def stream_stalled(view: View) -> Iterator[Finding]:
    """Requests whose answer has begun and does not go on."""
    for model in view.models:
        cut = next(
            (o for o in failing(view, Cause.STREAM_STALLED) if o.model is model and o.streak >= 2), None
        )
        stopped = [
            r for r in model.open if r.phase == "answering" and r.quiet > (THINKS if r.reasoning else PAUSED)
        ]
        if not stopped and cut is None:
            continue
        quiet = max((r.quiet for r in stopped), default=0.0)
        dead = _dead(view, model)
        severity = (
            Severity.STUCK
            if cut is not None or quiet > GONE or (dead and quiet > SUSPICIOUS)
            else (Severity.WARNING if quiet > STALLED or dead else Severity.INFO)
        )
        what, facts, held = [], [], view.with_uuids(r.uuid for r in stopped)
        if stopped:
            what.append(
                f"{counted(len(stopped), 'answer')} stopped half-way, nothing for up to {lasted(quiet)}"
            )
            oldest = max(stopped, key=lambda r: r.quiet)
            text = (
                f"{oldest.name or oldest.id}: {oldest.bytes:,} bytes, then nothing for {lasted(oldest.quiet)}"
            )
            facts.append(fact(Source.MIDDLEMAN, text))
        if cut is not None:
            what.append(f"{cut.streak} answers in a row were cut off half-way")
            facts += failing_facts(view, cut)
            held = sorted({*held, *cut.held})
        finding = _finding(view, model, severity, "; ".join(what), [*facts, *_probe_facts(view, model)], held)
        finding.since = view.before(quiet) if stopped else cut.since if cut is not None else None
        finding.ended = cut.over if cut is not None else 0
        yield finding
    yield from _ended(view, Cause.STREAM_STALLED)


def slow_generation(view: View) -> Iterator[Finding]:
    """Requests that take long, and do what long requests do."""
    for model in view.models:
        suspects = silent(view, model)
        suspected = {r.id for r in suspects.requests} if suspects is not None else set()
        long = [
            r
            for r in model.open
            if (r.upstream_age or 0.0) > LONG
            and r.id not in suspected
            and (
                r.phase == "sent"
                or (r.phase == "answering" and r.quiet <= (THINKS if r.reasoning else PAUSED))
            )
        ]
        if not long:
            continue
        oldest = max(long, key=lambda r: r.upstream_age or 0.0)
        coming = sum(r.phase == "answering" for r in long)
        usual = view.model_times(model)
        facts = [
            fact(Source.MIDDLEMAN, f"{coming} of {counted(len(long), 'request')} have bytes coming"),
            *(
                [fact(Source.HISTORY, f"calls take {lasted(usual.p50)}, at most {lasted(usual.most)}")]
                if usual
                else []
            ),
        ]
        what = f"{name_of(model)}: {counted(len(long), 'long call')}, the longest {lasted(oldest.upstream_age or 0.0)}"
        held = view.with_uuids(r.uuid for r in long)
        yield Finding(Severity.INFO, what, facts, held=held, subject=name_of(model))


_cache: WeakKeyDictionary[View, dict[int, Silent | None]] = WeakKeyDictionary()


def silent(view: View, model: Model) -> Silent | None:
    """Requests of a model that have been silent for longer than can be passed over; None: none has."""
    known = _cache.setdefault(view, {})
    if id(model) not in known:
        known[id(model)] = _silent(view, model)
    return known[id(model)]


def _silent(view: View, model: Model) -> Silent | None:
    usual, dead = view.model_times(model), _dead(view, model)
    sent = [
        r
        for r in model.open
        if r.phase in ("sent", "connecting") and r.quiet >= _allowance(r, usual, dead=dead)
    ]
    if not sent:
        return None
    sent.sort(key=lambda r: -r.quiet)
    # The oldest of each kind tells most.
    oldest = {(r.stream, r.reasoning): r for r in reversed(sent)}.values()
    answered = view.ago(model.last_ok)
    weighed = (_weigh(model, r, len(sent), usual, answered, dead=dead) for r in oldest)
    severity, because = max(weighed, key=lambda pair: pair[0].rank)
    return Silent(model, sent, sent[0].quiet, severity, because)


def _allowance(request: OpenRequest, usual: Times | None, *, dead: bool) -> float:
    """Seconds without a byte that are nothing to speak of."""
    learnt = max(3 * usual.p95, usual.most) if usual is not None else 0.0
    least = SUSPICIOUS_STREAM if request.stream else SUSPICIOUS
    if dead:
        return max(least, min(learnt, THINKS))
    return max(least, learnt, THINKS if request.reasoning else 0.0)


def _weigh(
    model: Model, request: OpenRequest, count: int, usual: Times | None, answered: float | None, *, dead: bool
) -> tuple[Severity, str]:
    """How sure it is that nothing will come, and what keeps it from being surer.

    Args:
        count: Requests that are silent.
        answered: Seconds since the last good answer.
    """
    quiet = request.quiet
    if dead:
        return Severity.STUCK, ""
    if request.reasoning:
        return (Severity.STUCK if quiet > 2 * THINKS else Severity.WARNING), ""
    alone = answered is not None and answered < quiet  # others have been answered since it was sent
    if usual is not None and usual.count >= 3 and not alone:
        lives = model.probe is not None and model.probe.answered
        # The provider lives: then the history has to be clearer before it is believed.
        warning, stuck = (90.0, 180.0) if lives else (60.0, 90.0)
        more = 1.0 if count > 1 else 1.5
        if quiet > max(stuck, more * 6 * usual.p95, more * 2 * usual.most):
            return Severity.STUCK, ""
        if quiet > max(warning, more * 4 * usual.p95, more * 1.5 * usual.most):
            return Severity.WARNING, ""
    long = STREAM_FOR_LONG if request.stream else SILENT_FOR_LONG
    if quiet > 2 * long:
        return Severity.STUCK, ""
    if quiet > long:
        return Severity.WARNING, ""
    return Severity.INFO, "a black hole or a long generation: `hawk probe` tells"


def _dead(view: View, model: Model) -> bool:
    """The provider does not answer even what costs nothing."""
    for probe in (model.probe, model.direct):
        if probe is not None and not probe.answered and (view.ago(probe.at) or 0.0) < FRESH:
            return not model.provider.startswith(BLOCKING)
    return False


def _finding(
    view: View, model: Model, severity: Severity, what: str, facts: list[Fact], held: list[int]
) -> Finding:
    uuids = view.uuids(held)
    fix = Fix(FixKind.REQUEUE, uuids=uuids) if uuids and severity is not Severity.INFO else None
    return Finding(severity, f"{name_of(model)}: {what}", facts, held=held, subject=name_of(model), fix=fix)


def _facts(view: View, found: Silent) -> list[Fact]:
    oldest = found.requests[0]
    asked = [word for word, is_so in (("a stream", oldest.stream), ("reasoning", oldest.reasoning)) if is_so]
    wanted = f", asked for {' and '.join(asked)}" if asked else ""
    left = f"; given up in {lasted(oldest.deadline)}" if oldest.deadline is not None else ""
    facts = [
        fact(
            Source.MIDDLEMAN,
            f"{oldest.name or oldest.id}: sent, nothing for {lasted(oldest.quiet)}{wanted}{left}",
        )
    ]
    usual = view.model_times(found.model)
    if usual is not None:
        text = f"calls of this model take {lasted(usual.p50)}, 95 % at most {lasted(usual.p95)}"
        facts.append(fact(Source.HISTORY, text))
    last = found.model.last_ok
    ago = view.ago(last)
    facts.append(
        fact(
            Source.SPANS,
            "no good answer yet" if ago is None else f"the last good answer is {lasted(ago)} old",
            last,
        )
    )
    return facts


def _probe_facts(view: View, model: Model) -> list[Fact]:
    return [
        _probed(probe, where) for probe, where in ((model.probe, ""), (model.direct, "directly, ")) if probe
    ]


def _probed(probe: Probe, where: str) -> Fact:
    said = (
        f"answered {probe.status} after {probe.seconds:.1f} s"
        if probe.answered
        else f"did not answer: {probe.why}"
    )
    return fact(Source.MIDDLEMAN, f"{where}asked for its models, the provider {said}", probe.at)


def _without_middleman(view: View) -> Iterator[Finding]:
    """Calls that go past the middleman: all that is known is how long they take."""
    calling = set(view.doing(ActivityType.MODEL))
    for model in view.models:
        attempts = [i for i in view.of_model(model) if i in calling] if model.past else []
        if not attempts:
            continue
        usual = view.model_times(model)
        least = max(SUSPICIOUS, 3 * usual.p95 if usual else 0.0)
        held = [i for i in attempts if (view.ago(view.attempts[i].since) or 0.0) > least]
        if not held:
            continue
        quiet = max(view.ago(view.attempts[i].since) or 0.0 for i in held)
        if _dead(view, model):
            severity = Severity.STUCK
        elif quiet > SILENT_FOR_LONG or (
            usual is not None and quiet > max(120, 6 * usual.p95, 2 * usual.most)
        ):
            severity = Severity.WARNING
        else:
            severity = Severity.INFO
        what = f"{counted(len(held), 'call')} without an answer for up to {lasted(quiet)}"
        hedge = (
            " (a black hole or a long generation: `hawk probe` tells)" if severity is Severity.INFO else ""
        )
        facts = [
            fact(Source.CONTROL, "these calls don't go through the middleman"),
            *_probe_facts(view, model),
        ]
        finding = _finding(view, model, severity, what + hedge, facts, held)
        finding.since = view.before(quiet)
        yield finding


def _ended(view: View, cause: Cause) -> Iterator[Finding]:
    """Attempts that have ended by it, with nothing in flight that shows it."""
    for one in failing(view, cause):
        if one.over and one.streak < 2:
            what = f"{one.subject}: {counted(one.over, 'attempt')} ended: {one.said[:160]}"
            severity = (
                Severity.FATAL if one.over >= 2 and not view.evidence.progress.completed else Severity.WARNING
            )
            yield Finding(
                severity, what, failing_facts(view, one), ended=one.over, subject=one.subject, since=one.since
            )
