"""Rates: what was sent in the last minute, a bucket for what a person configured, a pace that refusals teach."""

from __future__ import annotations

import math

MINUTE = 60.0
_CELL = 0.25
_CELLS = int(MINUTE / _CELL) + 1
_FORGOTTEN = -(10**9)


class Window:
    """A sum over the last minute, in cells of a quarter of a second; what is added leaves after 60 to 60.25 s."""

    __slots__ = ("_cells", "_slot", "_total")

    def __init__(self) -> None:
        self._cells = [0.0] * _CELLS
        self._slot = _FORGOTTEN
        self._total = 0.0

    def add(self, when: float, amount: float = 1.0) -> None:
        """Count something, now or for a moment within the last minute; negative: take it back."""
        slot = int(when * 4.0)
        if slot > self._slot:
            self._advance(slot)
        if self._slot - slot < _CELLS:
            self._cells[slot % _CELLS] += amount
            self._total += amount

    def total(self, now: float) -> float:
        """The sum."""
        slot = int(now * 4.0)
        if slot > self._slot:
            self._advance(slot)
        return self._total

    def until_below(self, bound: float, now: float) -> float:
        """When the sum is at most `bound`, if nothing more is added."""
        left = self.total(now)
        for slot in range(self._slot - _CELLS + 1, self._slot + 1):
            if left <= bound:
                break
            left -= self._cells[slot % _CELLS]
            if left <= bound:
                return (slot + _CELLS) * _CELL
        return now

    def next_fall(self, now: float) -> float:
        """When the oldest that was counted leaves the sum."""
        for slot in range(int(now * 4.0) - _CELLS + 1, self._slot + 1):
            if self._cells[slot % _CELLS] > 0:
                return (slot + _CELLS) * _CELL
        return now + MINUTE

    def _advance(self, slot: int) -> None:
        if slot - self._slot >= _CELLS:
            self._cells = [0.0] * _CELLS
            self._total = 0.0
        else:
            for passed in range(self._slot + 1, slot + 1):
                index = passed % _CELLS
                self._total -= self._cells[index]
                self._cells[index] = 0.0
        self._slot = slot


class Quota:
    """So much a minute, as configured: spread evenly with a small bucket, and never more in any 60 seconds.

    A token bucket alone would let through a minute's worth and its bucket besides.

    Args:
        per_minute: Requests or tokens.
        burst: Of the bucket, in the same unit.
    """

    def __init__(self, per_minute: float, burst: float, now: float) -> None:
        self.per_minute = per_minute
        self._rate = per_minute / MINUTE
        self._burst = burst
        self._level = burst
        self._at = now
        self._window = Window()

    def ready_at(self, amount: float, now: float) -> float:
        """When so much may go: now, or later. More than a bucket holds may go when it is full."""
        self._refill(now)
        short = min(amount, self._burst) - self._level
        ready = now if short <= 1e-9 else now + short / self._rate
        room = max(self.per_minute - amount, 0.0)
        if self._window.total(now) > room + 1e-9:
            ready = max(ready, self._window.until_below(room + 1e-9, now))
        return ready

    def spend(self, amount: float, now: float) -> None:
        """So much goes now."""
        self._refill(now)
        self._level -= amount
        self._window.add(now, amount)

    def settle(self, more: float, now: float) -> None:
        """It was so much more than was spent; negative: less."""
        self._level = min(self._level - more, self._burst)
        self._window.add(now, more)

    def _refill(self, now: float) -> None:
        self._level = min(self._level + (now - self._at) * self._rate, self._burst)
        self._at = now


_FIRST_CUT = 0.97
_CUT = 0.98
_DEEPEST = ((5, 0.6), (20, 0.75), (60, 0.88))
"""(requests let through since the last refusal, deepest cut): a rate far above the limit is refused at once."""
_DEEPEST_LATER = 0.95
_DEEPEST_FIRST = 0.35
_FIRST_REFUSALS = 4
"""The first estimate has the provider's bucket in it and can be many times too high."""
_PRIOR = 4.0
"""The rate so far weighs as much as four observed requests: two refusals half a second apart show little."""
_RAISE_EVERY = 5.0
_FIRST_STEP = 0.05
_UNSURE_STEP = 0.02
_KNOWN_STEP = 0.004
_LEAST_STEP = 0.002
_MOST_STEP = 0.2
"""Steps of the probe upwards. They halve with each refusal that comes within `_ONCE_A`, and grow after it, so that a
refusal comes about once in that time: fewer than 1 in 100 of 100 requests a minute."""
_ONCE_A = 60.0
_FASTER = 1.2
_SLACK = 0.05
_QUICK = 10.0
_LOWEST = 1.0 / MINUTE
_WHOLE_MINUTE = 0.95 * MINUTE


