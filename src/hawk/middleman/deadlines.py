"""Deadlines of requests: one look at all of them, some times a second, so that a request pays an assignment for each."""

from __future__ import annotations

import asyncio

from hawk.middleman.exchange import Exchange, Exchanges, Phase
from hawk.middleman.refusals import Refusal

PERIOD = 0.05
"""Seconds between looks: how late a deadline may be."""


class Watch:
    """Ends requests whose time has passed; looks while there are any."""

    def __init__(self, exchanges: Exchanges, loop: asyncio.AbstractEventLoop) -> None:
        self._exchanges = exchanges
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """There is something to watch."""
        if self._timer is None:
            self._timer = self._loop.call_later(PERIOD, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        for exchange in self._exchanges:
            if now >= exchange.due or now >= exchange.total_due:
                exchange.end_by(late(exchange, now))
        self._timer = self._loop.call_later(PERIOD, self._look) if self._exchanges.count else None


def late(exchange: Exchange, now: float) -> Refusal:
    """What a request whose time has passed is told: by what it was waiting for."""
    route = exchange.route
    assert route is not None
    name, limits = route.provider.name, route.deadlines
    if now >= exchange.total_due:
        return Refusal("hawk_total_timeout", f"{name} took longer than {limits.total:g} s in all.")
    if exchange.phase is Phase.QUEUED:
        where = f"{name} ({exchange.model})" if exchange.model else name
        return Refusal("hawk_queue_timeout", f"No place at {where} within {limits.queue:g} s.", retry_after=5)
    if exchange.phase is Phase.STREAMING:
        stalled = f"{name} stopped in the middle of its answer for {limits.idle:g} s."
        return Refusal("hawk_idle_timeout", stalled)
    return Refusal(
        "hawk_first_byte_timeout", f"{name} did not begin to answer within {limits.first_byte:g} s."
    )
