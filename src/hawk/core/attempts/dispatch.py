"""Who starts next: the order of a job's attempts, under its policy and its number of slots.

A state machine without a clock. Workers feed it what happens; the prediction of a plan feeds it what it imagines: what
is predicted is what would be done.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from hawk.core.attempts.policy import Rules, Step, not_needed

P = TypeVar("P", bound=Hashable)
"""What names a pair."""


class Start(NamedTuple, Generic[P]):
    """This attempt has a slot."""

    pair: P
    attempt: int


class Skip(NamedTuple, Generic[P]):
    """This attempt will not begin."""

    pair: P
    attempt: int
    reason: str


class Cancel(NamedTuple, Generic[P]):
    """This attempt runs and is not needed any more. It keeps its slot until it has ended."""

    pair: P
    attempt: int
    reason: str


Order = Start[P] | Skip[P] | Cancel[P]


@dataclass
class _Pair:
    predicted: float | None
    position: int
    runs: int
    waiting: set[int] = field(default_factory=set)
    queued: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)
    canceled: set[int] = field(default_factory=set)


class Dispatcher(Generic[P]):
    """Attempts that want to run, and those that do.

    Longest first: an attempt whose pair is predicted to hold up the end starts before others; for attempts one by one
    that is the whole of what may still come. Pairs that nobody knows come first, in their own order, and first attempts
    before second ones.

    Args:
        rules: The policy.
        slots: Attempts at once.
        ramp: Of these, attempts that may be starting at once, or None. What starts shares the processors with all that
            starts: hundreds together are all late, a few after another are late one by one, the longest first.
    """

    def __init__(self, rules: Rules, slots: int, ramp: int | None = None) -> None:
        self.rules = rules
        self.slots = max(1, slots)
        self.ramp = ramp
        self._starting: set[tuple[P, int]] = set()
        self._pairs: dict[P, _Pair] = {}
        self._heap: list[tuple[float, int, int, P]] = []
        self._in_use = 0

    @property
    def in_use(self) -> int:
        """Slots that are taken."""
        return self._in_use

    def expect(self, pair: P, runs: int, predicted: float | None = None) -> None:
        """Make a pair known. Twice is once."""
        if pair not in self._pairs:
            self._pairs[pair] = _Pair(predicted, len(self._pairs), runs)

    def known(self, pair: P, attempt: int, *, passed: bool) -> list[Order[P]]:
        """An attempt that ended earlier, under another worker or another plan: it will not run."""
        mine = self._pairs[pair]
        mine.ended.add(attempt)
        if passed:
            mine.passed.add(attempt)
        return self._react(pair)

    def want(self, pair: P, attempts: Iterable[int]) -> list[Order[P]]:
        """These attempts of a pair could start."""
        self._pairs[pair].waiting.update(attempts)
        return self._react(pair)

    def passed(self, pair: P, attempt: int) -> list[Order[P]]:
        """An attempt has passed; it may not have given back its slot yet."""
        self._pairs[pair].passed.add(attempt)
        return self._react(pair)

    def begun(self, pair: P, attempt: int) -> list[Order[P]]:
        """An attempt has started: its agent is at work, or takes long to get there. Twice is once."""
        self._starting.discard((pair, attempt))
        return self.fill()

    def ended(self, pair: P, attempt: int, *, passed: bool = False) -> list[Order[P]]:
        """An attempt is over, whatever came of it: its slot is free. Also for one that gave up waiting for its turn."""
        mine = self._pairs[pair]
        mine.ended.add(attempt)
        mine.waiting.discard(attempt)
        mine.queued.discard(attempt)
        if passed:
            mine.passed.add(attempt)
        self._starting.discard((pair, attempt))
        if attempt in mine.running:
            mine.running.discard(attempt)
            self._in_use -= 1
        return self._react(pair)

    def _react(self, pair: P) -> list[Order[P]]:
        return [*self._decide(pair), *self.fill()]

    def _decide(self, pair: P) -> list[Order[P]]:
        """What has changed for one pair's attempts."""
        mine = self._pairs[pair]
        orders: list[Order[P]] = []
        for attempt in sorted(mine.waiting):
            step = self._step(mine, attempt)
            if step is Step.HOLD:
                continue
            mine.waiting.discard(attempt)
            if step is Step.SKIP:
                mine.ended.add(attempt)
                orders.append(Skip(pair, attempt, not_needed(min(mine.passed))))
            else:
                mine.queued.add(attempt)
                heapq.heappush(self._heap, (*self._rank(mine, attempt), pair))
        for attempt in sorted(mine.running - mine.canceled - mine.passed):
            if self._step(mine, attempt) is Step.SKIP:
                mine.canceled.add(attempt)
                orders.append(Cancel(pair, attempt, not_needed(min(mine.passed))))
        return orders

    def fill(self) -> list[Order[P]]:
        """Give out the slots that are free."""
        orders: list[Order[P]] = []
        while (
            self._heap
            and self._in_use < self.slots
            and (self.ramp is None or len(self._starting) < self.ramp)
        ):
            _, attempt, _, pair = heapq.heappop(self._heap)
            mine = self._pairs[pair]
            if attempt not in mine.queued:
                continue
            mine.queued.discard(attempt)
            if self._step(mine, attempt) is Step.SKIP:
                mine.ended.add(attempt)
                orders.append(Skip(pair, attempt, not_needed(min(mine.passed))))
                orders += self._decide(pair)
                continue
            mine.running.add(attempt)
            self._in_use += 1
            self._starting.add((pair, attempt))
            orders.append(Start(pair, attempt))
        return orders

    def _step(self, mine: _Pair, attempt: int) -> Step:
        return self.rules.step(attempt, ended=mine.ended, passed=mine.passed, predicted=mine.predicted)

    def _rank(self, mine: _Pair, attempt: int) -> tuple[float, int, int]:
        if mine.predicted is None:
            return (float("-inf"), attempt, mine.position)
        to_come = mine.runs - attempt + 1 if self.rules.one_by_one(mine.predicted) else 1
        return (-mine.predicted * to_come, attempt, mine.position)
