"""The queue of a lane: the job with the fewest requests in flight goes first, equals in turn.

With one place free at a time this is max-min fairness over jobs (Demers, Keshav and Shenker, "Analysis and
simulation of a fair queueing algorithm", 1989, with a request in flight as the unit): a job alone may use
everything, and a job with four requests gets them through beside one with four hundred.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from hawk.core.traffic.tickets import Ticket

_IDLE_JOBS_KEPT = 64
"""Shares of jobs with nothing to do are kept up to here, since the next request mostly is of a known job."""


class Share:
    """One job's part of a lane."""

    __slots__ = ("again", "in_flight", "job", "line", "places", "waiting")

    def __init__(self, job: str) -> None:
        self.job = job
        self.in_flight = 0
        self.waiting = 0
        self.line: deque[Ticket] = deque()
        """By first ask. Tickets that were withdrawn stay until they come up (their `share` is None)."""
        self.again: list[tuple[float, int, Ticket]] = []
        """A heap of those whose first ask was before that of the last in the line: retries."""
        self.places: dict[int, int] | None = None
        """Ticket's id to its place in this job, until the queue changes."""

    def add(self, ticket: Ticket, number: int) -> None:
        """Queue a ticket."""
        if not self.line or ticket.place >= self.line[-1].place:
            self.line.append(ticket)
        else:
            heappush(self.again, (ticket.place, number, ticket))

    def take(self) -> Ticket:
        """Take out the next of this job, which has one."""
        ticket = self.first()
        if self.line and self.line[0] is ticket:
            self.line.popleft()
        else:
            heappop(self.again)
        return ticket

    def first(self) -> Ticket:
        """The next of this job, which has one."""
        line, again = self.line, self.again
        while line and line[0].share is not self:
            line.popleft()
        if not again:
            return line[0]
        while again and again[0][2].share is not self:
            heappop(again)
        if not again or (line and line[0].place <= again[0][0]):
            return line[0]
        return again[0][2]

    def place(self, ticket: Ticket) -> int:
        """1 for the next of this job."""
        if self.places is None:
            left = sorted((one for one in self._all() if one.share is self), key=lambda one: one.place)
            self.places = {id(one): place for place, one in enumerate(left, start=1)}
        return self.places[id(ticket)]

    def tidy(self) -> None:
        """Forget tickets that were withdrawn."""
        if len(self.line) + len(self.again) > 2 * self.waiting + 16:
            self.line = deque(ticket for ticket in self.line if ticket.share is self)
            self.again = [entry for entry in self.again if entry[2].share is self]
            heapify(self.again)

    def clear(self) -> None:
        """Nothing waits."""
        self.line.clear()
        self.again.clear()

    def _all(self) -> list[Ticket]:
        # A stable sort puts the line first among equals, as `first` does.
        return [*self.line, *(entry[2] for entry in sorted(self.again, key=lambda entry: entry[:2]))]


class FairQueue:
    """Tickets that wait, and who has how many requests in flight."""

    def __init__(self) -> None:
        self.shares: dict[str, Share] = {}
        self.waiting = 0
        self._levels: list[dict[str, Share]] = [{}]
        """Jobs with waiting tickets by requests in flight; each level in the order of its turns."""
        self._lowest = 0
        """No job waits at a lower level."""
        self._pushed = 0
        self._tidy_at = _IDLE_JOBS_KEPT

    def share(self, job: str) -> Share:
        """The part of this job."""
        found = self.shares.get(job)
        if found is None:
            if len(self.shares) >= self._tidy_at:
                for name in [
                    name for name, share in self.shares.items() if not (share.in_flight or share.waiting)
                ]:
                    del self.shares[name]
                self._tidy_at = max(_IDLE_JOBS_KEPT, 2 * len(self.shares))
            found = self.shares[job] = Share(job)
        return found

    def push(self, ticket: Ticket, share: Share) -> None:
        """Queue a ticket by its `place`."""
        self._pushed += 1
        ticket.share = share
        share.add(ticket, self._pushed)
        share.places = None
        share.waiting += 1
        self.waiting += 1
        if share.waiting == 1:
            self._enter(share)

    def peek(self) -> Ticket:
        """The ticket that goes next; there is one."""
        return self._next().first()

    def pop(self) -> Ticket:
        """Take out the ticket that goes next; `started` is the caller's to call."""
        share = self._next()
        ticket = share.take()
        self._gone(share)
        return ticket

    def remove(self, ticket: Ticket) -> bool:
        """Take out a ticket that gave up; False if it was not queued."""
        share = ticket.share
        if share is None or ticket.granted_at is not None:
            return False
        ticket.share = None
        share.tidy()
        self._gone(share)
        return True

    def started(self, share: Share) -> None:
        """A request of this job is in flight."""
        if share.waiting:
            del self._levels[share.in_flight][share.job]
            share.in_flight += 1
            self._enter(share)
        else:
            share.in_flight += 1

    def ended(self, share: Share) -> None:
        """A request of this job is over."""
        if share.waiting:
            del self._levels[share.in_flight][share.job]
            share.in_flight -= 1
            self._enter(share)
        else:
            share.in_flight -= 1

    def place(self, ticket: Ticket) -> int:
        """How many go before it, itself included, if no request ended meanwhile."""
        own: Share = ticket.share
        mine = own.place(ticket)
        level = own.in_flight + mine - 1
        before = 0
        behind = False
        for share in (share for turn in self._levels for share in turn.values()):
            if share is own:
                behind = True
                continue
            # Both reach the same level at some time; who came to it first goes first there.
            first = share.in_flight > own.in_flight or (share.in_flight == own.in_flight and not behind)
            before += min(max(level + first - share.in_flight, 0), share.waiting)
        return before + mine

    def _enter(self, share: Share) -> None:
        level = share.in_flight
        while len(self._levels) <= level:
            self._levels.append({})
        self._levels[level][share.job] = share
        self._lowest = min(self._lowest, level)

    def _gone(self, share: Share) -> None:
        share.places = None
        share.waiting -= 1
        self.waiting -= 1
        if not share.waiting:
            share.clear()
            del self._levels[share.in_flight][share.job]

    def _next(self) -> Share:
        while not self._levels[self._lowest]:
            self._lowest += 1
        return next(iter(self._levels[self._lowest].values()))
