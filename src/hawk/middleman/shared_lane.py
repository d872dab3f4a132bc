"""A lane that may use a part of its limits: the rest is lent to other replicas.

What a lane may use is a lease that the database gave it; it never uses more, and a part that it gives back is given
back only when it is free. So all replicas together stay below what is configured, however late they hear of each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from hawk.core.traffic.adaptive import Concurrency
from hawk.core.traffic.lane import Lane, Limits, Reason, Ticket
from hawk.core.traffic.rates import MINUTE, Quota
from hawk.core.traffic.shares import Waves

_TOLD = frozenset({Reason.RETRY_AFTER, Reason.TOKENS_PER_MINUTE})
"""Pauses that the provider asked for; others are guesses of the lane's own."""

_FULL_BUCKET = 6.0
_RESCALED = 0.15
"""The adaptive limit is moved to its part when it is off by more than this."""

_Block = tuple[Reason, float | None]


class Lease(msgspec.Struct, frozen=True):
    """What a lane may use.

    Attributes:
        places: Requests in flight.
        requests, tokens: In any minute; 0 where no such limit is configured.
        fraction: Of a configured rate: how fast it may go.
    """

    places: int = 0
    requests: float = 0.0
    tokens: float = 0.0
    fraction: float = 1.0


class PartOfLimit(Concurrency):
    """An adaptive limit that is one replica's part of a common one."""

    def bound(self, limits: Limits, places: int) -> None:
        """Never more than these places; the limit is at least 1, none at all is the lane's to see to."""
        self.configure(msgspec.structs.replace(limits, most=max(places, 1), least=1))

    def move(self, limit: float, now: float) -> None:
        """Its part has changed. What was learnt at its levels holds at the same part of them."""
        factor = limit / self.limit
        self.limit = limit
        self._ceiling *= factor
        self._uncut *= factor
        self._proven = [math.ceil(level * factor) for level in self._proven]
        self.knee.restart(now)


class PartOfQuota(Quota):
    """A replica's part of a configured rate."""

    def used(self, now: float) -> float:
        """In the last minute."""
        return self._window.total(now)

    def lend(self, window: float, per_minute: float, burst: float, now: float) -> None:
        """So much in any minute, at this pace."""
        self._refill(now)
        self.per_minute = window
        self._rate = per_minute / MINUTE
        self._burst = burst
        self._level = min(self._level, burst)


class SharedLane(Lane):
    """A lane with a lease. It starts with none.

    Args:
        wanted: Called when a request finds no lease, and when the provider asks for a pause.

    Attributes:
        leased: The database has given it its lease; it is kept while the database is away.
        told: A pause that the provider asked for and the others don't know of: until when, why.
    """

    def __init__(self, limits: Limits, now: float, wanted: Callable[[], None]) -> None:
        self.lease = Lease()
        self.leased = False
        self.told: tuple[float, Reason] | None = None
        self._part = PartOfLimit(limits)
        self._accounted = self._part.limit
        self._waves = Waves()
        self._wanted = wanted
        self._quotas: dict[str, PartOfQuota] = {}
        super().__init__(limits, now)

    def _set_limits(self, limits: Limits, now: float, old: Limits | None) -> None:
        self._control = self._part
        self._limits = limits
        if not limits.adaptive:
            self._pace.forget()
        for name, rate in (("requests", limits.requests_per_minute), ("tokens", limits.tokens_per_minute)):
            if rate is None:
                self._quotas.pop(name, None)
            elif name not in self._quotas:
                self._quotas[name] = PartOfQuota(rate, math.inf, now)  # full at first
        self._requests_quota = self._quotas.get("requests")
        self._tokens_quota = self._quotas.get("tokens")
        self.lend(self.lease, now)

    # --- what is told to the others ---------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Requests at the provider."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._queue.waiting

    def used(self, name: str, now: float) -> float:
        """Of `requests` or `tokens`, in the last minute."""
        quota = self._quotas.get(name)
        return quota.used(now) if quota is not None else 0.0

    def demand(self, now: float) -> dict[str, float]:
        """Requests in flight and waiting, by job."""
        shares = self._shares.values()
        return self._waves.add({s.job: n for s in shares if (n := s.in_flight + s.waiting)}, now)

    def learnt(self) -> float:
        """By how much the adaptive limit has moved since this was asked last."""
        change = self._part.limit - self._accounted
        self._accounted = self._part.limit
        return change

    # --- what the others tell ---------------------------------------------------------------------------

    def lend(self, lease: Lease, now: float) -> None:
        """It may use this from now on. What it has in flight beyond ends by itself."""
        self.lease = lease
        limits, change = self._limits, self._part.limit - self._accounted
        self._part.bound(limits, lease.places)
        self._accounted = self._part.limit - change
        burst = max(1.0, (limits.requests_per_minute or 0.0) * lease.fraction / MINUTE)
        self._lend("requests", lease.requests, limits.requests_per_minute, burst, now)
        burst = (limits.tokens_per_minute or 0.0) * lease.fraction / _FULL_BUCKET
        self._lend("tokens", lease.tokens, limits.tokens_per_minute, burst, now)
        self._look_for_rates(now)

    def _lend(self, name: str, window: float, rate: float | None, burst: float, now: float) -> None:
        if rate is not None:
            self._quotas[name].lend(window, rate * self.lease.fraction, burst, now)

    def adapt(self, part: float, now: float) -> None:
        """Its part of the limit that all have learnt together."""
        part = max(min(part, float(self.lease.places)), 1.0)
        if self._limits.adaptive and abs(part - self._part.limit) > max(_RESCALED * self._part.limit, 0.5):
            self._accounted += part - self._part.limit
            self._part.move(part, now)

    def hold(self, until: float, why: Reason, now: float) -> None:
        """The provider asked another replica for a pause."""
        super()._pause(until, why, now)

    # --- what differs from a lane alone -------------------------------------------------------------------

    def _pause(self, until: float, why: Reason, now: float) -> None:
        before = self._paused_until
        super()._pause(until, why, now)
        if why in _TOLD and self._paused_until > before:
            self.told = (until, why)
            self._wanted()

    def _look_for_rates(self, now: float) -> None:
        super()._look_for_rates(now)
        self._plain = self._plain and self.lease.places > 0

    def _blocked(self, ticket: Ticket, now: float) -> _Block | None:
        if self.lease.places <= 0:
            if not self.leased:
                self._wanted()
            return Reason.CONCURRENCY, None
        return super()._blocked(ticket, now)


def offline(limits: Limits, replicas: int) -> Lease:
    """The lease of a lane that the database has never heard of while it is away: what the others leave to each.

    Args:
        replicas: How many there were at last.
    """
    if replicas <= 1:
        return whole(limits)
    fraction = least_fraction(limits.requests_per_minute, replicas)
    tokens = (limits.tokens_per_minute or 0.0) * least_fraction(limits.tokens_per_minute, replicas)
    requests = (limits.requests_per_minute or 0.0) * fraction
    return Lease(int(limits.most >= replicas), requests, tokens, fraction)


def whole(limits: Limits) -> Lease:
    """Everything."""
    return Lease(limits.most, limits.requests_per_minute or 0.0, limits.tokens_per_minute or 0.0)


def least_fraction(rate: float | None, replicas: int) -> float:
    """Part of a rate that each replica keeps: a fiftieth, at least 1 a minute where that is possible."""
    return min(max(0.02, 1.0 / rate if rate else 0.0), 1.0 / replicas)
