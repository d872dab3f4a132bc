"""A provider that allows little, and workers that want much: what is used of it, and how often it says no."""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.bars import Bar
from benchmarks.middleman_bars import Reached, Way
from benchmarks.middleman_ours import ours
from benchmarks.middleman_proxies import HOST, direct, generator, post_once, provider
from benchmarks.middleman_upstream import IN_FLIGHT, PER_MINUTE

WORKERS, JOBS = 200, 4
WARM, SECONDS = 60, 150
LEAST_USED, MOST_REFUSED = 0.95, 0.02
KINDS = {
    "rate": ((1.5, 2.5), "300 a minute is the limit"),
    "in flight": ((4.5, 5.5), "20 in flight is the limit"),
}


def storm(way: Way) -> list[Bar]:
    """Both limits of the provider, one after the other."""
    return [bar for kind in KINDS for bar in _storm(way, kind)]


def _storm(way: Way, kind: str) -> list[Bar]:
    latency, about = KINDS[kind]
    warm, seconds = (20, 30) if way.quick else (WARM, SECONDS)
    base = way.base / kind.replace(" ", "-")
    base.mkdir()
    with provider() as port, ours(base, f"http://{HOST}:{port}/v1", "{}") as mine:
        post_once(direct(port), "/storm", {"latency": latency})
        orders = {
            "targets": [mine.job(f"storm-{number}") for number in range(JOBS)],
            "provider": direct(port),
            "workers": WORKERS,
            "warm": warm,
            "seconds": seconds,
        }
        with generator("storm", orders) as running:
            while "progress" in (got := running.line()):
                print(f"  {kind}: {_progress(got['progress'])}", file=sys.stderr, flush=True)
    return _bars(kind, about, latency, got, warm)


def _bars(kind: str, about: str, latency: tuple[float, float], got: dict[str, Any], warm: float) -> list[Bar]:
    before, after = got["before"], got["after"]
    took = after["at"] - before["at"]
    served = after["served"] - before["served"]
    refused = max(after["refused"] - before["refused"], got["refused"])
    by_rate = before["bucket"] + took * PER_MINUTE / 60
    by_places = took * IN_FLIGHT / (sum(latency) / 2)
    ceiling = min(by_rate, by_places)
    calls = f"{served} served in {took:.0f} s after {warm} s of warming up; {WORKERS} workers, {JOBS} jobs"
    jobs = "/".join(str(count) for count in got["by_job"])
    wait = f"a call took {got['wait_p50']:.0f} s, at most {got['wait_max']:.0f} s; by job {jobs}"
    return [
        Reached(
            f"storm, {kind}: of the provider's ceiling, at least",
            served / ceiling,
            LEAST_USED,
            "",
            f"{about}, {latency[0]:g} to {latency[1]:g} s each: {ceiling:.0f}; {calls}",
        ),
        Bar(f"storm, {kind}: failed attempts", got["failed"], 0, "", f"{json.dumps(got['reasons'])} {wait}"),
        Bar(
            f"storm, {kind}: 429s of all requests",
            refused / max(1, served + refused),
            MOST_REFUSED,
            "",
            f"{refused}, {after['refused_in_flight'] - before['refused_in_flight']} of them for too many in flight",
        ),
    ]


def _progress(counts: dict[str, Any]) -> str:
    names = ("served", "refused", "in_flight", "most_in_flight", "bucket")
    return ", ".join(f"{name} {counts[name]:.0f}" for name in names)
