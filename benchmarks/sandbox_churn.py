"""Ten thousand sandboxes, one after the other: what they leave behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.bars import Bar
from benchmarks.sandboxes import MEBI, cgroups_of, files_below, keeping, processes_of, started
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.prepare import Lower

PER_ROUND = 1000
WARM = 500
AT_ONCE = 16
PATIENCE = 5  # seconds for what ends late


@dataclass(frozen=True)
class Census:
    """What there is: of this process as the worker, of the keeper, and of what they share.

    Attributes:
        counts: How many of each kind.
        resident: Bytes of memory by process.
    """

    counts: dict[str, int]
    resident: dict[str, int]

    @staticmethod
    def take(keeper: Keeper, home: Path) -> Census:
        gc.collect()
        worker, processes = psutil.Process(), processes_of(keeper)
        everyone = [worker, *processes]
        counts = {
            "processes": len(worker.children(recursive=True)),
            "mounts": sum(_lines(f"/proc/{one.pid}/mountinfo") for one in everyone),
            "files": files_below(home),
            "cgroups": len(cgroups_of(keeper)),
            "open files": sum(one.num_fds() for one in everyone),
        }
        names = ["worker", *(f"keeper {i + 1}" for i in range(len(processes)))]
        return Census(
            counts, {name: one.memory_info().rss for name, one in zip(names, everyone, strict=True)}
        )

    def leaked(self, before: Census) -> dict[str, int]:
        return {kind: max(0, count - before.counts[kind]) for kind, count in self.counts.items()}


def measure(base: Path, rounds: int) -> list[Bar]:
    return asyncio.run(_measure(base / "home", rounds * PER_ROUND))


async def _measure(home: Path, total: int) -> list[Bar]:
    async with keeping() as keeper:
        failures = await _churn(keeper, WARM)
        before = await _settled(keeper, home, None)
        began = time.perf_counter()
        failures += await _churn(keeper, total - WARM)
        took = time.perf_counter() - began
        after = await _settled(keeper, home, before)
    name, rate = (
        f"{total:,} created and destroyed",
        f"{(total - WARM) / took:.0f} a second, {AT_ONCE} at a time",
    )
    said = f", the first: {failures[0]}" if failures else ""
    leaked = after.leaked(before)
    kinds = ("processes",), ("mounts",), ("files", "cgroups", "open files")
    return [
        Bar(f"{name}: failures", len(failures), 0, "", rate + said),
        *(
            Bar(
                f"{name}: leaked {of[0]}",
                sum(leaked[kind] for kind in of),
                0,
                "",
                ", ".join(f"{kind} {before.counts[kind]} → {after.counts[kind]}" for kind in of)
                + f" after {WARM} and at the end",
            )
            for of in kinds
        ),
        _memory(name, before, after),
    ]


def _memory(name: str, before: Census, after: Census) -> Bar:
    """Of the process that grew most, by what it may: 5 % or 1 MiB."""
    grown = {
        process: (after.resident.get(process, 0) - size, max(MEBI, size // 20))
        for process, size in before.resident.items()
    }
    worst, (growth, allowed) = max(grown.items(), key=lambda item: item[1][0] / item[1][1])
    note = ", ".join(
        f"{process} {size / MEBI:.2f} → {after.resident.get(process, 0) / MEBI:.2f} MiB"
        for process, size in before.resident.items()
    )
    return Bar(f"{name}: memory, {worst}", growth / MEBI, allowed / MEBI, "MiB", f"{note}; 5 % or 1 MiB")


async def _churn(keeper: Keeper, count: int) -> list[str]:
    """Create, use and destroy; what was said by those that failed."""
    config, left, failures = BubblewrapConfig(), iter(range(count)), []
    step = max(1, count // 5)

    async def work() -> None:
        for i in left:
            try:
                await started(keeper, config, Lower())
            except Exception as ex:
                failures.append(f"{type(ex).__name__}: {ex}")
            if count > WARM and (i + 1) % step == 0:
                print(f"  {i + 1} of {count}", file=sys.stderr, flush=True)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return failures


async def _settled(keeper: Keeper, home: Path, before: Census | None) -> Census:
    """A census without what is just ending: of two in a row that are alike, or that shows nothing leaked."""
    deadline = time.monotonic() + PATIENCE
    last, now = None, Census.take(keeper, home)
    while time.monotonic() < deadline:
        calm = last is not None and now.counts == last.counts
        if calm and (before is None or not any(now.leaked(before).values())):
            break
        await asyncio.sleep(0.2)
        last, now = now, Census.take(keeper, home)
    return now


def _lines(path: str) -> int:
    try:
        return Path(path).read_bytes().count(b"\n")
    except OSError:
        return 0
