"""The storm: many workers of a few jobs want more than the provider gives, and try again as SDKs do."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

from benchmarks.middleman_wire import Caller, Orders, Target, body, call_once, caller, request, target, tell

CALL_TIMEOUT = 600.0  # what SDKs wait
BACKOFF, MOST_BACKOFF = 0.5, 8.0  # an SDK's, where the answer has no Retry-After
TRIES = 20
RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})


@dataclass
class _Tally:
    """What the workers saw since the measured time began."""

    done: int = 0
    failed: int = 0
    refused: int = 0
    reasons: list[str] = field(default_factory=list)
    by_job: dict[int, int] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)


class _Worker:
    def __init__(self, goal: Target, job: int, tally: _Tally, number: int) -> None:
        self._goal, self._job, self._number = goal, job, number
        self.tally = tally
        self._connection: Caller | None = None
        self._calls = 0
        self._random = random.Random(number)

    async def run(self) -> None:
        """One call after the other, each until it succeeds."""
        while True:
            self._calls += 1
            began = time.monotonic()
            reason = await self._one()
            tally = self.tally
            if reason:
                tally.failed += 1
                tally.reasons.append(reason)
                await asyncio.sleep(1)
            else:
                tally.done += 1
                tally.by_job[self._job] = tally.by_job.get(self._job, 0) + 1
                tally.waits.append(time.monotonic() - began)

    async def _one(self) -> str:
        """Empty when the call succeeded in the end, else why not."""
        said = ""
        for tried in range(TRIES):
            more = {"x-stainless-retry-count": str(tried), "x-irid": f"{self._number}-{self._calls}"}
            try:
                if self._connection is None or not self._connection.open:
                    self._connection = await caller(self._goal)
                content = request(self._goal, body("storm"), more)
                answer = await asyncio.wait_for(self._connection.call(content), CALL_TIMEOUT)
            except (OSError, TimeoutError) as ex:
                said, wait = f"{type(ex).__name__}: {ex}", None
                if self._connection:
                    self._connection.transport.abort()
            else:
                if answer.status == 200:
                    return ""
                said = f"{answer.status} {answer.body.decode(errors='replace')[:200]}"
                if answer.status not in RETRIED:
                    return said
                self.tally.refused += answer.status == 429
                wait = answer.header("retry-after")
            backoff = min(MOST_BACKOFF, BACKOFF * 2**tried) * (1 - 0.25 * self._random.random())
            await asyncio.sleep(float(wait) if wait else backoff)
        return f"after {TRIES} tries: {said}"


async def _counts(provider: Target) -> dict[str, float]:
    line = f"GET /counts HTTP/1.1\r\nHost: {provider.host}\r\n\r\n".encode()
    counts: dict[str, float] = json.loads((await call_once(provider, line)).body)
    return counts


async def storm(orders: Orders) -> None:
    """{"targets": [target of each job], "provider": target, "workers", "warm", "seconds"} → {"before", "after": the
    provider's counts, "done", "failed", "refused", "reasons", "by_job", "wait_p50", "wait_max"}, a line {"progress":
    counts} every ten seconds before that.
    """
    jobs = [target(raw) for raw in orders["targets"]]
    provider = target(orders["provider"])
    workers = [_Worker(jobs[i % len(jobs)], i % len(jobs), _Tally(), i) for i in range(orders["workers"])]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    await _watch(provider, orders["warm"])
    tally = _Tally()
    for worker in workers:
        worker.tally = tally
    before = await _counts(provider)
    await _watch(provider, orders["seconds"])
    after = await _counts(provider)
    waits = sorted(tally.waits) or [float("nan")]
    result = {
        "before": before,
        "after": after,
        "done": tally.done,
        "failed": tally.failed,
        "refused": tally.refused,
        "reasons": tally.reasons[:5],
        "by_job": [tally.by_job.get(i, 0) for i in range(len(jobs))],
        "wait_p50": waits[len(waits) // 2],
        "wait_max": waits[-1],
    }
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tell(result)


async def _watch(provider: Target, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(10, left))
        tell({"progress": await _counts(provider)})
