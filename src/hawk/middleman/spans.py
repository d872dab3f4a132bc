"""What became of each request, a line each, in the run directory of its job: `spans/middleman.jsonl`.

Where that is on another machine, and the database that replicas share is there, they go through that one.
Lines are collected and written by a thread: the data path never waits for a disk. A disk that is full costs lines, and
says so once; it never costs a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hawk.core.traffic.ledger import Spend
from hawk.middleman.exchange import Exchange
from hawk.middleman.shared_spans import SpanTable
from hawk.store.rundir import read_json, write_json

PERIOD = 0.25
"""Seconds between writes: what a `kill -9` can lose."""

_MOST = 100_000
"""Lines that may wait in memory."""

_log = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()


class Span(msgspec.Struct, omit_defaults=True):
    """One request. Durations in seconds; `attempt` is the attempt's number; `error` is a type of ours,
    `said` the beginning of a provider's error, or what ours says. `note` tells of an answer of status 200 that it is
    `malformed` (not what its protocol promises), `empty` (neither text nor a call of a tool) or `refused` (a filter or
    the model itself ended it)."""

    id: str
    at: str
    provider: str
    model: str | None
    path: str
    status: int
    seconds: float
    task: str = ""
    sample: str = ""
    sample_uuid: str = ""
    attempt: str = ""
    account: str = ""
    upstream_status: int | None = None
    upstream_id: str | None = None
    queued: float = 0.0
    first_byte: float | None = None
    retry: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    usd: float | None = None
    error: str | None = None
    said: str = ""
    note: str = ""
    client_gone: bool = False
    replayed: bool = False
    trace_id: str = ""
    span_id: str = ""
    parent_id: str | None = None


def span_of(exchange: Exchange) -> Span:
    """The record of a request that has ended."""
    x = exchange
    ended = x.ended if x.ended is not None else x.arrived
    usage = x.usage
    return Span(
        id=x.id,
        at=datetime.fromtimestamp(x.wall, UTC).isoformat(),
        provider=x.provider,
        model=x.model,
        path=x.path,
        status=x.status,
        seconds=round(ended - x.arrived, 4),
        task=x.task_name,
        sample=x.sample,
        sample_uuid=x.sample_uuid,
        attempt=x.attempt,
        account=x.account,
        upstream_status=x.upstream_status,
        upstream_id=x.upstream_id,
        queued=round((x.admitted or ended) - x.arrived, 4),
        first_byte=round(x.first_byte - x.arrived, 4) if x.first_byte is not None else None,
        retry=x.retry,
        input=usage.input if usage else 0,
        output=usage.output if usage else 0,
        cache_read=usage.cache_read if usage else 0,
        cache_write=usage.cache_write if usage else 0,
        usd=x.usd,
        error=x.error,
        said=x.said,
        note=x.note,
        client_gone=x.client_gone,
        replayed=x.replayed,
        trace_id=x.trace_id,
        span_id=x.span_id,
        parent_id=x.parent_id,
    )


class SpanWriter:
    """Writes spans and spend below the root of run directories; nothing where there is none.

    Args:
        elsewhere: Takes lines of jobs that have no run directory here.
    """

    def __init__(self, root: Path | None, elsewhere: SpanTable | None = None) -> None:
        self._root = root
        self._elsewhere = elsewhere
        self._spans: dict[str, list[Exchange]] = {}
        self._spend: dict[str, Spend] = {}
        self._count = 0
        self._lost = 0
        self._writing = asyncio.Lock()

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self._lost + (self._elsewhere.lost if self._elsewhere is not None else 0)

    def add(self, exchange: Exchange, spend: Spend | None) -> None:
        if self._root is None or not exchange.job:
            return
        if self._count >= _MOST:
            self._lost += 1
            return
        self._spans.setdefault(exchange.job, []).append(exchange)
        self._count += 1
        if spend is not None:
            self._spend[exchange.job] = spend

    def spend_of(self, job: str) -> Spend | None:
        """What an earlier middleman knew that a job has spent."""
        return read_json(self._root / job / "spans" / "spend.json", Spend) if self._root is not None else None

    async def run(self) -> None:
        """Write again and again, until canceled; `flush` then writes the rest."""
        while True:
            await asyncio.sleep(PERIOD)
            await self.write()

    async def write(self) -> None:
        """Write what there is now; it can be read afterwards."""
        async with self._writing:
            if self._count or (self._elsewhere is not None and self._elsewhere.behind):
                try:
                    await asyncio.to_thread(self._write_all, *self._taken())
                except Exception:  # one line that can't be written must not end all that come after it
                    _log.exception("writing spans")

    def flush(self) -> None:
        """Write what there is, in this thread: for the end."""
        self._write_all(*self._taken(), last=True)
        if self._elsewhere is not None:
            self._elsewhere.close()

    def _taken(self) -> tuple[dict[str, list[Exchange]], dict[str, Spend]]:
        """What is to be written, out of the way of what comes meanwhile."""
        taken = self._spans, self._spend
        self._spans, self._spend, self._count = {}, {}, 0
        return taken

    def _write_all(
        self, spans: dict[str, list[Exchange]], spend: dict[str, Spend], *, last: bool = False
    ) -> None:
        assert self._root is not None or not spans
        elsewhere: dict[str, Iterator[bytes]] = {}
        for job, exchanges in spans.items():
            if self._root is not None and (self._root / job).is_dir():
                self._write(self._root / job, exchanges, spend.get(job))
            else:  # of another machine, or deleted
                elsewhere[job] = _lines(exchanges)
        if self._elsewhere is not None:
            self._elsewhere.put(elsewhere, last=last)

    def _write(self, run_dir: Path, exchanges: list[Exchange], spend: Spend | None) -> None:
        try:
            directory = run_dir / "spans"
            directory.mkdir(exist_ok=True)
            with (directory / "middleman.jsonl").open("ab") as file:
                file.write(b"".join(_lines(exchanges)))
            if spend is not None:
                write_json(directory / "spend.json", spend, durable=False)
        except OSError as ex:
            if not self._lost:
                _log.warning("spans of job %s can't be written: %s", run_dir.name, ex.strerror)
            self._lost += len(exchanges)


def _lines(exchanges: list[Exchange]) -> Iterator[bytes]:
    return (_encoder.encode(span_of(x)) + b"\n" for x in exchanges)
