"""Requests to models that fail, put together by model and cause: from what the middleman noted, from the pauses of attempts,
and from the errors that ended attempts. What the rules of provider and middleman have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from hawk.core.diagnosis.calls import Kind, of_error, status_in
from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.evidence import CallGroup, ErrorGroup, Model
from hawk.core.diagnosis.rule import fact
from hawk.core.diagnosis.saying import counted, lasted
from hawk.core.diagnosis.verdict import Fact
from hawk.core.diagnosis.view import View
from hawk.core.states import ActivityType

CAUSES: Mapping[Kind, Cause] = {
    Kind.RATE_LIMITED: Cause.RATE_LIMITED,
    Kind.OVERLOADED: Cause.OVERLOADED,
    Kind.SERVER_ERROR: Cause.SERVER_ERROR,
    Kind.CLOSED: Cause.SERVER_ERROR,
    Kind.AUTH_REJECTED: Cause.AUTH_REJECTED,
    Kind.NO_KEY: Cause.AUTH_REJECTED,
    Kind.QUOTA_EXHAUSTED: Cause.QUOTA_EXHAUSTED,
    Kind.MODEL_NOT_FOUND: Cause.MODEL_NOT_FOUND,
    Kind.CONTEXT_OVERFLOW: Cause.CONTEXT_OVERFLOW,
    Kind.INVALID_REQUEST: Cause.INVALID_REQUEST,
    Kind.CONTENT_REFUSED: Cause.CONTENT_REFUSED,
    Kind.MALFORMED: Cause.MALFORMED_RESPONSE,
    Kind.EMPTY: Cause.EMPTY_OUTPUT,
    Kind.CONNECT_REFUSED: Cause.CONNECT_REFUSED,
    Kind.CONNECTION_LOST: Cause.CONNECT_REFUSED,
    Kind.DNS: Cause.DNS_OR_TLS,
    Kind.TLS: Cause.DNS_OR_TLS,
    Kind.FIRST_BYTE_TIMEOUT: Cause.BLACK_HOLE,
    Kind.TOTAL_TIMEOUT: Cause.BLACK_HOLE,
    Kind.IDLE_TIMEOUT: Cause.STREAM_STALLED,
    Kind.CLIENT_GONE: Cause.CLIENT_TIMEOUT_TOO_SHORT,
    Kind.CLIENT_TIMEOUT: Cause.CLIENT_TIMEOUT_TOO_SHORT,
    Kind.TOKEN_EXPIRED: Cause.TOKEN_EXPIRED,
    Kind.TOKEN_REVOKED: Cause.TOKEN_REVOKED,
    Kind.TOKEN_INVALID: Cause.TOKEN_REVOKED,
    Kind.NOT_PERMITTED: Cause.MODEL_NOT_PERMITTED,
    Kind.FORBIDDEN_ADDRESS: Cause.MODEL_NOT_PERMITTED,
    Kind.BUDGET: Cause.BUDGET_EXHAUSTED,
    Kind.BREAKER: Cause.BREAKER_OPEN,
    Kind.REPLAY_MISS: Cause.REPLAY_MISS,
    Kind.QUEUE_TIMEOUT: Cause.QUEUE_WAIT,
    Kind.DRAINING: Cause.MIDDLEMAN_DOWN,
    Kind.INTERNAL: Cause.PROXY_FAULT,
}
"""What a way to end speaks for."""

BEHIND = frozenset(
    {
        Cause.OVERLOADED, Cause.SERVER_ERROR, Cause.AUTH_REJECTED, Cause.QUOTA_EXHAUSTED, Cause.MODEL_NOT_FOUND,
        Cause.CONNECT_REFUSED, Cause.DNS_OR_TLS, Cause.MALFORMED_RESPONSE, Cause.BLACK_HOLE, Cause.STREAM_STALLED,
    }
)  # fmt: skip
"""Why a breaker opens: then that is what a person needs to hear first."""

_UNREADABLE = re.compile(r"JSON|Decode|Validation|Parse|KeyError|TypeError|AttributeError|IndexError")
"""Types of error that a client raises over an answer that it can't read."""

ROW = 5
"""Failures of a model one after the other that can't be chance any more, where answers come between failures at all."""

SEVERAL = 4
"""Attempts of which one that fails by what it asks is that attempt's own affair."""

ALTERNATES = 60.0
"""Seconds for which failures between answers are worth a word."""

LONG = 300.0
"""Seconds of pauses in a row after which an attempt does not go on by itself: later pauses are longer still."""


