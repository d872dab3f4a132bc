"""What a policy will take: its attempts dispatched in imagined time.

The dispatcher is the real one. Durations and passes are either known (a replay of what was measured) or drawn around
what history says, several times.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hawk.core.attempts.dispatch import Cancel, Dispatcher, Order, Start
from hawk.core.attempts.history import Guess
from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.report import PolicyUse

SPREAD = 0.3
"""Standard deviation of the logarithm of a duration around its prediction: between two attempts at one pair, measured on
the published runs as 0.27 to 0.37."""

LONGER = 1.05
"""How much longer than all before an attempt may be: the longest ones are those that a limit of time ends."""

BUDGET = 4_000
"""Attempts that one forecast may imagine: about a tenth of a second. More draws of a small plan, fewer of a large one."""


class Imagined(NamedTuple):
    """One pair in imagined time: seconds and pass of each of its attempts, and the seconds that a plan expects."""

    seconds: Sequence[float]
    passes: Sequence[bool]
    predicted: float | None
    tokens: int = 0
    cost: float | None = None


def play(rules: Rules, pairs: Sequence[Imagined], slots: int) -> PolicyUse:
    """Dispatch everything, in time that costs nothing.

    Args:
        pairs: In the plan's order.
        slots: Attempts at once.
    """
    dispatcher: Dispatcher[int] = Dispatcher(rules, slots)
    now = seconds = 0.0
    attempts = tokens = peak = 0
    cost: float | None = None
    ends: list[tuple[float, int, int]] = []
    begun: dict[tuple[int, int], float] = {}

    def carry_out(orders: list[Order[int]]) -> None:
        nonlocal attempts, seconds, tokens, cost
        for order in orders:
            pair, attempt = order[0], order[1]
            if isinstance(order, Start):
                attempts += 1
                tokens += pairs[pair].tokens
                if (price := pairs[pair].cost) is not None:
                    cost = (cost or 0.0) + price
                begun[pair, attempt] = now
                heapq.heappush(ends, (now + pairs[pair].seconds[attempt - 1], pair, attempt))
            elif isinstance(order, Cancel):
                seconds += now - begun.pop((pair, attempt))
                carry_out(dispatcher.ended(pair, attempt))

    for i, imagined in enumerate(pairs):
        dispatcher.expect(i, len(imagined.seconds), imagined.predicted)
    slots_then, dispatcher.slots = dispatcher.slots, 0  # nobody starts before all are there
    for i, imagined in enumerate(pairs):
        dispatcher.want(i, range(1, len(imagined.seconds) + 1))
    dispatcher.slots = slots_then
    carry_out(dispatcher.fill())
    while ends:
        peak = max(peak, dispatcher.in_use)
        now, pair, attempt = heapq.heappop(ends)
        if (pair, attempt) in begun:
            seconds += now - begun.pop((pair, attempt))
            carry_out(dispatcher.ended(pair, attempt, passed=pairs[pair].passes[attempt - 1]))
    return PolicyUse(
        policy=rules.name,
        wall=now,
        attempts=attempts,
        seconds=seconds,
        tokens=tokens or None,
        cost=cost,
        waves=max(1, math.ceil(attempts / slots)) if peak else 1,
        slots=peak,
        threshold=rules.threshold,
    )


def draw(guesses: Sequence[Guess | None], runs: Sequence[int], seed: int) -> list[Imagined]:
    """One imagined course: durations log-normal around what is predicted, passes by chance.

    A pair that nobody knows is drawn from the others.
    """
    chance = random.Random(seed)  # noqa: S311  # the same forecast for the same history
    known = [guess for guess in guesses if guess is not None]
    longest = LONGER * max(guess.seconds for guess in known)
    pairs = []
    for guess, count in zip(guesses, runs, strict=True):
        like = guess or chance.choice(known)
        seconds = [min(longest, like.seconds * math.exp(chance.gauss(0.0, SPREAD))) for _ in range(count)]
        # A pair passes nearly always or nearly never: its attempts share one rate, drawn around the guess.
        rate = chance.betavariate(max(0.02, 0.5 * like.chance), max(0.02, 0.5 * (1 - like.chance)))
        passes = [chance.random() < rate for _ in range(count)]
        pairs.append(Imagined(seconds, passes, guess.seconds if guess else None, like.tokens, like.cost))
    return pairs


class Forecaster:
    """Predictions for one plan.

    Args:
        guesses: What history says of each pair, in the plan's order; at least one is known.
        runs: Attempts of each pair.
        slots: Attempts at once.
    """

    def __init__(self, guesses: Sequence[Guess | None], runs: Sequence[int], slots: int) -> None:
        self._slots = slots
        draws = max(1, min(16, BUDGET // max(1, sum(runs))))
        self._courses = [draw(guesses, runs, seed) for seed in range(draws)]
        self._known = sorted({guess.seconds for guess in guesses if guess is not None})

    def use(self, rules: Rules) -> PolicyUse:
        """What a policy takes: the mean over the courses."""
        played = [play(rules, course, self._slots) for course in self._courses]
        n = len(played)
        costs = [use.cost for use in played if use.cost is not None]
        return msgspec.structs.replace(
            played[0],
            wall=sum(use.wall for use in played) / n,
            attempts=round(sum(use.attempts for use in played) / n),
            seconds=sum(use.seconds for use in played) / n,
            tokens=round(sum(use.tokens or 0 for use in played) / n) or None,
            cost=sum(costs) / len(costs) if costs else None,
            waves=max(use.waves for use in played),
            slots=max(use.slots for use in played),
        )

    def threshold(self, rules: Rules, *, slower: float) -> float:
        """The seconds above which a pair's attempts had better run at once.

        The largest that keeps the end within what running everything at once gives, times `1 + slower`: more sequential
        pairs are cheaper until a chain of them outlasts the longest attempt.
        """
        at_once = msgspec.structs.replace(rules, policy=Policy.PARALLEL, threshold=None)
        bound = self.use(at_once).wall * (1 + slower)
        low, high = 0, len(self._known)  # how many of the shorter predictions may be one by one

        def fits(count: int) -> bool:
            return self.use(msgspec.structs.replace(rules, threshold=self._at(count))).wall <= bound

        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle) else (low, middle - 1)
        return self._at(low)

    def _at(self, count: int) -> float:
        return self._known[count - 1] if count else 0.0
