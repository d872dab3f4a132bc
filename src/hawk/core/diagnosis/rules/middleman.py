"""Rules of the layer `middleman`: the proxy itself, what it refuses by its own word, and its queues."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from hawk.core.diagnosis.calls import Kind
from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.evidence import Lane, Model, OpenRequest
from hawk.core.diagnosis.failing import BEHIND, ROW, Failing, failing, name_of, waiting_for_model
from hawk.core.diagnosis.failing_severity import final
from hawk.core.diagnosis.failing_words import failing_facts, many
from hawk.core.diagnosis.rule import Finding, fact, rule
from hawk.core.diagnosis.rules import silence
from hawk.core.diagnosis.saying import counted, lasted
from hawk.core.diagnosis.verdict import Fact, Fix, FixKind
from hawk.core.diagnosis.view import View

BLINK = 3.0
"""Seconds for which the middleman may be away: it is started again within a second or two."""

AWAY = 45.0
"""Seconds after which it does not come back by itself: to start it may take 20, on a busy machine."""

QUEUED = 5.0
"""Seconds in a queue that are worth a word."""

STANDS = 60.0
"""Seconds without any movement after which a queue stands."""

STANDS_FOR_LONG = 600.0
"""Seconds after which a queue that stands does not move again by itself."""

_OWN_WORDS = (
    (Cause.TOKEN_EXPIRED, re.compile(r"token of job .* has expired|hawk_token_expired")),
    (
        Cause.TOKEN_REVOKED,
        re.compile(
            r"token of job .* is revoked|not one of this middleman's|hawk_token_(?:revoked|invalid|missing)"
        ),
    ),
)
"""What the middleman says to the runner itself, whose look at it bears the same token as the workers."""


def _own_word(view: View) -> Cause | None:
    problem = view.job.models_problem or ""
    return next((cause for cause, words in _OWN_WORDS if words.search(problem)), None)


def _down(view: View) -> Iterator[Finding]:
    problem = view.job.models_problem
    if problem is None or _own_word(view) is not None:
        return
    away = view.ago(view.job.models_problem_since) or 0.0
    refuses = "answered 4" in problem  # it lives, and says what is wrong
    if away < BLINK or refuses:
        severity = Severity.INFO
    else:
        severity = Severity.STUCK if away > AWAY else Severity.WARNING
    direct = [m.direct for m in view.models if m.direct is not None]
    facts = [fact(Source.MIDDLEMAN, problem, view.job.models_problem_since)]
    facts += [
        fact(
            Source.MIDDLEMAN,
            f"asked directly, the provider {'answered' if d.answered else 'did not answer'}",
            d.at,
        )
        for d in direct[:2]
    ]
    held = sorted({i for model in view.models for i in waiting_for_model(view, model)}) or _on_models(view)
    if severity is Severity.INFO:
        held = []
    yield Finding(
        severity,
        f"the middleman has not answered for {lasted(away)}",
        facts,
        held=held,
        whole=bool(view.attempts) and len(held) == len(view.attempts) and severity.blocks,
        since=view.job.models_problem_since,
    )


def _on_models(view: View) -> list[int]:
    return [
        i
        for i, a in enumerate(view.attempts)
        if a.retrying is not None or a.activity in ("model", "retry_wait")
    ]


def _token(cause: Cause, words: str) -> Callable[[View], Iterable[Finding]]:
    def look(view: View) -> Iterator[Finding]:
        found = list(failing(view, cause))
        said = _own_word(view) is cause
        ended = sum(one.over for one in found)
        # A request that ended its attempt is known twice: by itself, and by the attempt's error.
        requests, errors = sum(one.streak for one in found), sum(one.ended for one in found)
        refused = max(requests, errors)
        if (not said and not refused) or view.job.stopping_since is not None:
            return
        facts = [item for one in found for item in failing_facts(view, one)]
        if said:
            facts.append(fact(Source.MIDDLEMAN, view.job.models_problem or "", view.job.models_problem_since))
        held = sorted({i for one in found for i in one.held}) or _on_models(view)
        times = [at for at in (*(one.since for one in found), view.job.models_problem_since) if at]
        count = f"; {counted(refused, 'request')} refused" if refused else ""
        yield Finding(
            Severity.FATAL if said or requests + errors >= 2 or ended else Severity.WARNING,
            f"{words}{count}",
            facts,
            held=held,
            whole=bool(view.attempts),
            ended=ended,
            since=min(times, default=None),
        )

    return look


def _of_model(cause: Cause, words: Callable[[Failing], str]) -> Callable[[View], Iterable[Finding]]:
    """What is refused to everybody of the job who asks one model."""

    def look(view: View) -> Iterator[Finding]:
        for one in failing(view, cause):
            severity = final(view, one)
            if severity is not None:
                yield Finding(
                    severity,
                    f"{one.subject}: {words(one)}",
                    failing_facts(view, one),
                    held=one.held,
                    ended=one.over,
                    subject=one.subject,
                    since=one.since,
                )

    return look


def _budget(view: View) -> Iterator[Finding]:
    found = list(failing(view, Cause.BUDGET_EXHAUSTED))
    if view.job.exhausted is None and not any(one.streak or one.ended for one in found):
        return
    said = view.job.exhausted or next((one.said for one in found if one.said), "")
    facts = [fact(Source.MIDDLEMAN, said), *(item for one in found for item in failing_facts(view, one))]
    yield Finding(
        Severity.FATAL,
        f"the job's budget is used up: {said}",
        facts,
        held=sorted({i for one in found for i in one.held}),
        whole=bool(view.attempts),
        ended=sum(one.over for one in found),
    )


def _breaker(view: View) -> Iterator[Finding]:
    for model in view.models:
        lane = model.lane
        refused = next((one for one in failing(view, Cause.BREAKER_OPEN) if one.model is model), None)
        is_open = lane is not None and lane.breaker_open
        if not is_open and (refused is None or not (refused.streak or refused.over)):
            continue
        said = (lane.breaker_said if lane is not None else None) or (
            refused.said if refused is not None else ""
        )
        held = sorted({*(refused.held if refused is not None else ()), *waiting_for_model(view, model)})
        why = f"; the provider said last: {said[:160]}" if said else ""
        opened = f"the model's breaker is {'open' if is_open else 'closed again'}"
        yield Finding(
            Severity.INFO
            if _known_otherwise(view, model)
            else Severity.STUCK
            if is_open
            else Severity.WARNING,
            f"{name_of(model)}: calls are refused at once, one is tried now and then{why}",
            [
                fact(Source.MIDDLEMAN, opened, lane.breaker_since if lane is not None else None),
                *(failing_facts(view, refused) if refused is not None else ()),
            ],
            held=held,
            ended=refused.over if refused is not None else 0,
            subject=name_of(model),
            since=(lane.breaker_since if lane is not None else None) or (refused.since if refused else None),
            clears=lane.breaker_retry_at if lane is not None and is_open else None,
        )


def _known_otherwise(view: View, model: Model) -> bool:
    return any(one.model is model and one.streak >= ROW for cause in BEHIND for one in failing(view, cause))


def _queue(view: View) -> Iterator[Finding]:
    for model in view.models:
        lane, waiting = model.lane, [r for r in model.open if r.phase == "waiting"]
        late = next((one for one in failing(view, Cause.QUEUE_WAIT) if one.model is model), None)
        cut = late.streak if late is not None else 0
        if not cut and (lane is None or not waiting or max(r.age for r in waiting) < QUEUED):
            continue
        oldest = max((r.age for r in waiting), default=0.0)
        severity = _queue_severity(view, model, lane, oldest, cut)
        held = sorted({*view.with_uuids(r.uuid for r in waiting), *(late.held if late is not None else ())})
        clears = min((r.until for r in waiting if r.until), default=None)
        yield Finding(
            severity,
            f"{name_of(model)}: {counted(len(waiting), 'request')} in the queue, up to {lasted(oldest)}; {_holders(lane)}"
            + (f"; {cut} were given up there" if cut else ""),
            [*_queue_facts(lane, waiting), *(failing_facts(view, late) if late is not None else ())],
            held=held,
            ended=late.over if late is not None else 0,
            subject=name_of(model),
            since=view.before(oldest) if waiting else late.since if late is not None else None,
            clears=clears,
        )


def _queue_severity(view: View, model: Model, lane: Lane | None, oldest: float, cut: int) -> Severity:
    """A queue that moves is no trouble, however long it is."""
    if lane is not None and (lane.paused_until is not None or lane.breaker_open):
        return Severity.INFO  # the reason has a rule of its own
    answered = view.ago(model.last_ok)
    moves = (lane is not None and bool(lane.per_minute)) or (answered is not None and answered < STANDS)
    if moves:
        return Severity.WARNING if cut >= 2 else Severity.INFO
    if cut >= 2:
        return Severity.STUCK
    usual = view.model_times(model)
    explained = silence.silent(view, model) is not None
    if explained or oldest < max(STANDS, 3 * usual.p95 if usual is not None else 0.0):
        return Severity.INFO
    return Severity.STUCK if oldest > STANDS_FOR_LONG else Severity.WARNING


def _holders(lane: Lane | None) -> str:
    if lane is None:
        return "nobody is known to hold a place"
    held = sorted((h for h in lane.by_job if h.in_flight), key=lambda h: -h.in_flight)
    places = f"{lane.in_flight} of {lane.limit:g} places are taken"
    names = ", ".join(f"{h.in_flight} by {'this job' if h.mine else h.job}" for h in held[:4])
    return f"{places}: {names}" if names else places


def _queue_facts(lane: Lane | None, waiting: list[OpenRequest]) -> list[Fact]:
    found: list[Fact] = []
    if lane is not None:
        rate = (
            f"; {lane.per_minute:g} were let through in the last minute"
            if lane.per_minute is not None
            else ""
        )
        found.append(fact(Source.MIDDLEMAN, f"{lane.waiting} wait, {_holders(lane)}{rate}"))
        others = [h for h in lane.by_job if h.waiting and not h.mine]
        found += [fact(Source.MIDDLEMAN, f"{h.job}: {h.waiting} wait, too") for h in others[:3]]
    placed = [r for r in waiting if r.place is not None]
    if placed:
        first = min(placed, key=lambda r: r.place or 0)
        found.append(fact(Source.MIDDLEMAN, f"{first.name or first.id} is number {first.place} in the queue"))
    return found


def _proxy_fault(view: View) -> Iterator[Finding]:
    for one in failing(view, Cause.PROXY_FAULT):
        failures = one.streak + one.ended
        if not failures or not (one.streak >= 2 or one.ended):
            if one.count:
                yield _fault(view, one, Severity.INFO)
            continue
        direct = one.model.direct
        sure = direct is not None and direct.answered
        lasts = (view.ago(one.model.failing_since or one.since) or 0.0) > 10
        yield _fault(view, one, Severity.STUCK if sure and (lasts or one.streak >= ROW) else Severity.WARNING)


def _fault(view: View, one: Failing, severity: Severity) -> Finding:
    direct = one.model.direct
    facts = failing_facts(view, one)
    if direct is not None:
        said = f"answered {direct.status}" if direct.answered else f"did not answer: {direct.why}"
        facts.append(fact(Source.MIDDLEMAN, f"asked directly, the provider {said}", direct.at))
    directly = "; the provider itself answers" if direct is not None and direct.answered else ""
    return Finding(
        severity,
        f"{one.subject}: {many(one)} failed in the middleman itself{directly}",
        facts,
        held=one.held,
        ended=one.over,
        subject=one.subject,
        since=one.since,
        fix=Fix(FixKind.PAUSE_MODEL, subject=one.subject) if severity.blocks else None,
    )


def _not_permitted(one: Failing) -> str:
    if Kind.FORBIDDEN_ADDRESS in one.kinds:
        return f"the job's own address is not allowed: {one.said[:160]}"
    return f"this job may not use it: {one.said[:160]}"


_CALLS_FAIL = (
    Cause.CONNECT_REFUSED, Cause.SERVER_ERROR, Cause.PROXY_FAULT, Cause.QUEUE_WAIT, Cause.BREAKER_OPEN,
    Cause.CLIENT_TIMEOUT_TOO_SHORT, Cause.RETRY_LOOP, Cause.SLOW_GENERATION, Cause.DNS_OR_TLS,
)  # fmt: skip
"""What else calls of a job look like whose way to the models is closed."""

RULES = (
    rule(Cause.MIDDLEMAN_DOWN, _down, rules_out=(*_CALLS_FAIL, Cause.BLACK_HOLE)),
    rule(
        Cause.TOKEN_EXPIRED,
        _token(Cause.TOKEN_EXPIRED, "the job's token has expired"),
        rules_out=(*_CALLS_FAIL, Cause.AUTH_REJECTED, Cause.TOKEN_REVOKED),
    ),
    rule(
        Cause.TOKEN_REVOKED,
        _token(Cause.TOKEN_REVOKED, "the job's token is not accepted any more"),
        rules_out=(*_CALLS_FAIL, Cause.AUTH_REJECTED),
    ),
    rule(
        Cause.MODEL_NOT_PERMITTED,
        _of_model(Cause.MODEL_NOT_PERMITTED, _not_permitted),
        rules_out=(Cause.RETRY_LOOP,),
    ),
    rule(Cause.QUEUE_WAIT, _queue, helps=(Source.MIDDLEMAN,)),
    rule(Cause.BUDGET_EXHAUSTED, _budget, rules_out=(*_CALLS_FAIL, Cause.STOPPING)),
    rule(Cause.BREAKER_OPEN, _breaker, helps=(Source.MIDDLEMAN,), rules_out=(Cause.QUEUE_WAIT,)),
    rule(
        Cause.REPLAY_MISS,
        _of_model(Cause.REPLAY_MISS, lambda one: f"{many(one)} without a recorded answer: {one.said[:160]}"),
        rules_out=(Cause.RETRY_LOOP, Cause.MODEL_NOT_FOUND),
    ),
    rule(
        Cause.PROXY_FAULT,
        _proxy_fault,
        helps=(Source.MIDDLEMAN, Source.SPANS),
        rules_out=(Cause.SERVER_ERROR, Cause.RETRY_LOOP, Cause.QUEUE_WAIT),
    ),
)