@dataclass
class Failing:
    """One model and one cause.

    Attributes:
        streak: Requests that ended so since the model's last good answer; `again`: those of an attempt whose last ended so, too.
        count: In the last ten minutes.
        held: Attempts in flight whose last request ended so.
        row: The most failures in a row of one of them.
        waited: The most seconds of pauses of one of them, and `paused` of all together.
        ended, retried: Attempts that it ended, and those among them that were run again.
    """

    cause: Cause
    model: Model
    kinds: set[Kind] = field(default_factory=set)
    groups: list[CallGroup] = field(default_factory=list)
    errors: list[ErrorGroup] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    row: int = 0
    waited: float = 0.0
    paused: float = 0.0
    until: str | None = None
    alone: bool = False
    """One of them had two failures and now waits, and the model has not answered anybody since."""

    @property
    def streak(self) -> int:
        return sum(group.streak for group in self.groups)

    @property
    def again(self) -> int:
        return sum(group.again for group in self.groups)

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def ended(self) -> int:
        return sum(error.count for error in self.errors)

    @property
    def over(self) -> int:
        """Attempts that ended for good."""
        return sum(error.count - error.retried for error in self.errors)

    @property
    def subject(self) -> str:
        return name_of(self.model)

    @property
    def said(self) -> str:
        """In the newest words that there are."""
        words = [group.said for group in self.groups if group.said] or [e.message for e in self.errors]
        return words[-1] if words else ""

    @property
    def status(self) -> int:
        return next((g.upstream_status or g.status for g in self.groups if g.upstream_status or g.status), 0)

    @property
    def since(self) -> str | None:
        times = [g.first_at for g in self.groups if g.first_at] + [
            e.first_at for e in self.errors if e.first_at
        ]
        return min(times, default=None)

    def last_ago(self, view: View) -> float:
        """Seconds since the newest of them."""
        times = [g.last_at for g in self.groups] + [e.last_at for e in self.errors]
        return min((ago for at in times if (ago := view.ago(at)) is not None), default=0.0)


def name_of(model: Model) -> str:
    """What people call it: Inspect's name, else provider and model."""
    return model.name or "/".join(part for part in (model.provider, model.model) if part) or "the model"


_cache: WeakKeyDictionary[View, list[Failing]] = WeakKeyDictionary()


def failing(view: View, cause: Cause) -> Iterator[Failing]:
    """All that fails for one cause, a model each."""
    found = _cache.get(view)
    if found is None:
        found = _cache[view] = _collect(view)
    return (one for one in found if one.cause is cause)


def _collect(view: View) -> list[Failing]:
    found: dict[tuple[Cause, str], Failing] = {}

    def of(cause: Cause, model: Model) -> Failing:
        key = cause, name_of(model)
        if key not in found:
            found[key] = Failing(cause, model)
        return found[key]

    by_key = {f"{m.provider}/{m.model}": m for m in view.models}
    uuids: dict[str, Kind] = {}
    answers: dict[tuple[str, int], Kind] = {}
    asked: dict[tuple[str, Kind], Model] = {}
    for model in view.models:
        for group in model.calls:
            kind = _kind(group.kind)
            uuids.update(dict.fromkeys(group.uuids, kind))
            answers.update({(uuid, group.status): kind for uuid in group.uuids if group.status})
            asked.update(dict.fromkeys(((uuid, kind) for uuid in group.uuids), model))
            if kind not in CAUSES:
                continue
            one = of(CAUSES[kind], model)
            one.kinds.add(kind)
            one.groups.append(group)
            one.held += view.with_uuids(group.uuids)
        _behind_breaker(model, of)
    for i, attempt in enumerate(view.attempts):
        retrying = attempt.retrying
        kind = _kind(retrying.kind) if retrying is not None else Kind.UNKNOWN
        if retrying is not None and kind in CAUSES:
            model = by_key.get(retrying.model) or _named(view, attempt.model)
            _add_pauses(view, of(CAUSES[kind], model), i, kind)
            behind = _behind(model, found.values()) if kind is Kind.BREAKER else None
            if behind is not None:
                _add_pauses(view, behind, i, next(iter(behind.kinds)))
    tasks = {task.identifier: task.model for task in view.evidence.tasks}
    tasks |= {task.name: task.model for task in view.evidence.tasks}
    for error in view.evidence.ended:
        known = next((uuids[uuid] for uuid in error.uuids if uuid in uuids), None)
        ending = of_error(error.kind, error.message) if not error.limit and error.kind != "limit" else None
        if ending is None and known is Kind.MALFORMED and _UNREADABLE.search(error.kind):
            ending = known
        if ending is Kind.UNKNOWN or (ending is None and known is not None and "retry" in error.kind.lower()):
            ending = known
        if ending is not None and (status := status_in(error.message)):
            # The middleman has read the whole answer; a log has a part of what the client made of it.
            ending = next(
                (answers[uuid, status] for uuid in error.uuids if (uuid, status) in answers), ending
            )
        if ending is not None and ending in CAUSES:
            only = view.evidence.tasks[0].model if len(view.evidence.tasks) == 1 else ""
            # The model that was asked is known by the request; an attempt may ask others than its task's.
            whose = next((asked[uuid, ending] for uuid in error.uuids if (uuid, ending) in asked), None)
            one = of(CAUSES[ending], whose or _named(view, tasks.get(error.task, only)))
            one.errors.append(error)
            one.kinds.add(ending)
    for one in found.values():
        one.held = sorted(set(one.held))
    return list(found.values())


