"""The edge of `core.traffic.lane`: requests that wait are futures, and a timer wakes them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from hawk.core.traffic.breaker import Breaker
from hawk.core.traffic.lane import Lane, Outcome, Ticket, Waiting

if TYPE_CHECKING:
    from hawk.middleman.liveness import Sign


class Turnstile:
    """Lets requests through to one (account, model), in the order and at the pace that its lane says.

    Attributes:
        name: (provider, account, model).
        sign: What the provider answered last to a question that costs nothing.
        base_url: Where the provider is, as it was asked last.
    """

    def __init__(
        self, name: tuple[str, str, str], lane: Lane, breaker: Breaker, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.name = name
        self.lane = lane
        self.breaker = breaker
        self.last_used = loop.time()
        self.sign: Sign | None = None
        self.base_url = ""
        self._loop = loop
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._paid: deque[tuple[float, float]] = deque(maxlen=10_000)

    def paid(self, usd: float) -> None:
        """What a request cost, for who watches."""
        self._paid.append((self._loop.time(), usd))

    def usd_last_minute(self, now: float) -> float | None:
        """None: nothing that has a price."""
        recent = [usd for at, usd in self._paid if at > now - 60]
        return sum(recent) if recent else None

    @property
    def idle(self) -> bool:
        state = self.lane.state(self._loop.time())
        return not self._waiting and not any(state.in_flight.values())

    def ask(self, ticket: Ticket) -> bool:
        """Go at once if there is room; otherwise the ticket is queued and `granted` is to be awaited."""
        self.last_used = now = self._loop.time()
        if self.lane.ask(ticket, now):
            return True
        self._waiting[ticket] = self._loop.create_future()
        self._set_timer(now)
        return False

    async def granted(self, ticket: Ticket) -> None:
        """Return when the ticket may go. Canceled, it gives up its place."""
        future = self._waiting[ticket]
        try:
            await future
        except asyncio.CancelledError:
            now = self._loop.time()
            if self._waiting.pop(ticket, None) is None:  # granted at the same moment
                self.lane.done(ticket, None, now)
            else:
                self.lane.withdraw(ticket, now)
            self._let_go(now)
            raise

    def done(self, ticket: Ticket, outcome: Outcome | None) -> None:
        """A request that was let through has ended; None when that says nothing about the provider."""
        now = self._loop.time()
        self.lane.done(ticket, outcome, now)
        if self._waiting:
            self._let_go(now)

    def why(self, ticket: Ticket) -> Waiting | None:
        """What a queued ticket waits for; None when it does not."""
        return self.lane.why(ticket, self._loop.time()) if ticket in self._waiting else None

    def refresh(self) -> None:
        """Its limits have changed."""
        self._let_go(self._loop.time())

    def _let_go(self, now: float) -> None:
        for ticket in self.lane.grant(now):
            future = self._waiting.pop(ticket, None)
            if future is None or future.done():
                self.lane.done(ticket, None, now)
            else:
                future.set_result(None)
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            when = self.lane.wake_at(now)
            if when is not None:
                self._timer = self._loop.call_at(max(when, now + 0.001), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._let_go(self._loop.time())
