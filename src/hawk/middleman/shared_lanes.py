"""Which part of each lane this replica asks for, and what it is given: between lanes and the database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from hawk.core.traffic.lane import Reason
from hawk.core.traffic.shares import fractions, of_window, places, steady
from hawk.middleman.admission import Turnstile
from hawk.middleman.shared_database import Heard, Held, LeaseRow, LimitRow, PauseRow
from hawk.middleman.shared_lane import Lease, SharedLane, least_fraction, offline

_FORGOTTEN_AFTER = 60.0
"""Seconds without a request after which a lane gives back what it has."""

_ROOM = 1.25
"""Leases of an adaptive limit are so much larger than it is now, and 2 places for each replica: it must be able to climb."""

_TURN = 2.0
"""Seconds that a replica has the only place before the next one has it."""

Names = tuple[str, str, str]


def lane_id(names: Names) -> str:
    """Names come from outside: they may be long, and hold what a database does not take."""
    return hashlib.sha256(msgspec.json.encode(names)).hexdigest()[:32]


class SharedLanes:
    """The lanes of one replica, as the others know them."""

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self.living = [replica]
        self._ids: dict[Names, str] = {}
        self._held: dict[str, dict[str, Held]] = {}
        self._limits: dict[str, float] = {}
        self._changes: dict[str, float] = {}
        self._pauses: dict[str, tuple[float, Reason]] = {}
        self._asked: dict[str, tuple[Turnstile, SharedLane, Lease]] = {}
        self._told: list[tuple[SharedLane, tuple[float, Reason]]] = []
        self._clock = 0.0
        """The database's, less the event loop's."""

    def ask(
        self, turnstiles: Iterable[Turnstile], now: float, *, frozen: bool
    ) -> tuple[list[LeaseRow], list[LimitRow], list[PauseRow]]:
        """What the others are to be told. Lanes use no more than they ask for from here on.

        Args:
            frozen: Ask for no more than there is: who else has what is not known yet.
        """
        leases, limits, pauses = [], [], []
        self._asked, self._told = {}, []
        for turnstile in turnstiles:
            lane = turnstile.lane
            if not isinstance(lane, SharedLane):
                continue
            name = self.id_of(turnstile.name)
            if lane.told is not None:
                until, why = lane.told
                pauses.append(PauseRow(name, max(until - now, 0.0), why.value))
                self._told.append((lane, lane.told))
            if not lane.in_flight and not lane.waiting and now - turnstile.last_used > _FORGOTTEN_AFTER:
                if lane.leased:
                    lane.leased = False
                    lane.lend(Lease(), now)
                continue
            if frozen and not lane.leased and not lane.lease.places:
                lane.lend(offline(lane.limits, len(self.living)), now)
            row, wanted = self._lease(name, lane, now, frozen=frozen)
            lane.lend(_least(lane.lease, wanted), now)
            self._asked[name] = (turnstile, lane, wanted)
            leases.append(row)
            if lane.limits.adaptive:
                limits.append(self._limit(name, lane))
        return leases, limits, pauses

    def _lease(self, name: str, lane: SharedLane, now: float, *, frozen: bool) -> tuple[LeaseRow, Lease]:
        me, configured = self._replica, lane.limits
        held = self._held.get(name, {})
        demand = {replica: held[replica].demand if replica in held else {} for replica in self.living}
        demand[me] = lane.demand(now)
        most, count = self._most(name, lane), len(demand)
        target = places(most, demand, self._turn(now))[me]
        share = steady(lane.lease.places, target, max(most - (count - 1), target))
        row = LeaseRow(name, lane.in_flight, share, most, demand[me])
        rates = {}
        fraction = 1.0
        for kind, limit in (
            ("requests", configured.requests_per_minute),
            ("tokens", configured.tokens_per_minute),
        ):
            if limit is None:
                rates[kind] = (0.0, 0.0, 0.0)
                continue
            parts = fractions(demand, float(most), least_fraction(limit, count))
            fraction = min(fraction, parts[me])
            used = {replica: getattr(one, f"used_{kind}") for replica, one in held.items()}
            used[me] = lane.used(kind, now)
            rates[kind] = (used[me], of_window(limit, used, parts, me), limit)
        row.used_requests, row.requests, row.most_requests = rates["requests"]
        row.used_tokens, row.tokens, row.most_tokens = rates["tokens"]
        if frozen:
            row.places = min(row.places, lane.lease.places)
            row.requests = min(row.requests, lane.lease.requests)
            row.tokens = min(row.tokens, lane.lease.tokens)
        return row, Lease(row.places, row.requests, row.tokens, fraction)

    def _most(self, name: str, lane: SharedLane) -> int:
        limits = lane.limits
        if not limits.adaptive:
            return limits.most
        limit = self._limits.get(name, float(limits.start))
        return min(int(limit * _ROOM) + 2 * len(self.living), limits.most)

    def _limit(self, name: str, lane: SharedLane) -> LimitRow:
        limits = lane.limits
        change = self._changes[name] = self._changes.get(name, 0.0) + lane.learnt()
        start = float(max(min(limits.start, limits.most), limits.least, 1))
        return LimitRow(name, start, change, float(max(limits.least, 1)), float(limits.most))

    def apply(self, heard: Heard, now: float) -> None:
        """What was asked for is given, or less."""
        self._clock = heard.now - now
        self.living = sorted({*(replica.id for replica in heard.replicas or ()), self._replica})
        self._limits = heard.limits or {}
        self._changes = {}
        self._held = {}
        for lane, told in self._told:
            if lane.told is told:
                lane.told = None
        for held in heard.leases or ():
            self._held.setdefault(held.lane, {})[held.replica] = held
        for name, (turnstile, lane, wanted) in self._asked.items():
            given = self._held.get(name, {}).get(self._replica)
            if given is None:
                continue
            lane.leased = True
            lane.lend(_least(wanted, Lease(given.places, given.requests, given.tokens, wanted.fraction)), now)
            if lane.limits.adaptive and name in self._limits:
                lane.adapt(self._part(name, lane, now), now)
            turnstile.refresh()

    def _part(self, name: str, lane: SharedLane, now: float) -> float:
        held = self._held[name]
        demand = {replica: held[replica].demand if replica in held else {} for replica in self.living}
        limit = max(int(self._limits[name]), 1)
        return float(places(limit, demand, self._turn(now))[self._replica])

    def hear_pauses(self, pauses: Iterable[PauseRow], turnstiles: Iterable[Turnstile], now: float) -> None:
        """The provider has asked somebody for a pause."""
        for pause in pauses:
            if pause.seconds > 0:
                self._pauses[pause.lane] = (now + pause.seconds, Reason(pause.why))
        self._pauses = {name: pause for name, pause in self._pauses.items() if pause[0] > now}
        for turnstile in turnstiles:
            if isinstance(turnstile.lane, SharedLane):
                self.hold(turnstile.name, turnstile.lane, now)

    def hold(self, names: Names, lane: SharedLane, now: float) -> None:
        """Keep a pause that is known."""
        pause = self._pauses.get(self.id_of(names))
        if pause is not None and pause[0] > now:
            lane.hold(*pause, now)

    def go_offline(self, turnstiles: Iterable[Turnstile], now: float) -> None:
        """The database is away. Lanes that have no lease use what is left to everybody."""
        for turnstile in turnstiles:
            lane = turnstile.lane
            if isinstance(lane, SharedLane) and not lane.leased and not lane.lease.places:
                lane.lend(offline(lane.limits, len(self.living)), now)
                turnstile.refresh()

    def id_of(self, names: Names) -> str:
        found = self._ids.get(names)
        if found is None:
            if len(self._ids) > 20_000:
                self._ids.clear()
            found = self._ids[names] = lane_id(names)
        return found

    def _turn(self, now: float) -> int:
        return int((self._clock + now) / _TURN)


def _least(one: Lease, other: Lease) -> Lease:
    return Lease(
        min(one.places, other.places),
        min(one.requests, other.requests),
        min(one.tokens, other.tokens),
        other.fraction,
    )
