"""Streams: their first byte while many flow, many that are silent, and how fast those of a stopped job end."""

from __future__ import annotations

import asyncio
import re
import time

from benchmarks.middleman_wire import (
    Connection,
    Orders,
    Target,
    body,
    call_once,
    post,
    request,
    target,
    tell,
    told,
)

SPENT = re.compile(rb'"spent_ns":(\d+)')
AT_ONCE = 50  # connections that are opened together


class _Stream(Connection):
    """A slot: one stream after the other on one connection, until told to stop."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = content
        self._began = 0
        self._first = False
        self.again = True
        self.added: list[float] = []
        self.chunks = 0
        self.failed = 0
        self.said = ""
        self.began = asyncio.Event()
        self.last = 0.0
        self.ended = False

    def ask(self) -> None:
        self._first = True
        self._began = time.monotonic_ns()
        self.transport.write(self._content)

    def head(self, status: int, head: bytes) -> None:
        if status != 200:
            self.failed += 1
            self.said = head.decode("latin-1")

    def data(self, data: bytes) -> None:
        self.chunks += 1
        self.last = time.monotonic()
        if self._first:
            self._first = False
            if found := SPENT.search(data):
                self.added.append((time.monotonic_ns() - self._began - int(found[1])) / 1e9)
            self.began.set()

    def end(self) -> None:
        if self.again:
            self.ask()
        else:
            self.ended = True

    def lost(self) -> None:
        self.ended = True
        if self.again:
            self.failed += 1
            self.said = self.said or "the connection was closed"
            self.began.set()


async def _open(goal: Target, content: bytes) -> _Stream:
    _, made = await asyncio.get_running_loop().create_connection(
        lambda: _Stream(content), goal.host, goal.port
    )
    return made


async def streams(orders: Orders) -> None:
    """First byte: {"targets": {name: target}, "slots": {name: n}, "seconds", "warm", "every"} → {name: {"added":
    [s …], "chunks_per_second", "failed", "said"}}.

    Added is the time from the request's last byte until the first byte of the answer's body, without what the
    provider spent between the two by its own clock. Slots start spread over `every` seconds, the ways mixed.
    """
    slots: list[tuple[str, Target]] = []
    for name, raw in orders["targets"].items():
        slots += [(name, target(raw))] * orders["slots"][name]
    # Each way's slots at even distances among the others'.
    seen: dict[str, int] = {}
    order: list[tuple[float, str, Target]] = []
    for name, goal in slots:
        seen[name] = seen.get(name, 0) + 1
        order.append((seen[name] / orders["slots"][name], name, goal))
    order.sort(key=lambda one: one[0])
    made: dict[str, list[_Stream]] = {name: [] for name in seen}
    for _, name, goal in order:
        one = await _open(goal, request(goal, body("flow", stream=True)))
        one.ask()
        made[name].append(one)
        await asyncio.sleep(orders["every"] / len(order))
    await asyncio.sleep(orders["warm"])
    for ones in made.values():
        for one in ones:
            one.added.clear()
            one.chunks = 0
    await asyncio.sleep(orders["seconds"])
    tell(
        {
            name: {
                "added": [seconds for one in ones for seconds in one.added],
                "chunks_per_second": sum(one.chunks for one in ones) / orders["seconds"],
                "failed": sum(one.failed for one in ones),
                "said": next((one.said for one in ones if one.said), ""),
            }
            for name, ones in made.items()
        }
    )
    for ones in made.values():
        for one in ones:
            one.again = False
            one.transport.abort()


async def hold(orders: Orders) -> None:
    """Silent streams: {"target", "streams"} → {"held", "failed", "said"} when each has its first chunk; they stay
    until the next line of standard input, and {"held"} says how many were still open then.
    """
    goal = target(orders["target"])
    content = request(goal, body("idle", stream=True))
    held: list[_Stream] = []
    while len(held) < orders["streams"]:
        some = [await _open(goal, content) for _ in range(min(AT_ONCE, orders["streams"] - len(held)))]
        for one in some:
            one.ask()
        await asyncio.gather(*(one.began.wait() for one in some))
        held += some
    failed = sum(one.failed for one in held)
    tell({"held": len(held), "failed": failed, "said": next((one.said for one in held if one.said), "")})
    await told()
    tell({"held": sum(one.open for one in held)})
    for one in held:
        one.again = False
        one.transport.abort()


async def revoke(orders: Orders) -> None:
    """Streams of a job that is revoked: {"target", "other": target of another job, "streams", "admin": target, "path"}
    → {"seconds": from the request until the last byte of the job, "answered", "ended", "others": bytes after it,
    "status", "failed", "said"}.
    """
    goal, other, admin = target(orders["target"]), target(orders["other"]), target(orders["admin"])
    kinds: list[list[_Stream]] = []
    for way in (goal, other):
        content = request(way, body("flow", stream=True))
        some = [await _open(way, content) for _ in range(orders["streams"])]
        kinds.append(some)
    job, others = kinds
    for pair in zip(job, others, strict=True):
        for one in pair:
            one.ask()
    await asyncio.wait_for(asyncio.gather(*(one.began.wait() for one in [*job, *others])), 30)
    failed = sum(one.failed for one in [*job, *others])
    await asyncio.sleep(0.3)  # all of them flow; a stream goes on for two seconds
    for one in job:
        one.again = False
    before = sum(one.chunks for one in others)
    asked = time.monotonic()
    answer = await call_once(admin, post(admin, orders["path"], b"{}"))
    answered = time.monotonic() - asked
    await asyncio.sleep(1.0)  # whatever still comes is counted
    tell(
        {
            "seconds": max(one.last for one in job) - asked,
            "answered": answered,
            "status": answer.status,
            "ended": sum(one.ended for one in job),
            "others": sum(one.chunks for one in others) - before,
            "failed": failed + sum(one.failed for one in others),
            "said": next((one.said for one in [*job, *others] if one.said), answer.body.decode()[:200]),
        }
    )
    for one in [*job, *others]:
        one.again = False
        one.transport.abort()
