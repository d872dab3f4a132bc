"""Deadlines of one request: what is in force may change at every chunk, and must cost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hawk.middleman.refusals import Refusal


class Deadline:
    """Calls back when the time in force, or the total, has passed.

    Moving it costs an assignment: one timer runs, and looks when it fires whether it is still right.
    """

    __slots__ = ("_at", "_loop", "_passed", "_refusal", "_timer", "_total", "_total_refusal")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[Refusal], None]) -> None:
        self._loop = loop
        self._passed = passed
        self._timer: asyncio.TimerHandle | None = None
        self._at = self._total = float("inf")
        self._refusal: Refusal | None = None
        self._total_refusal: Refusal | None = None

    def total(self, seconds: float, refusal: Refusal) -> None:
        """What holds from now on, whatever else is in force."""
        self._total, self._total_refusal = self._loop.time() + seconds, refusal

    def set(self, seconds: float, refusal: Refusal) -> None:
        """In force from now on, instead of what was."""
        self._at, self._refusal = self._loop.time() + seconds, refusal
        when = min(self._at, self._total)
        if self._timer is None or self._timer.when() > when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._fire)

    def move(self, seconds: float) -> None:
        """What is in force holds from now on."""
        self._at = self._loop.time() + seconds

    def clear(self) -> None:
        """Nothing is in force any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        when = min(self._at, self._total)
        if self._loop.time() < when:
            self._timer = self._loop.call_at(when, self._fire)
            return
        self._timer = None
        refusal = self._total_refusal if self._total <= self._at else self._refusal
        if refusal is not None:
            self._passed(refusal)
