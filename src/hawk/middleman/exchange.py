"""One request on its way: who asked, what it waits for, what became of it. Everything observed is read off these."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hawk.config.providers import Kind
from hawk.core.traffic.usage import Usage
from hawk.middleman.refusals import Refusal

if TYPE_CHECKING:
    from hawk.core.traffic.lane import Ticket
    from hawk.middleman.admission import Turnstile
    from hawk.middleman.body import Asked
    from hawk.middleman.routes import Route


class Phase(StrEnum):
    """What an open request does."""

    READING = "reading"
    QUEUED = "queued"
    CONNECTING = "connecting"
    WAITING = "waiting"
    STREAMING = "streaming"
    DONE = "done"


class Exchange:
    """A request and its answer. Times are the event loop's, in seconds; `arrived_at` is also since the epoch (`wall`)."""

    __slots__ = (
        "account", "admitted", "arrived", "asked", "attempt", "bytes_in", "bytes_out", "client_gone", "cut", "dialect", "due", "ended",
        "error", "first_byte", "id", "job", "lane", "model", "note", "parent_id", "path", "phase", "provider", "replayed",
        "retry", "route", "said", "sample", "sample_uuid", "sent", "span_id", "status", "task", "task_name", "ticket",
        "total_due", "trace_id", "transport", "upstream_id", "upstream_status", "usage", "usd", "user", "wall",
    )  # fmt: skip

    def __init__(self, id_: str, *, now: float, wall: float) -> None:
        self.id = id_
        self.arrived, self.wall = now, wall
        self.admitted: float | None = None
        self.sent: float | None = None
        self.first_byte: float | None = None
        self.ended: float | None = None
        self.phase = Phase.READING
        self.dialect = Kind.OPENAI
        self.user = self.job = self.task_name = self.sample = self.sample_uuid = self.attempt = ""
        self.provider = self.account = self.path = ""
        self.model: str | None = None
        self.trace_id = self.span_id = ""
        self.parent_id: str | None = None
        self.retry = 0
        self.status = 0
        self.upstream_status: int | None = None
        self.upstream_id: str | None = None
        self.error: str | None = None
        self.said = ""
        self.note = ""
        """What is wrong with an answer that was passed on all the same: of `spans.Span.note`."""
        self.asked: Asked | None = None
        self.client_gone = self.replayed = False
        self.bytes_in = self.bytes_out = 0
        self.usage: Usage | None = None
        self.usd: float | None = None
        self.task: asyncio.Task[Any] | None = None
        self.transport: asyncio.Transport | None = None
        self.lane: Turnstile | None = None
        self.ticket: Ticket | None = None
        self.due = self.total_due = float("inf")
        """When it has waited too long for what it waits for, and for everything; see `deadlines`."""
        self.route: Route | None = None
        self.cut: Refusal | None = None
        """Why its task was canceled, where that was by us."""

    def end_by(self, refusal: Refusal) -> None:
        """End it from outside: an answer that has begun stops at once, another becomes the refusal."""
        if self.cut is not None or self.phase is Phase.DONE:
            return
        self.cut = refusal
        if self.phase is Phase.STREAMING and self.transport is not None:
            self.transport.abort()
        if self.task is not None:
            self.task.cancel()


class Exchanges:
    """Those that are open, by job."""

    def __init__(self) -> None:
        self._open: dict[str, set[Exchange]] = {}
        self.count = 0

    def add(self, exchange: Exchange) -> None:
        self._open.setdefault(exchange.job, set()).add(exchange)
        self.count += 1

    def remove(self, exchange: Exchange) -> None:
        of_job = self._open.get(exchange.job)
        if of_job is not None and exchange in of_job:
            of_job.discard(exchange)
            self.count -= 1
            if not of_job:
                del self._open[exchange.job]

    def of(self, job: str) -> list[Exchange]:
        return list(self._open.get(job, ()))

    def counts(self) -> dict[str, tuple[int, int]]:
        """Requests in flight and waiting, by job."""
        found = {}
        for job, of_job in self._open.items():
            waiting = sum(x.admitted is None for x in of_job)
            found[job] = len(of_job) - waiting, waiting
        return found

    def __iter__(self) -> Iterator[Exchange]:
        for of_job in list(self._open.values()):
            yield from list(of_job)
