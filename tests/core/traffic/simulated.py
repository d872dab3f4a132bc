"""A provider and its clients as discrete events: what a lane makes of limits that nobody told it. Pure and seeded."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from hawk.core.traffic.lane import Lane, Limits, Outcome, Ticket

MINUTE = 60.0
WIRE = 0.02
"""Seconds that a request takes to the provider."""
REFUSAL = 0.08
"""Seconds that a refusal takes to come back."""


class Rate(Protocol):
    """What a provider lets through over time; asked with times that never go back."""

    def ready_at(self, now: float) -> float:
        """When the next request is let through: now, or later."""

    def spend(self, now: float) -> None:
        """One is let through."""


class Unlimited:
    def ready_at(self, now: float) -> float:
        return now

    def spend(self, now: float) -> None:
        pass


class Bucket:
    """Refilled all the time, holds `burst`."""

    def __init__(self, per_minute: float, burst: float) -> None:
        self.rate, self.burst, self.level, self.at = per_minute / MINUTE, burst, burst, 0.0

    def left(self, now: float) -> float:
        self.level = min(self.level + (now - self.at) * self.rate, self.burst)
        self.at = now
        return self.level

    def ready_at(self, now: float) -> float:
        left = self.left(now)
        return now if left >= 1 - 1e-9 else now + (1 - left) / self.rate

    def spend(self, now: float) -> None:
        self.level = self.left(now) - 1


class Sliding:
    """So many in any minute."""

    def __init__(self, per_minute: int) -> None:
        self.most, self.times = per_minute, deque[float]()

    def ready_at(self, now: float) -> float:
        while self.times and self.times[0] <= now - MINUTE:
            self.times.popleft()
        return now if len(self.times) < self.most else self.times[0] + MINUTE

    def spend(self, now: float) -> None:
        self.times.append(now)


class Fixed:
    """So many in each minute of the provider's own clock."""

    def __init__(self, per_minute: int, phase: float) -> None:
        self.most, self.phase, self.minute, self.used = per_minute, phase, -1, 0

    def ready_at(self, now: float) -> float:
        minute = math.floor((now + self.phase) / MINUTE + 1e-9)
        if minute != self.minute:
            self.minute, self.used = minute, 0
        return now if self.used < self.most else (minute + 1) * MINUTE - self.phase

    def spend(self, now: float) -> None:
        self.used += 1


Seconds = Callable[[random.Random, int], tuple[float, float]]
"""Of a request, with so many in flight: to its first byte, and in all."""


def between(least: float, most: float) -> Seconds:
    """Evenly spread, whatever the load; the first byte comes after a third."""

    def draw(rng: random.Random, in_flight: int) -> tuple[float, float]:
        whole = rng.uniform(least, most)
        return whole * rng.uniform(0.2, 0.4), whole

    return draw


def queueing(servers: int, service: float, spread: float) -> Seconds:
    """Past `servers` requests in flight each one waits for the others; sizes are log-normal."""

    def draw(rng: random.Random, in_flight: int) -> tuple[float, float]:
        first = service * rng.lognormvariate(0.0, spread) * max(in_flight / servers, 1.0)
        return first, first + service * rng.lognormvariate(0.0, spread)

    return draw


@dataclass
class Provider:
    """Lets through what its limits allow, and refuses the rest with 429.

    Attributes:
        most: Requests in flight.
        tells: It sends Retry-After with refusals.
        headers: It sends OpenAI's rate-limit headers with everything (a `Bucket` only).
    """

    rate: Rate
    most: int = 20
    seconds: Seconds = field(default_factory=lambda: between(0.5, 4.0))
    tells: bool = False
    headers: bool = False
    status: int = 429
    in_flight: int = 0

    def arrive(self, now: float) -> tuple[int, float | None]:
        """Status, and Retry-After."""
        ready = self.rate.ready_at(now)
        if self.in_flight < self.most and ready <= now:
            self.rate.spend(now)
            self.in_flight += 1
            return 200, None
        wait = max(float(math.ceil(ready - now)), 1.0)
        return self.status, wait if self.tells else None

    def said(self, now: float) -> Mapping[str, str]:
        """Rate-limit headers."""
        if not self.headers or not isinstance(self.rate, Bucket):
            return {}
        left = max(self.rate.left(now), 0.0)
        return {
            "x-ratelimit-limit-requests": str(round(self.rate.burst)),
            "x-ratelimit-remaining-requests": str(int(left)),
            "x-ratelimit-reset-requests": f"{(self.rate.burst - left) / self.rate.rate * 1000:.0f}ms",
        }


class Run(NamedTuple):
    """What came of a run."""

    passed: int
    refused: int
    by_job: dict[str, int]
    limits: list[tuple[float, int]]
    """(when, limit), once a second."""
    passed_at: list[float]
    refused_at: list[float]

    def refused_share(self) -> float:
        return self.refused / max(self.passed + self.refused, 1)


