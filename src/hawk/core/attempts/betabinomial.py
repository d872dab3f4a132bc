"""How much pairs differ in their chance to pass, and so how many flip between two runs of the same thing.

Each pair has its own chance q that an attempt passes, drawn from a beta distribution. Fitted to what attempts
came to, it says how often a pair that passed once would not do so again, with nothing changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec

_GRID = 24
_STEPS = 100
_CLOSE = 1e-12
_ENOUGH = 1e-8  # a summit is flat: nearer than this, rounding decides
_GOLDEN = (math.sqrt(5) - 1) / 2


class BetaBinomial(msgspec.Struct, frozen=True):
    """The distribution of pairs' chances.

    Attributes:
        mean: Of the chance that an attempt passes.
        rho: Correlation of two attempts at one pair: 0 where all pairs are alike, 1 where each always or
            never passes.
    """

    mean: float
    rho: float

    @property
    def alpha(self) -> float:
        """The beta distribution's first parameter; infinite at rho 0."""
        return self.mean * self._strength

    @property
    def beta(self) -> float:
        """The beta distribution's second parameter; infinite at rho 0."""
        return (1 - self.mean) * self._strength

    @property
    def _strength(self) -> float:
        return (1 - self.rho) / self.rho if self.rho > 0 else math.inf

    def none_of(self, k: int) -> float:
        """Chance that none of k attempts at a pair passes: the mean of (1 - q)^k."""
        chance = 1.0 if k <= 0 else 1 - self.mean
        for j in range(1, k):
            chance *= ((1 - self.mean) * (1 - self.rho) + j * self.rho) / (1 - self.rho + j * self.rho)
        return chance


def flips(model: BetaBinomial, attempts: Iterable[tuple[int, int]]) -> tuple[float, float]:
    """How many pairs would pass in one of two identical runs and fail in the other, when any pass counts.

    A pair flips with chance E[Q_a] + E[Q_b] - 2 E[Q_a Q_b], where Q = (1 - q)^k is its chance to fail in k
    attempts; with the same k in both that is 2 (E[(1 - q)^k] - E[(1 - q)^2k]).

    Args:
        attempts: For each pair the number of attempts that it has in either run.

    Returns:
        The expected number and its standard deviation.
    """
    cache: dict[tuple[int, int], float] = {}
    chances = []
    for a, b in attempts:
        if (a, b) not in cache:
            chance = model.none_of(a) + model.none_of(b) - 2 * model.none_of(a + b)
            cache[a, b] = min(1.0, max(0.0, chance))
        chances.append(cache[a, b])
    return math.fsum(chances), math.sqrt(math.fsum(chance * (1 - chance) for chance in chances))


def fit(pairs: Iterable[tuple[int, int]]) -> BetaBinomial | None:
    """The beta-binomial distribution of maximum likelihood.

    The likelihood of a pair's attempts, one after another, is a product over j of terms that `_Counts` adds
    up; it is the same whatever rule ended the attempts, so runs that stop at the first pass may be fitted too
    (their share of passes would mislead a fit by moments). For each rho the likelihood is concave in the
    mean, which Newton's method finds; rho by a grid and golden section.

    Args:
        pairs: For each pair (attempts with a result, passes among them).

    Returns:
        None when no pair has two attempts: nothing then says how much of a difference is chance.
    """
    counts = _Counts(pairs)
    if counts.repeated == 0:
        return None
    if not counts.passes or not counts.fails:
        return BetaBinomial(mean=1.0 if counts.passes else 0.0, rho=0.0)

    def profile(rho: float) -> float:
        return counts.likelihood(counts.best_mean(rho), rho)

    # No pair was seen to do both: the likelihood grows up to rho 1, where it is finite.
    last = _GRID if counts.mixed == 0 else _GRID - 1
    best = max(range(last + 1), key=lambda i: profile(i / _GRID))
    rho = _summit(profile, max(0.0, (best - 1) / _GRID), min(1.0, (best + 1) / _GRID))
    return BetaBinomial(mean=counts.best_mean(rho), rho=rho)


def _summit(height: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one summit is highest (golden section), the ends included."""
    ends = (low, high)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = height(left), height(right)
    while high - low > _ENOUGH:
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = height(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = height(right)
    return max((*ends, (low + high) / 2), key=height)


class _Counts:
    """What the likelihood depends on: for each j, how many pairs have more than j passes, fails, attempts.

    Attributes:
        mixed: Pairs with a pass and a fail.
        repeated: Pairs with two attempts or more.
    """

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        rows = [(n, c) for n, c in pairs if n > 0]
        self.passes = _more_than([c for _, c in rows])
        self.fails = _more_than([n - c for n, c in rows])
        self.attempts = _more_than([n for n, _ in rows])
        self.mixed = sum(0 < c < n for n, c in rows)
        self.repeated = sum(n > 1 for n, _ in rows)

    def likelihood(self, mean: float, rho: float) -> float:
        """Log likelihood, or minus infinity. The terms of j = 0 are written so that rho 1 is allowed."""
        if rho >= 1 and self.mixed:
            return -math.inf
        total = self.passes[0] * math.log(mean) + self.fails[0] * math.log(1 - mean)
        if self.mixed:
            total += self.mixed * math.log(1 - rho)
        for counts, start, sign in (
            (self.passes, mean * (1 - rho), 1),
            (self.fails, (1 - mean) * (1 - rho), 1),
            (self.attempts, 1 - rho, -1),
        ):
            for j in range(1, len(counts)):
                step = start + j * rho
                if step <= 0:
                    return -math.inf
                total += sign * counts[j] * math.log(step)
        return total

    def best_mean(self, rho: float) -> float:
        """The mean that is likeliest with `rho`: Newton's steps, kept within bounds that hold it."""
        low, high, mean = 0.0, 1.0, self.passes[0] / (self.passes[0] + self.fails[0])
        for _ in range(_STEPS):
            up, up_bend = _slope(self.passes, mean, rho)
            down, down_bend = _slope(self.fails, 1 - mean, rho)
            slope, bend = up - down, up_bend + down_bend
            low, high = (mean, high) if slope > 0 else (low, mean)
            step = mean - slope / bend
            step = step if low < step < high else (low + high) / 2
            if abs(step - mean) < _CLOSE:
                break
            mean = step
        return mean


def _more_than(numbers: list[int]) -> list[int]:
    """For each j from 0 how many numbers are larger than j; nothing for none."""
    exactly = [0] * (max(numbers, default=0) + 1)
    for number in numbers:
        exactly[number] += 1
    left, found = len(numbers), []
    for j in range(len(exactly) - 1):
        left -= exactly[j]
        found.append(left)
    return found


def _slope(counts: list[int], mean: float, rho: float) -> tuple[float, float]:
    """First and second derivative of the part of the log likelihood that grows with `mean`."""
    slope, bend = counts[0] / mean, -counts[0] / (mean * mean)
    start, weight = mean * (1 - rho), 1 - rho
    for j in range(1, len(counts)):
        term = weight / (start + j * rho)
        slope += counts[j] * term
        bend -= counts[j] * term * term
    return slope, bend
