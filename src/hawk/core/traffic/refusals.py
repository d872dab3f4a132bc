"""What a refusal means: too many in flight, too many a minute, or a provider that can't for now.

Providers answer 429 for the first two alike. Told apart by what was in flight: a bound on that refuses only above
levels that it lets through; a rate refuses at levels that were fine a moment ago.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import msgspec

_BACK_OFF = 0.5
_BACK_OFF_FACTOR = 3.0
_BACK_OFF_MOST = 6.5
_LONG = 60.0
_BACK_OFF_LONG = 60.0
_KEPT_FOR = 120.0
_NEEDED = 3
_PASSES_NEEDED = 20


class Cause(Enum):
    """Why a request was probably refused."""

    CONCURRENCY = 1
    RATE = 2
    OVERLOAD = 3


class _Seen(msgspec.Struct):
    at: float
    level: int
    best: int = 0
    """The most in flight at which a request sent since was let through."""
    passes: int = 0


class Refusals:
    """Rows of refusals: from one to the next without anything let through between them."""

    def __init__(self) -> None:
        self.row = 0
        """How many in a row."""
        self.since = 0.0
        """When the row began."""
        self.cut_at = float("-inf")
        """Refusals of requests that were let go before this are of the same round trip, and say nothing new."""
        self.cause = Cause.RATE
        self.apart = False
        """The last refusals were all above every level that was let through meanwhile."""
        self._passed = -1
        self._tried_minute = False
        self._seen: deque[_Seen] = deque(maxlen=_NEEDED)

    def refused(self, now: float, passed: int) -> bool:
        """One of a new round trip; whether nothing was let through since the last.

        Args:
            passed: Requests let through, ever, of those that were sent before this one.
        """
        again = passed <= self._passed and self.row > 0
        if again:
            self.row += 1
        else:
            self.row, self.since, self._tried_minute = 1, now, False
        self.cut_at, self._passed = now, passed
        return again

    def back_off(self, now: float, oldest_leaves: float) -> float:
        """Seconds to wait when the provider does not say.

        Args:
            oldest_leaves: When the oldest request of the last minute is a minute old: a provider that counts over a
                sliding minute then lets one through.
        """
        lasted = now - self.since
        if lasted > _LONG:
            return min(lasted / 8.0, _BACK_OFF_LONG)
        wait = float(min(_BACK_OFF * _BACK_OFF_FACTOR ** min(self.row - 1, 8), _BACK_OFF_MOST))
        if self.row > 1 and not self._tried_minute and oldest_leaves - now < wait:
            self._tried_minute = True
            return max(oldest_leaves - now, _BACK_OFF)
        return wait

    def judge(self, status: int, level: int, edge: bool, proven: int, now: float) -> Cause:
        """The probable cause of the first refusal of a row.

        Args:
            level: Requests in flight when this one was let go, itself included.
            edge: It took the last place that we allowed.
            proven: The most in flight at which one was let through lately.
        """
        if status != 429:
            self.cause = Cause.OVERLOAD
            return self.cause
        while self._seen and now - self._seen[0].at > _KEPT_FOR:
            self._seen.popleft()
        self._seen.append(_Seen(now, level))
        first = self._seen[0]
        self.apart = (
            len(self._seen) == _NEEDED
            and first.passes >= _PASSES_NEEDED
            and min(one.level for one in self._seen) > first.best
        )
        self.cause = Cause.CONCURRENCY if self.apart or (edge and level > proven) else Cause.RATE
        return self.cause

    def passed(self, level: int, granted_at: float) -> None:
        """A request that was sent at this level was let through."""
        for one in self._seen:
            if granted_at >= one.at:
                one.passes += 1
                one.best = max(one.best, level)

    def watching(self) -> bool:
        """Whether `passed` must be told."""
        return bool(self._seen)
