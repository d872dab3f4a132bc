"""The provider's own bucket of requests, mirrored from its headers, so that it is never asked once too often."""

from __future__ import annotations

import math

from hawk.core.traffic.headers import Allowance
from hawk.core.traffic.rates import MINUTE

_LOOK_EVERY = 1.0
_ENOUGH_USED = 2.0


class Announced:
    """What is left by the last headers, less what was sent since, plus what came back meanwhile.

    Providers either refill all the time (OpenAI, Anthropic: the time of the full reset moves along) or reset all at
    once (the time stands still); two looks tell which.
    """

    def __init__(self) -> None:
        self.limit: float | None = None
        self.next_look = -math.inf
        self._level = 0.0
        self._at = 0.0
        self._rate = 0.0
        self._reset_at: float | None = None
        self._first: tuple[float, float] | None = None
        """(when, reset at) of an earlier look."""
        self._fixed: bool | None = None
        self._serial = 0

    def observe(self, left: Allowance, serial: int, sent: int, granted_at: float, now: float) -> None:
        """Take the headers of one answer.

        Args:
            serial: The request's number; headers of one that was sent earlier than the last are old news.
            sent: Requests sent by now.
            granted_at: When that request was sent.
        """
        if serial <= self._serial:
            return
        self._serial = serial
        self.next_look = now + _LOOK_EVERY
        self.limit = left.limit
        used = left.limit - left.remaining
        self._reset_at = None if left.reset is None else now + left.reset
        self._tell_kind(now)
        self._rate = left.limit / MINUTE
        if self._fixed:
            self._rate = 0.0
        elif self._fixed is False and left.reset and used >= _ENOUGH_USED:
            self._rate = used / left.reset
        self._level = left.remaining - (sent - serial) + self._rate * (now - granted_at)
        self._at = now

    def ready_at(self, now: float) -> float:
        """When the next request may go: now, or later."""
        if self.limit is None:
            return now
        self._refill(now)
        if self._level >= 1.0 - 1e-9:
            return now
        if self._fixed and self._reset_at is not None:
            return self._reset_at
        return now + (1.0 - self._level) / (self._rate or self.limit / MINUTE)

    def spend(self) -> None:
        """A request goes."""
        self._level -= 1.0

    def per_minute(self) -> float | None:
        """What the headers allow; None: no headers."""
        if self.limit is None:
            return None
        return self._rate * MINUTE if self._rate else self.limit

    def _refill(self, now: float) -> None:
        assert self.limit is not None
        if self._fixed and self._reset_at is not None and now >= self._reset_at:
            self._level = self.limit
            self._reset_at += MINUTE
        self._level = min(self._level + self._rate * (now - self._at), self.limit)
        self._at = now

    def _tell_kind(self, now: float) -> None:
        if self._reset_at is None:
            return
        if self._first is not None and now - self._first[0] >= _LOOK_EVERY:
            passed, moved = now - self._first[0], self._reset_at - self._first[1]
            # A new period begins, or seconds are rounded: neither is a sign of steady refilling.
            self._fixed = moved < 0.3 * passed or moved > 0.9 * MINUTE
            self._first = None
        if self._first is None:
            self._first = (now, self._reset_at)
