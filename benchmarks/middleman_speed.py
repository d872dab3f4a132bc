"""Throughput of one process, and what one call at a time costs: ours, a bare pass-through, LiteLLM, and none."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.bars import Bar, missing
from benchmarks.middleman_bars import Reached, Way, check
from benchmarks.middleman_litellm import installed, litellm, version
from benchmarks.middleman_ours import Ours, ours
from benchmarks.middleman_proxies import HOST, bare, direct, load, provider
from benchmarks.middleman_wire import Target
from benchmarks.processes import until

CONNECTIONS = 32
JOB = "benchmark"
LEAST_LITELLM, LEAST_BARE = 40, 0.4
MOST_LITELLM, MOST_BARE = 1 / 20, 3


@contextlib.contextmanager
def _all(way: Way) -> Iterator[tuple[dict[str, Target], Ours, str]]:
    """Every proxy in front of one provider; LiteLLM's version, or why it is not there."""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(provider())
        base = f"http://{HOST}:{port}/v1"
        mine = stack.enter_context(ours(way.base, base))
        ways = {
            "direct": direct(port),
            "bare": stack.enter_context(bare(port))[0],
            "ours": mine.job(JOB),
        }
        try:
            home = installed(way.litellm)
            ways["litellm"] = stack.enter_context(litellm(way.base, home, base))[0]
            about = f"LiteLLM {version(home)}"
        except (RuntimeError, OSError) as ex:
            about = str(ex)
        yield ways, mine, about


def throughput(way: Way) -> list[Bar]:
    """Calls a second over 32 connections, each proxy in turn; medians of the rounds' ratios."""
    rounds, seconds = (2, 2.0) if way.quick else (7, 3.0)
    rates: dict[str, list[float]] = {}
    with _all(way) as (ways, mine, about):
        asked = 0
        for number in range(rounds):
            for name, goal in ways.items():
                # LiteLLM's first calls are slow, and connections must be there.
                warm = 1.0 if number else 3.0
                got = load("rate", _orders(goal, seconds, warm))
                check(f"throughput, {name}", got["failed"], got["said"])
                rates.setdefault(name, []).append(got["per_second"])
                asked += round(got["per_second"] * seconds) if name == "ours" else 0
            shown = ", ".join(f"{name} {rates[name][-1]:.0f}/s" for name in ways)
            print(f"  {shown}", file=sys.stderr, flush=True)
        # A thread writes spans; those of all that was measured must come.
        written = until(
            "the spans", lambda: mine.spans(JOB) if mine.spans(JOB) >= asked else None, timeout=10
        )
    rate = {name: median(values) for name, values in rates.items()}
    note = f"{rate['ours']:.0f}/s against {{}}, {CONNECTIONS} connections, median of {rounds} rounds"
    other = f"{rate['bare']:.0f}/s"
    rows: list[Bar] = [
        Reached(
            "throughput / bare pass-through, at least",
            _ratio(rates["ours"], rates["bare"]),
            LEAST_BARE,
            "x",
            f"{note.format(other)}; job token, limits, cost, {written} spans; fake provider alone {rate['direct']:.0f}/s",
        )
    ]
    name = "throughput / LiteLLM, at least"
    if "litellm" not in rate:
        return [missing(name, LEAST_LITELLM, "x", about), *rows]
    other = f"{rate['litellm']:.0f}/s of {about}, one worker, master key"
    share = _ratio(rates["ours"], rates["litellm"])
    return [Reached(name, share, LEAST_LITELLM, "x", note.format(other)), *rows]


def _ratio(ours_: list[float], theirs: list[float]) -> float:
    return median(one / other for one, other in zip(ours_, theirs, strict=True))


def latency(way: Way) -> list[Bar]:
    """What each proxy adds to one call at a time: the medians, calls in turn."""
    rounds = 5 if way.quick else 30
    with _all(way) as (ways, _, about):
        calls = {name: 10 if name == "litellm" else 50 for name in ways}
        time.sleep(2)  # the last one that started is still busy
        got: dict[str, Any] = load("turns", {"targets": ways, "rounds": rounds, "calls": calls})
    for name, one in got.items():
        check(f"latency, {name}", one["failed"], one["said"])
    plain = got["direct"]["p50"]
    added = {name: one["p50"] - plain for name, one in got.items()}
    note = (
        f"+{added['ours'] * 1000:.2f} ms against +{added['bare'] * 1000:.2f} ms, p50 of {got['ours']['calls']} each, "
        f"in turn; direct {plain * 1000:.2f} ms"
    )
    rows = [Bar("added latency / bare pass-through", added["ours"] / added["bare"], MOST_BARE, "x", note)]
    name = "added latency / LiteLLM"
    if "litellm" not in added:
        return [missing(name, MOST_LITELLM, "x", about), *rows]
    note = (
        f"+{added['ours'] * 1000:.2f} ms against +{added['litellm'] * 1000:.1f} ms, p50 of "
        f"{got['litellm']['calls']} of {about}"
    )
    return [Bar(name, added["ours"] / added["litellm"], MOST_LITELLM, "x", note), *rows]


def _orders(goal: Target, seconds: float, warm: float) -> dict[str, Any]:
    return {"target": goal, "connections": CONNECTIONS, "seconds": seconds, "warm": warm}
