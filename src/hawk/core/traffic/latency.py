"""Whether a provider answers later because more is in flight: the knee of its load curve.

Past the knee a provider queues, and by Little's law its latency grows with the number in flight while nothing more
gets done. Vegas compares the latency now with that of an idle path (Brakmo and Peterson, "TCP Vegas", 1995); a model's
answers differ by request far more than packets do. So whole rounds are compared, by the mean of the logarithm of the
time to the first byte, and only a rise of three standard errors (Welch) counts. As the mix of requests drifts
over hours (contexts grow), a cut that did not bring latency down is taken back and the new latency is what is normal.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_SAMPLES = 40
_CLEAR = math.log(1.3)
_SIGNIFICANT = 3.0
_SHARE_OF_LOAD = 0.4
"""At full queueing latency grows as the number in flight does; this share of it is enough to blame load."""
_LOWEST_CUT = 0.5
_MOST_WEIGHT = 400.0


class Round(NamedTuple):
    """One round's time to first byte: its logarithm's mean and variance over n answers, at this many in flight."""

    level: float
    n: float
    mean: float
    var: float


class Knee:
    """Collects rounds and says which limit would be better."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._n = 0
        self._levels = 0
        self._sum = 0.0
        self._squares = 0.0
        self._normal: Round | None = None
        self._before: Round | None = None
        """The round that led to a cut, until the cut has shown its worth."""

    def add(self, level: int, seconds: float, granted_at: float, now: float) -> bool:
        """An answer while the limit was in use; True: a round is complete."""
        if granted_at < self._since or seconds <= 0.0:
            return False
        value = math.log(seconds)
        self._n += 1
        self._levels += level
        self._sum += value
        self._squares += value * value
        return self._n >= _SAMPLES and self._n * self._n >= self._levels

    def restart(self, now: float) -> None:
        """What was collected belongs to another limit."""
        self._since = now
        self._n = self._levels = 0
        self._sum = self._squares = 0.0

    def verdict(self, now: float) -> float | None:
        """After a round: a better limit, or None."""
        mean = self._sum / self._n
        last = Round(self._levels / self._n, self._n, mean, max(self._squares / self._n - mean * mean, 1e-6))
        self.restart(now)
        if self._before is not None:
            return self._was_it_load(last)
        if self._normal is None or _rise(last, self._normal) < -_SIGNIFICANT * _error(last, self._normal):
            self._normal = last
            return None
        if last.level <= 1.2 * self._normal.level:
            self._normal = _pooled(self._normal, last)
            return None
        rise = _rise(last, self._normal)
        if rise < max(_CLEAR, _SIGNIFICANT * _error(last, self._normal)):
            return None
        self._before = last
        return max(self._normal.level, last.level * max(math.exp(-rise) * 1.1, _LOWEST_CUT))

    def _was_it_load(self, after: Round) -> float | None:
        before, self._before = self._before, None
        assert before is not None
        expected = _SHARE_OF_LOAD * math.log(max(before.level / after.level, 1.0))
        if _error(after, before) - _rise(after, before) >= expected:
            return None
        self._normal = after
        return before.level


def _rise(one: Round, other: Round) -> float:
    return one.mean - other.mean


def _error(one: Round, other: Round) -> float:
    return math.sqrt(one.var / one.n + other.var / other.n)


def _pooled(one: Round, other: Round) -> Round:
    weight = min(one.n, _MOST_WEIGHT - other.n)
    n = weight + other.n
    return Round(
        level=(one.level * weight + other.level * other.n) / n,
        n=n,
        mean=(one.mean * weight + other.mean * other.n) / n,
        var=(one.var * weight + other.var * other.n) / n,
    )
