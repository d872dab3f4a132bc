"""Leases, spend and limits of several replicas: lanes on a clock of the test's, and the real database."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hawk.core.traffic.lane import Limits, Outcome, Ticket
from hawk.core.traffic.ledger import Spend
from hawk.errors import ConfigError, StorageError, UsageError
from hawk.middleman.shared_database import (
    Heard,
    Held,
    LeaseRow,
    ReplicaRow,
    SharedDatabase,
    SpentRow,
    Told,
)
from hawk.middleman.shared_lane import SharedLane
from hawk.middleman.shared_lanes import SharedLanes
from hawk.middleman.tokens import signing_key
from tests.store.databases import postgres

__all__ = ["postgres"]

needs_postgres = pytest.mark.postgres


def test_other_databases_are_refused(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/x.db", "postgresql://u:%zz@h/x", "redis://h"):
        with pytest.raises(UsageError, match="database"):
            SharedDatabase(url, lambda: None)


@dataclass
class Seat:
    """A lane with requests that always wait, and what stands for its turnstile."""

    lane: SharedLane
    name: tuple[str, str, str] = ("openai", "default", "rates")
    last_used: float = 0.0
    flying: list[tuple[float, Ticket]] = field(default_factory=list)

    def refresh(self) -> None:
        pass

    def turn(self, now: float, waiting: int) -> int:
        """End what is done, ask up to so many, send what may go; how many went."""
        for ended, ticket in [one for one in self.flying if one[0] <= now]:
            self.flying.remove((ended, ticket))
            self.lane.done(ticket, Outcome(200, 0.1), now)
        went = self.lane.grant(now)
        while self.lane.waiting < waiting:
            ticket = Ticket("job")
            if self.lane.ask(ticket, now):
                went.append(ticket)
        self.flying += [(now + 0.5, ticket) for ticket in went]
        return len(went)


async def linked(postgres: str, *names: str) -> list[SharedDatabase]:
    links = [SharedDatabase(postgres, lambda: None) for _ in names]
    for link in links:
        await link.connect()
    return links


def told(replica: str, *leases: LeaseRow, **more: Any) -> Told:
    values = {"batch": 0, "version": 0, **more}
    lanes = [row.lane for row in leases]
    return Told(replica, "one", "", heard_for=2.0, lanes=lanes, leases=list(leases), **values)


@needs_postgres
async def test_leases_never_add_up_to_more_than_there_is(postgres: str) -> None:
    one, two = await linked(postgres, "one", "two")

    async def ask(link: SharedDatabase, name: str, in_flight: int, places: int) -> tuple[int, float]:
        used, rate = in_flight * 10.0, places * 10.0
        row = LeaseRow("lane", in_flight, places, 8, {}, used, rate, 80.0)
        heard = await link.exchange(told(name, row))
        held = next(held for held in heard.leases or () if held.replica == name)
        return held.places, held.requests

    assert await ask(one, "one", 0, 8) == (8, 80)
    assert await ask(two, "two", 0, 4) == (0, 0)
    assert await ask(one, "one", 5, 3) == (5, 50), "what is in flight can't be given away"
    assert await ask(two, "two", 0, 4) == (3, 30)
    assert await ask(one, "one", 0, 8) == (5, 50)
    await one.leave("one")
    assert await ask(two, "two", 0, 8) == (8, 80)
    await two.leave("two")
    for link in (one, two):
        await link.close()


@needs_postgres
async def test_a_batch_that_is_told_twice_counts_once(postgres: str) -> None:
    """Whoever loses the connection at the wrong moment does not know whether it arrived."""
    (link,) = await linked(postgres, "one")
    spent = [SpentRow("job-batch", 0.5, 10, 1, 0)]
    for batch in (1, 1, 2):
        heard = await link.exchange(told("batches", batch=batch, spent=spent))
    assert [row.spend() for row in heard.jobs or () if row.job == "job-batch"] == [Spend(1.0, 20, 2, 0)]
    await link.leave("batches")
    await link.close()


def test_a_lane_uses_no_more_than_it_asks_for_and_asks_for_no_more_than_is_known() -> None:
    seat, lanes = Seat(SharedLane(Limits(most=8, adaptive=False), 0.0, lambda: None)), SharedLanes("one")
    assert seat.turn(0.0, 3) == 0, "nothing without a lease"
    seats: Any = [seat]

    def hear(others: float, given: int) -> None:
        held = [Held("one", "", given, 0, 0, 0, 0, {}), Held("two", "", 0, 0, 0, 0, 0, {"job": others})]
        for one in held:
            one.lane = lanes.id_of(seat.name)
        lanes.apply(
            Heard(
                0.0, [ReplicaRow("one", ""), ReplicaRow("two", "")], None, held, None, None, None, None, None
            ),
            0.0,
        )

    assert lanes.ask(seats, 0.0, frozen=False)[0][0].places == 8
    hear(others=3.0, given=8)
    assert seat.turn(0.0, 3) == 8
    assert lanes.ask(seats, 0.1, frozen=False)[0][0].places < 8
    assert seat.turn(1.0, 9) < 8, "it waits for no answer"
    hear(others=0.0, given=3)
    assert lanes.ask(seats, 1.1, frozen=True)[0][0].places == 3


@needs_postgres
async def test_a_rate_is_kept_together_while_the_load_moves(postgres: str) -> None:
    """Lanes on a clock of the test's, leases in the real database."""
    limits = Limits(most=50, start=50, adaptive=False, requests_per_minute=120)
    replicas = []
    names = ("first", "second")
    for name, link in zip(names, await linked(postgres, *names), strict=True):
        replicas.append((name, link, SharedLanes(name), Seat(SharedLane(limits, 0.0, lambda: None))))
    sent: list[float] = []
    for tick in range(1200):
        now = tick / 10
        busy = (now < 75, now > 25)
        for i, (name, link, lanes, seat) in enumerate(replicas):
            if tick % 8 == 4 * i:
                leases, _, _ = lanes.ask([seat], now, frozen=False)  # type: ignore[list-item]
                lanes.apply(await link.exchange(told(name, *leases, version=10**9)), now)
            sent += [now] * seat.turn(now, 5 if busy[i] else 0)
    for _, link, _, _ in replicas:
        await link.close()
    assert max(sum(at <= other < at + 60 for other in sent) for at in sent) <= 120
    assert len(sent) > 0.9 * 2 * 120


def test_the_signing_key_may_be_in_a_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "mounted"
    monkeypatch.setenv("HAWK_MIDDLEMAN_KEY_FILE", str(named))
    with pytest.raises(StorageError, match="mounted"):
        signing_key(tmp_path)
    named.write_text("short\n")
    with pytest.raises(ConfigError, match="HAWK_MIDDLEMAN_KEY_FILE"):
        signing_key(tmp_path)
    named.write_text("k" * 64 + "\n")
    assert signing_key(tmp_path) == b"k" * 64
    assert not (tmp_path / "middleman.key").exists(), "none of its own is made"