def _behind_breaker(model: Model, of: Callable[[Cause, Model], Failing]) -> None:
    """What the provider said before the breaker opened stays the cause, though nobody asks it any more."""
    lane = model.lane
    if (
        lane is None
        or not lane.breaker_open
        or any(_kind(g.kind) is not Kind.BREAKER and g.streak for g in model.calls)
    ):
        return
    kind = of_error("APIStatusError", lane.breaker_said or "")
    if kind is None or kind not in CAUSES:
        return
    one = of(CAUSES[kind], model)
    one.kinds.add(kind)
    one.groups.append(
        CallGroup(kind, 0, said=lane.breaker_said or "", first_at=lane.breaker_since, streak=ROW, again=ROW)
    )


def _behind(model: Model, found: Iterable[Failing]) -> Failing | None:
    """Why a model's breaker has opened: what most of its last failures were."""
    those = [one for one in found if one.model is model and one.cause in BEHIND and one.streak]
    return max(those, key=lambda one: one.streak, default=None)


def _add_pauses(view: View, one: Failing, i: int, kind: Kind) -> None:
    retrying = view.attempts[i].retrying
    assert retrying is not None
    one.kinds.add(kind)
    one.held.append(i)
    one.row = max(one.row, retrying.count)
    one.waited = max(one.waited, retrying.waited)
    one.paused += retrying.waited
    if (
        retrying.until is not None
        and retrying.until < (one.until or "~")
        and (view.ago(retrying.until) or 0.0) < 0
    ):
        one.until = retrying.until
    if not one.groups and not one.model.calls:
        one.groups.append(
            CallGroup(
                kind, retrying.count, status=retrying.status or 0, error=retrying.error, said=retrying.said,
                first_at=retrying.since, last_at=retrying.until, streak=retrying.count, again=retrying.count - 1,
            )
        )  # fmt: skip
    if not one.alone and retrying.count >= 2 and retrying.waited > 0:
        answered, begun = view.ago(one.model.last_ok), view.ago(retrying.since)
        one.alone = answered is None or (begun is not None and answered > begun)


def _named(view: View, name: str) -> Model:
    for model in view.models:
        if name and model.name == name:
            return model
    if not name and len(view.models) == 1:
        return view.models[0]
    provider, _, model_name = name.partition("/")
    return Model(provider, "", model_name, name)


def _kind(word: str) -> Kind:
    try:
        return Kind(word)
    except ValueError:
        return Kind.UNKNOWN


# --- how bad

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


# --- in words


def facts(view: View, one: Failing, *more: Fact | None) -> list[Fact]:
    """What was seen of it."""
    found = [
        fact(
            Source.SPANS, f"{counted(g.count, 'request')} ended with {_ending(g)}{_words(g.said)}", g.last_at
        )
        for g in one.groups
        if g.count
    ]
    if one.streak and one.model.lane is None and not one.model.open and one.row:
        found = []  # all that is known are the pauses
    if one.row:
        count = sum(view.attempts[i].retrying is not None for i in one.held)
        pauses = f"; {lasted(one.waited)} in pauses so far" if one.waited else ""
        found.append(
            fact(
                Source.CONTROL, f"{counted(count, 'attempt')} with up to {one.row} failures in a row{pauses}"
            )
        )
    if one.streak:
        last = one.model.last_ok
        ago = view.ago(last)
        text = "no good answer yet" if ago is None else f"the last good answer is {lasted(ago)} old"
        found.append(fact(Source.SPANS, f"{one.subject}: {text}", last))
    for error in one.errors[:3]:
        found.append(
            fact(
                Source.LOGS, f"ended {counted(error.count, 'attempt')}: {error.message[:200]}", error.last_at
            )
        )
    return [*found, *(one for one in more if one is not None)]


def _ending(group: CallGroup) -> str:
    status = group.upstream_status or group.status
    name = group.error or str(group.kind).replace("_", " ")
    return f"{status} ({name})" if status else name


def _words(said: str) -> str:
    return f": {said[:200]}" if said else ""


def many(one: Failing) -> str:
    """`12 requests in a row`, or how many attempts ended."""
    if one.streak > 1:
        return f"{one.streak} requests in a row"
    if one.row > 1:
        return f"{one.row} calls in a row"
    if one.ended:
        return counted(one.ended, "attempt")
    return counted(one.count or one.streak or 1, "request")


def waiting_for_model(view: View, model: Model) -> list[int]:
    """Attempts that wait for this model, by what their workers say."""
    mine = set(view.of_model(model))
    return [i for i in view.doing(ActivityType.MODEL, ActivityType.RETRY_WAIT) if i in mine]