class Simulation:
    """Workers of several jobs who always want more, a lane, a provider."""

    def __init__(self, provider: Provider, lane: Lane, seed: int, jobs: Mapping[str, int]) -> None:
        self.provider, self.lane, self.rng = provider, lane, random.Random(seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.pushed = 0
        self.woken_for: float | None = None
        self.keys = 0
        self.tries: dict[str, int] = {}
        self.run_so_far = Run(0, 0, dict.fromkeys(jobs, 0), [], [], [])
        for job, workers in jobs.items():
            for _ in range(workers):
                self.at(self.rng.uniform(0, 0.5), lambda job=job: self.ask(job, self.new_key()))  # type: ignore[misc]

    def at(self, when: float, what: Callable[[], None]) -> None:
        self.pushed += 1
        heapq.heappush(self.events, (when, self.pushed, what))

    def run(self, until: float) -> Run:
        sampled = self.now
        while self.events and self.events[0][0] <= until:
            self.now, _, what = heapq.heappop(self.events)
            what()
            for ticket in self.lane.grant(self.now):
                self.send(ticket)
            self.sleep()
            if self.now >= sampled:
                sampled = self.now + 1.0
                self.run_so_far.limits.append((self.now, self.lane.state(self.now).limit))
        done = self.run_so_far
        return done._replace(passed=len(done.passed_at), refused=len(done.refused_at))

    def sleep(self) -> None:
        wake = self.lane.wake_at(self.now)
        if wake is not None and (
            self.woken_for is None or wake < self.woken_for or self.woken_for <= self.now
        ):
            self.woken_for = wake
            self.at(max(wake, self.now) + self.rng.uniform(0, 0.002), lambda: None)

    def new_key(self) -> str:
        self.keys += 1
        return f"k{self.keys}"

    def ask(self, job: str, key: str) -> None:
        ticket = Ticket(job=job, key=key)
        if self.lane.ask(ticket, self.now):
            self.send(ticket)

    def send(self, ticket: Ticket) -> None:
        self.at(self.now + WIRE, lambda: self.arrive(ticket))

    def arrive(self, ticket: Ticket) -> None:
        status, wait = self.provider.arrive(self.now)
        said = self.provider.said(self.now)
        if status == 200:
            self.run_so_far.passed_at.append(self.now)
            self.run_so_far.by_job[ticket.job] += 1
            first, whole = self.provider.seconds(self.rng, self.provider.in_flight)
            self.at(self.now + whole, lambda: self.answered(ticket, first, said))
        else:
            self.run_so_far.refused_at.append(self.now)
            self.at(self.now + REFUSAL, lambda: self.refused(ticket, status, wait, said))

    def answered(self, ticket: Ticket, first: float, said: Mapping[str, str]) -> None:
        self.provider.in_flight -= 1
        self.lane.done(ticket, Outcome(200, first + WIRE, headers=said), self.now)
        self.tries.pop(ticket.key, None)
        self.ask(ticket.job, self.new_key())

    def refused(self, ticket: Ticket, status: int, wait: float | None, said: Mapping[str, str]) -> None:
        self.lane.done(ticket, Outcome(status, REFUSAL + WIRE, retry_after=wait, headers=said), self.now)
        tried = self.tries[ticket.key] = self.tries.get(ticket.key, 0) + 1
        pause = wait if wait is not None else min(0.5 * 2.0**tried, 8.0) * self.rng.uniform(0.75, 1.0)
        self.at(self.now + pause, lambda: self.ask(ticket.job, ticket.key))


def ceiling(provider: Provider, seed: int, until: float) -> int:
    """What this provider (a fresh one) would let through by then to clients who know its limits exactly.

    They learn that a place is free when its answer arrives, and use it one way of the wire later.
    """
    rng = random.Random(seed)
    busy: list[float] = []
    now = 0.0
    passed = 0
    while True:
        while busy and busy[0] <= now:
            heapq.heappop(busy)
        ready = max(provider.rate.ready_at(now), now if len(busy) < provider.most else busy[0])
        if ready > until:
            return passed
        if ready > now:
            now = ready
            continue
        provider.rate.spend(now)
        passed += 1
        heapq.heappush(busy, now + provider.seconds(rng, len(busy) + 1)[1] + WIRE)


def simulate(
    make: Callable[[], Provider],
    seed: int,
    until: float = 300.0,
    jobs: Mapping[str, int] | None = None,
    limits: Limits | None = None,
) -> tuple[Run, int, Lane]:
    """A run, the ceiling of the same provider, and the lane."""
    lane = Lane(limits or Limits(), 0.0)
    run = Simulation(make(), lane, seed, jobs or {"a": 150, "b": 40, "c": 10}).run(until)
    return run, ceiling(make(), seed + 1, until), lane
