"""Load at full speed: throughput of many connections, latency of one at a time."""

from __future__ import annotations

import asyncio
import time

from benchmarks.middleman_wire import Connection, Orders, Target, body, request, target, tell


class _Looper(Connection):
    """Asks again as soon as it has its answer."""

    def __init__(self, round_: _Round) -> None:
        super().__init__()
        self._round = round_
        self._began = 0.0

    def ask(self) -> None:
        self._began = time.perf_counter()
        self.transport.write(self._round.content)

    def head(self, status: int, head: bytes) -> None:
        if status != 200:
            self._round.failed += 1
            self._round.said = self._round.said or head.decode("latin-1")

    def end(self) -> None:
        now = time.perf_counter()
        if self._round.counts_from <= now:
            self._round.seconds.append(now - self._began)
        if now < self._round.until:
            self.ask()
        else:
            self._round.done()

    def lost(self) -> None:
        self._round.failed += 1
        self._round.said = self._round.said or "the connection was closed"
        self._round.done()


class _Round:
    """So many connections, as fast as they get answers, for some seconds."""

    def __init__(self, goal: Target) -> None:
        self.content = request(goal, body("fake"))
        self.goal = goal
        self.seconds: list[float] = []
        self.failed = 0
        self.said = ""
        self.counts_from = self.until = 0.0
        self._running = 0
        self._ended = asyncio.Event()
        self._connections: list[_Looper] = []

    async def connect(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            _, made = await loop.create_connection(lambda: _Looper(self), self.goal.host, self.goal.port)
            self._connections.append(made)

    async def run(self, seconds: float, warm: float) -> None:
        """Go on for `warm` + `seconds`, of which the second part counts."""
        self._ended.clear()
        self._running = len(self._connections)
        self.counts_from = time.perf_counter() + warm
        self.until = self.counts_from + seconds
        for connection in self._connections:
            connection.ask()
        await self._ended.wait()

    def done(self) -> None:
        self._running -= 1
        if self._running <= 0:
            self._ended.set()

    def close(self) -> None:
        for connection in self._connections:
            connection.transport.abort()


async def rate(orders: Orders) -> None:
    """Throughput: {"target", "connections", "seconds", "warm"} → {"per_second", "failed", "said", "p50", "p99"}."""
    one = _Round(target(orders["target"]))
    await one.connect(orders["connections"])
    await one.run(orders["seconds"], orders["warm"])
    failed = one.failed
    one.close()
    times = sorted(one.seconds) or [float("nan")]
    tell(
        {
            "per_second": len(one.seconds) / orders["seconds"],
            "failed": failed,
            "said": one.said,
            "p50": times[len(times) // 2],
            "p99": times[len(times) * 99 // 100],
        }
    )


async def turns(orders: Orders) -> None:
    """Latency at concurrency 1, in turn: {"targets": {name: target}, "rounds", "calls": {name: calls a turn}} →
    {name: {"p50", "calls", "failed", "said"}}.
    """
    ways = {name: _Round(target(raw)) for name, raw in orders["targets"].items()}
    for way in ways.values():
        await way.connect(1)
    for number in range(orders["rounds"] + 1):
        for name, way in ways.items():
            if not number:  # the first one is for warming up
                way.seconds.clear()
            wanted = len(way.seconds) + orders["calls"][name]
            while len(way.seconds) < wanted and not way.failed:
                await way.run(0, 0)
            if not number:
                way.seconds.clear()
    tell(
        {
            name: {
                "p50": sorted(way.seconds)[len(way.seconds) // 2] if way.seconds else None,
                "calls": len(way.seconds),
                "failed": way.failed,
                "said": way.said,
            }
            for name, way in ways.items()
        }
    )
