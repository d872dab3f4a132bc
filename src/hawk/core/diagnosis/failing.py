"""Requests to models that fail, put together by model and cause: from what the middleman noted, from the pauses of attempts,
and from the errors that ended attempts. What the rules of provider and middleman have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from hawk.core.diagnosis.calls import Kind, of_error, status_in
from hawk.core.diagnosis.causes import Cause
from hawk.core.diagnosis.evidence import CallGroup, ErrorGroup, Model
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
    collection = _Collection(view)
    collection.take_calls()
    collection.take_pauses()
    collection.take_endings()
    for one in collection.found.values():
        one.held = sorted(set(one.held))
    return list(collection.found.values())


class _Collection:
    """What fails, by cause and model, as it is being put together.

    Attributes:
        found: By cause and the model's name.
    """

    def __init__(self, view: View) -> None:
        self.found: dict[tuple[Cause, str], Failing] = {}
        self._view = view
        # How requests ended that are known by their attempt: the last one's kind, that of a status, the model of a kind.
        self._last: dict[str, Kind] = {}
        self._answered: dict[tuple[str, int], Kind] = {}
        self._asked: dict[tuple[str, Kind], Model] = {}

    def of(self, cause: Cause, model: Model) -> Failing:
        return self.found.setdefault((cause, name_of(model)), Failing(cause, model))

    def take_calls(self) -> None:
        """What the middleman noted."""
        for model in self._view.models:
            for group in model.calls:
                kind = _kind(group.kind)
                self._last.update(dict.fromkeys(group.uuids, kind))
                self._asked.update(dict.fromkeys(((uuid, kind) for uuid in group.uuids), model))
                if group.status:
                    self._answered.update(dict.fromkeys(((uuid, group.status) for uuid in group.uuids), kind))
                if kind in CAUSES:
                    one = self.of(CAUSES[kind], model)
                    one.kinds.add(kind)
                    one.groups.append(group)
                    one.held += self._view.with_uuids(group.uuids)
            _behind_breaker(model, self.of)

    def take_pauses(self) -> None:
        """What attempts make again, after a pause."""
        by_key = {f"{m.provider}/{m.model}": m for m in self._view.models}
        for i, attempt in enumerate(self._view.attempts):
            retrying = attempt.retrying
            kind = _kind(retrying.kind) if retrying is not None else Kind.UNKNOWN
            if retrying is None or kind not in CAUSES:
                continue
            model = by_key.get(retrying.model) or _named(self._view, attempt.model)
            _add_pauses(self._view, self.of(CAUSES[kind], model), i, kind)
            behind = _behind(model, self.found.values()) if kind is Kind.BREAKER else None
            if behind is not None:
                _add_pauses(self._view, behind, i, next(iter(behind.kinds)))

    def take_endings(self) -> None:
        """What ended attempts."""
        listed = self._view.evidence.tasks
        tasks = {task.identifier: task.model for task in listed} | {task.name: task.model for task in listed}
        only = listed[0].model if len(listed) == 1 else ""
        for error in self._view.evidence.ended:
            kind = self._kind_of_ending(error)
            if kind is None or kind not in CAUSES:
                continue
            # The model that was asked is known by the request; an attempt may ask others than its task's.
            asked = next(
                (self._asked[uuid, kind] for uuid in error.uuids if (uuid, kind) in self._asked), None
            )
            one = self.of(CAUSES[kind], asked or _named(self._view, tasks.get(error.task, only)))
            one.errors.append(error)
            one.kinds.add(kind)

    def _kind_of_ending(self, error: ErrorGroup) -> Kind | None:
        """By the error itself, else by how the last request of such an attempt ended; None: not a model's."""
        known = next((self._last[uuid] for uuid in error.uuids if uuid in self._last), None)
        kind = of_error(error.kind, error.message) if not error.limit and error.kind != "limit" else None
        if kind is None and known is Kind.MALFORMED and _UNREADABLE.search(error.kind):
            kind = known
        if kind is Kind.UNKNOWN or (kind is None and known is not None and "retry" in error.kind.lower()):
            kind = known
        if kind is not None and (status := status_in(error.message)):
            # The middleman has read the whole answer; a log has a part of what the client made of it.
            answers = (self._answered.get((uuid, status)) for uuid in error.uuids)
            kind = next((answered for answered in answers if answered is not None), kind)
        return kind


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


def waiting_for_model(view: View, model: Model) -> list[int]:
    """Attempts that wait for this model, by what their workers say."""
    mine = set(view.of_model(model))
    return [i for i in view.doing(ActivityType.MODEL, ActivityType.RETRY_WAIT) if i in mine]
