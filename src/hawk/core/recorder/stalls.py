"""When a worker stands still, from what its recorder said last. Pure.

A stall is worth a record of stacks and a line in the journal; what it means is for the diagnosis to say.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Stall(StrEnum):
    """What stands still; the word in the journal and in the name of the record."""

    LOOP_BLOCKED = "loop_blocked"  # the event loop runs one thing and nothing else
    SILENT = "worker_silent"  # not even the recorder's thread gets to run
    NO_PROGRESS = "no_progress"  # every attempt waits, longer than any has before
    MEMORY = "memory_near_limit"


BLOCKED = 5.0
"""Seconds without an answer of the event loop: every HTTP time-out and deadline of the worker is late by as much."""

SILENT = 10.0
"""Seconds without a heartbeat, which comes once a second: a machine under load misses a few."""

PROGRESS, LONGER = 120.0, 2.0
"""Seconds within which an attempt is expected to do something, as long as this job has not shown otherwise; then
it is this many times the longest wait that came to an end by itself."""

NEAR = 0.9
"""Share of the memory limit from which on the next allocation may be the last."""

FIRST, LONGEST = 30.0, 3600.0
"""Seconds between records of one stall: twice as long each time, from the first to the longest."""


class Signs(msgspec.Struct):
    """What is known of a worker at one moment. Times in seconds, memory in bytes.

    Attributes:
        silence: Since its last heartbeat; None before the first.
        loop_lag: As the last heartbeat said.
        idle: Since the attempt of it that last did something; None when none is in flight.
        longest: The longest such wait that came to an end in this job.
        memory: In use, where there is a limit.
        limit: Of memory; 0 without one.
        limit_by: What sets it.
    """

    silence: float | None = None
    loop_lag: float = 0.0
    idle: float | None = None
    longest: float = 0.0
    memory: int = 0
    limit: int = 0
    limit_by: str = ""


def stalls(signs: Signs) -> dict[Stall, tuple[float, str]]:
    """What stands still: for how many seconds, and in words."""
    found: dict[Stall, tuple[float, str]] = {}
    if signs.silence is not None and signs.silence > SILENT:
        found[Stall.SILENT] = signs.silence, f"no heartbeat for {signs.silence:.0f} s"
    elif signs.loop_lag > BLOCKED:
        found[Stall.LOOP_BLOCKED] = signs.loop_lag, f"its event loop is blocked for {signs.loop_lag:.0f} s"
    expected = max(PROGRESS, LONGER * signs.longest)
    if signs.idle is not None and signs.idle > expected:
        found[Stall.NO_PROGRESS] = (
            signs.idle,
            f"no attempt of it has done anything for {signs.idle:.0f} s (expected within {expected:.0f} s)",
        )
    if signs.limit and signs.memory > NEAR * signs.limit:
        used, limit = signs.memory / 2**20, signs.limit / 2**20
        found[Stall.MEMORY] = 0.0, f"{used:,.0f} MiB of {limit:,.0f} MiB in use ({signs.limit_by})"
    return found


class Pace:
    """When a stall that goes on is recorded again."""

    def __init__(self) -> None:
        self._due: dict[Stall, tuple[float, float]] = {}  # when next, and how long after the last

    def due(self, stall: Stall, now: float) -> bool:
        """Whether to record it now; counts as recorded."""
        at, gap = self._due.get(stall, (now, FIRST))
        if now < at:
            return False
        self._due[stall] = now + gap, min(LONGEST, 2 * gap)
        return True

    def over(self, stall: Stall) -> None:
        self._due.pop(stall, None)

    @property
    def going_on(self) -> list[Stall]:
        return list(self._due)
