"""How many requests may be in flight: climbs while answers are good, backs off when the provider says too much.

TCP's answer to the same question: slow start, then additive increase and multiplicative decrease once per round trip
(Jacobson, "Congestion avoidance and control", 1988), growth only while the limit is used (RFC 7661), and a return
to just below the level that was refused, with rarer and rarer looks above it (after CUBIC, RFC 9438).
"""

from __future__ import annotations

import math

from hawk.core.traffic.latency import Knee
from hawk.core.traffic.tickets import Limits

_REFUSED = 0.9
"""A 429 names a sharp bound, mostly just passed."""
_OVERLOADED = 0.7
"""503, 529, and whatever does not end: how far it is too much is not known (CUBIC's factor)."""
_SLOW_START = 0.5
"""A good answer. Half of TCP's: what is sent before the first refusal is back is refused with it."""
_LOOK_FIRST = 4.0
_LOOK_MOST = 120.0
_PROVEN_FOR = 60.0
_MISTAKEN_FOR = 15.0


class Concurrency:
    """The limit of one lane.

    Attributes:
        limit: Requests that may be in flight; whole requests count.
    """

    def __init__(self, limits: Limits) -> None:
        self.limit = float(max(min(limits.start, limits.most), limits.least, 1))
        self.slow_start = True
        self.knee = Knee()
        self._ceiling = math.inf
        """A level that was refused, or where answers came late; the limit stays below it until `_look_at`."""
        self._late = False
        """The ceiling is where answers came late: it is raised by and by, and latency says when that is too much."""
        self._look_at = 0.0
        self._look_after = _LOOK_FIRST
        self._step = 1.0
        self._round_ends = -math.inf
        self._held_at = -math.inf
        self._uncut = self.limit
        """The limit before it was cut for a refused level."""
        self._proven = [0, 0]
        self._proven_turn = 0.0
        self.configure(limits)

    def configure(self, limits: Limits) -> None:
        """Other bounds from now on."""
        self._most = float(max(limits.most, 1))
        self._least = float(max(min(limits.least, limits.most), 1))
        self._adaptive = limits.adaptive
        self.limit = min(max(self.limit, self._least), self._most) if limits.adaptive else self._most

    def proven(self) -> int:
        """The most requests in flight, of late, at which the provider let another through."""
        return max(self._proven)

    def good(self, level: int, seconds: float, granted_at: float, used: bool, now: float) -> None:
        """A request was answered well.

        Args:
            level: Requests in flight when it was let go, itself included.
            seconds: To its first byte.
            used: The limit is all in use.
        """
        if level > self._proven[0]:
            self._proven[0] = level
        if now >= self._proven_turn:
            self._proven = [level, self._proven[0]]
            self._proven_turn = now + _PROVEN_FOR
        if not used or not self._adaptive:
            return
        if self.knee.add(level, seconds, granted_at, now):
            self._judge_latency(now)
        self._climb(level, granted_at, now)

    def _climb(self, level: int, granted_at: float, now: float) -> None:
        if self.slow_start and self._ceiling == math.inf:
            self.limit = min(self.limit + _SLOW_START, self._most)
            return
        if self._late:
            if now >= self._look_at:
                self._hold(self._ceiling + max(self._ceiling / 10, 1.0), True, now)
        elif level >= self._ceiling:
            # Refused before, good now: the bound has moved.
            self._ceiling, self._look_after, self._step = math.inf, _LOOK_FIRST, 2.0
        bound = self._ceiling - 1.0
        if now >= self._look_at and self.limit >= bound and not self._late:
            bound = self._ceiling
        if granted_at >= self._round_ends:
            self._round_ends = now
            self._step = min(self._step * 2.0, max(self.limit / 4, 1.0)) if self._ceiling == math.inf else 1.0
        self.limit = min(self.limit + self._step / self.limit, max(bound, self.limit), self._most)

    def _judge_latency(self, now: float) -> None:
        better = self.knee.verdict(now)
        if better is None:
            return
        if better > self.limit:
            self.limit = min(better, self._most)
            self._ceiling, self._look_after = math.inf, _LOOK_FIRST
            return
        self.slow_start = False
        self.limit = max(better, self._least)
        self._hold(math.floor(self.limit) + 1.0, True, now)

    def refused(self, level: int, concurrency: bool, again: bool, now: float, apart: bool = False) -> None:
        """Too much; once per round trip.

        Args:
            level: Requests in flight when the refused one was let go.
            concurrency: It was one too many in flight (429); else the provider is overloaded (503, 529).
            again: Nothing was let through since the last time.
            apart: Several refusals have shown that this level is the bound.
        """
        if not self._adaptive:
            return
        factor = _REFUSED if concurrency and not again else _OVERLOADED
        at = min(self.limit, float(max(level, 1)))
        if concurrency:
            if now - self._held_at >= _MISTAKEN_FOR:
                self._uncut = self.limit
            self._held_at = now
            self.slow_start = False
            # The level of a refusal that was long under way may be far below what was let through since.
            self.limit = max(min(at * factor, at - 1), 0.0 if apart else self.limit / 2, self._least)
            self._hold(max(float(level), math.floor(self.limit) + 1.0), False, now)
        else:
            self.slow_start = False
            self.limit = max(self.limit * factor, self._least)
            if not again:
                self._hold(float(level), False, now)
        self.knee.restart(now)

    def bounded_by_rate(self, now: float) -> None:
        """What looked like a bound on requests in flight of late was a rate."""
        if now - self._held_at < _MISTAKEN_FOR:
            self.limit = max(self.limit, min(self._uncut, self._most))
        self._ceiling = math.inf
        self._look_after = _LOOK_FIRST

    def _hold(self, ceiling: float, late: bool, now: float) -> None:
        same = late == self._late and abs(ceiling - self._ceiling) <= max(ceiling / 5, 1.0)
        self._late = late
        self._look_after = min(self._look_after * 2, _LOOK_MOST) if same else _LOOK_FIRST
        self._ceiling = ceiling
        self._look_at = now + self._look_after