class Pace:
    """A request rate that nobody told us, found by refusals; unbounded until the first.

    Between two refusals the provider let through exactly what it allows, since it was full at both: that count over
    that time is the measure, as BBR takes the delivery rate of a full pipe for its bandwidth (Cardwell et al., "BBR:
    congestion-based congestion control", 2016). Spacing is a leaky bucket (GCRA, ITU-T I.371) with little slack.
    """

    def __init__(self) -> None:
        self.rate = math.inf
        """Requests a second."""
        self.next_at = -math.inf
        self.bound = False
        """It held a request back since the last raise."""
        self._full_at: float | None = None
        self._full_count = 0
        self._refused_at = -math.inf
        self._quick = 0
        self._refusals = 0
        self._raise_at = 0.0
        self._step = _FIRST_STEP

    def granted(self, now: float) -> None:
        """A request goes now."""
        self.next_at = max(self.next_at, now - _SLACK) + 1.0 / self.rate

    def refused(self, now: float, passed: int, minute: float, age: float) -> None:
        """The provider refused a request because of its rate, after it had let through others.

        Args:
            passed: Requests let through, ever.
            minute: Requests let through in the last minute.
            age: Seconds since the first of those, at most a minute.
        """
        overall = minute / min(max(age, 1.0), MINUTE)
        self._refusals += 1
        self._quick = self._quick + 1 if now - self._refused_at < _QUICK else 0
        if self._quick >= 2:
            self._step = max(self._step, _UNSURE_STEP)
        if math.isinf(self.rate):
            rate = overall * _FIRST_CUT
        else:
            rate = self._cut(now, passed)
            if age >= _WHOLE_MINUTE and self._quick < 2:
                # So many did go through within a minute; only row upon row of refusals says that this is over.
                rate = max(rate, min(overall, self.rate) * (_CUT if self._quick == 0 else 0.95))
            if _QUICK < now - self._refused_at < _ONCE_A:
                self._step = max(self._step / 2, _LEAST_STEP)
        self._set(rate, now)
        self.mark_full(now, passed)

    def _cut(self, now: float, passed: int) -> float:
        rate = self.rate * _CUT
        if self._full_at is None or now <= self._full_at:
            return rate
        seen = passed - self._full_count
        measured = (seen + _PRIOR) / (now - self._full_at + _PRIOR / self.rate)
        deepest = next((cut for most, cut in _DEEPEST if seen < most), _DEEPEST_LATER)
        if self._refusals <= _FIRST_REFUSALS and deepest < _DEEPEST_LATER:
            deepest = _DEEPEST_FIRST
        return max(min(rate, measured * 0.99), self.rate * deepest)

    def still_refused(self, now: float, minute: float, age: float) -> None:
        """Again refused, with nothing let through since: the provider counts over a longer time, so do we."""
        self._set(min(self.rate, minute / min(max(age, 1.0), MINUTE) * 0.995), now)

    def known(self) -> None:
        """The provider counts over a minute, so that what went through in one is its limit, not an estimate."""
        self._step = min(self._step, _KNOWN_STEP)

    def mark_full(self, now: float, passed: int) -> None:
        """The provider is full now, or was until now and begins to let through again."""
        self._full_at, self._full_count = now, passed

    def forget(self) -> None:
        """It was not the rate."""
        self.rate = math.inf
        self.next_at = self._refused_at = -math.inf
        self._full_at = None
        self._refusals = 0
        self._step = _FIRST_STEP

    def raise_slowly(self, now: float) -> None:
        """Probe upwards while requests are held back; call now and then."""
        if now < self._raise_at:
            return
        self._raise_at = now + _RAISE_EVERY
        if not self.bound or math.isinf(self.rate):
            return
        self.bound = False
        self.rate *= 1.0 + self._step
        if now - self._refused_at > _ONCE_A:
            self._step = min(self._step * _FASTER, _MOST_STEP)

    def _set(self, rate: float, now: float) -> None:
        self.rate = max(rate, _LOWEST)
        self.next_at = max(self.next_at, now + 1.0 / self.rate)
        self._refused_at = now
        self._raise_at = now + _RAISE_EVERY
        self.bound = False
