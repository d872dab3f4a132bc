"""Streams through the middleman: their first byte, what holding many costs, and the end of a revoked job's."""

from __future__ import annotations

import sys
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.bars import Bar
from benchmarks.middleman_bars import Way, check
from benchmarks.middleman_ours import ours
from benchmarks.middleman_proxies import HOST, bare, direct, generator, load, provider
from benchmarks.middleman_wire import Target

STREAMS, DIRECT = 200, 50
FIRST_BYTE = 15  # ms
HELD, EACH = 2000, 30
REVOKED, REVOKE = 50, 0.1


def first_byte(way: Way) -> list[Bar]:
    """Added time to the first streamed byte, at 200 streams that flow; direct streams run among them."""
    rounds, seconds = (1, 8) if way.quick else (5, 15)
    seen: dict[str, list[_First]] = {"bare": [], "ours": []}
    with provider() as port, bare(port) as (yardstick, _), ours(way.base, f"http://{HOST}:{port}/v1") as mine:
        for _ in range(rounds):
            for name, goal in (("bare", yardstick), ("ours", mine.job("benchmark"))):
                seen[name].append(_first(name, goal, direct(port), seconds))
                print(f"  {name}: {seen[name][-1]}", file=sys.stderr, flush=True)
    mine_, theirs = seen["ours"], seen["bare"]
    note = (
        f"request sent until first byte of the body, less the provider's own time, less the median of direct streams among "
        f"them; median of {rounds} rounds, {sum(one.streams for one in mine_)} streams, "
        f"{median(one.chunks for one in mine_):.0f} chunks/s; p50 {median(one.p50 for one in mine_):.1f} ms; bare "
        f"pass-through's p99 {median(one.p99 for one in theirs):.1f} ms, direct streams' {median(one.direct for one in mine_):.1f} ms"
    )
    figure = median(one.p99 for one in mine_)
    return [Bar(f"added to first byte, p99, {STREAMS} streams", figure, FIRST_BYTE, "ms", note)]


class _First(NamedTuple):
    """Added to the first byte, in ms; `direct`: the p99 of direct streams over their own median."""

    p50: float
    p99: float
    direct: float
    streams: int
    chunks: float


def _first(name: str, goal: Target, plainly: Target, seconds: float) -> _First:
    orders = {
        "targets": {"direct": plainly, name: goal},
        "slots": {"direct": DIRECT, name: STREAMS},
        "seconds": seconds,
        "warm": 3,
        "every": 2.2,  # what a stream lasts
    }
    got = load("streams", orders)
    for one in got.values():
        check(f"first byte, {name}", one["failed"], one["said"])
    plain, through = (sorted(got[key]["added"]) for key in ("direct", name))
    usual = _at(plain, 0.5)
    return _First(
        p50=(_at(through, 0.5) - usual) * 1000,
        p99=(_at(through, 0.99) - usual) * 1000,
        direct=(_at(plain, 0.99) - usual) * 1000,
        streams=len(through),
        chunks=got[name]["chunks_per_second"],
    )


def idle(way: Way) -> list[Bar]:
    """Memory of 2,000 streams that are silent."""
    count = 400 if way.quick else HELD
    with provider() as port, ours(way.base, f"http://{HOST}:{port}/v1") as mine:
        goal = mine.job("benchmark")
        # What the first streams load is no stream's own.
        with generator("hold", {"target": goal, "streams": 20}) as warming:
            check("idle streams", warming.line()["failed"], "")
            warming.say()
            warming.line()
        process = psutil.Process(mine.pid)
        before = process.memory_full_info()
        with generator("hold", {"target": goal, "streams": count}) as holding:
            got = holding.line()
            check("idle streams", got["failed"], got["said"])
            after = process.memory_full_info()
            holding.say()
            held = holding.line()["held"]
    if held != count:
        raise RuntimeError(f"{count - held} of {count} streams did not last")
    unique, resident = (
        (getattr(after, kind) - getattr(before, kind)) / count / 1024 for kind in ("uss", "rss")
    )
    note = (
        f"process of its own memory {before.uss / 2**20:.1f} → {after.uss / 2**20:.1f} MiB, resident "
        f"{before.rss / 2**20:.1f} → {after.rss / 2**20:.1f} MiB; the greater difference over {count}"
    )
    return [Bar(f"{count:,} idle streams, each", max(unique, resident), EACH, "KiB", note)]


def revoke(way: Way) -> list[Bar]:
    """From the request that revokes a job to the last byte that its streams get."""
    rounds = 2 if way.quick else 10
    worst, answered = [], []
    with provider() as port, ours(way.base, f"http://{HOST}:{port}/v1") as mine:
        for number in range(rounds):
            name = f"stopped-{number}"
            orders = {
                "target": mine.job(name),
                "other": mine.job("benchmark"),
                "streams": REVOKED,
                "admin": mine.admin,
                "path": f"/admin/jobs/{name}/revoke",
            }
            got = load("revoke", orders)
            check("revoke", got["failed"], got["said"])
            check("revoke", got["status"] != 200, f"{got['status']} {got['said']}")
            check("revoke: streams that did not end", REVOKED - got["ended"], "no end within a second")
            check("revoke: streams of the other job that stood still", not got["others"], "")
            worst.append(max(0.0, got["seconds"]))  # the last byte may have been there already
            answered.append(got["answered"])
    note = (
        f"most of {rounds} times {REVOKED} flowing streams, median {median(worst) * 1000:.0f} ms; request sent until last "
        f"byte at the client, answered after {max(answered) * 1000:.0f} ms; {REVOKED} streams of another job went on"
    )
    return [Bar("revoke → last byte of the job", max(worst) * 1000, REVOKE * 1000, "ms", note)]


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]
