"""As many sandboxes at once as a big eval has: how fast they come, what each takes, how fast all are gone."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.bars import Bar
from benchmarks.processes import calm, until
from benchmarks.sandboxes import MEBI, cgroups_of, keeping, processes_of, start, started, true_in
from hawk.sandbox import pool
from hawk.sandbox.box import Box
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.prepare import Lower

CROWD = 474
CORES = 2
WARM = 16


@dataclass(frozen=True)
class Crowd:
    """One round.

    Attributes:
        rate: Sandboxes a second, their first commands done.
        failures: What was said by those that failed.
        pss: Bytes a sandbox, by the keeper's processes; None where they can't be looked into.
        available: Bytes a sandbox by which the machine's available memory fell.
        gone: Seconds from the end until nothing is left.
    """

    rate: float
    failures: list[str]
    pss: float | None
    available: float
    gone: float

    @property
    def memory(self) -> float:
        return max(self.available, self.pss or 0)


def measure(base: Path, rounds: int) -> list[Bar]:
    seen = []
    with _few_cores() as cores:
        for i in range(rounds):
            calm()
            seen.append(asyncio.run(_round(base)))
            print(
                f"  round {i + 1}: {seen[-1].rate:.0f}/s, {seen[-1].memory / MEBI:.2f} MiB each, "
                f"gone after {seen[-1].gone:.2f} s",
                file=sys.stderr,
                flush=True,
            )
    rate, most = median(one.rate for one in seen), max(seen, key=lambda one: one.memory)
    failures = [text for one in seen for text in one.failures]
    pss = "unknown" if most.pss is None else f"{most.pss / MEBI:.2f} MiB"
    said = f"{len(failures)} of {rounds} x {CROWD}" + (f", the first: {failures[0]}" if failures else "")
    return [
        Bar(
            f"{CROWD} at once: create + first command, each",
            1000 / rate,
            10,
            "ms",
            f"{rate:.0f} a second (bar: 100) on {cores} cores, median of {rounds} rounds",
        ),
        Bar(f"{CROWD} at once: failures", len(failures), 0, "", said),
        Bar(
            f"{CROWD} at once: memory, each",
            most.memory / MEBI,
            3,
            "MiB",
            f"the greater of: processes' PSS {pss}, fall of available memory {most.available / MEBI:.2f} MiB; "
            f"most of {rounds} rounds",
        ),
        Bar(
            f"{CROWD} at once: all gone after the end",
            max(one.gone for one in seen),
            5,
            "s",
            f"processes, cgroups and files; most of {rounds} rounds",
        ),
    ]


@contextmanager
def _few_cores() -> Iterator[int]:
    """This process and all that it starts get two cores."""
    before = os.sched_getaffinity(0)
    few = sorted(before)[:CORES]
    os.sched_setaffinity(0, few)
    try:
        yield len(few)
    finally:
        os.sched_setaffinity(0, before)


async def _round(base: Path) -> Crowd:
    config = BubblewrapConfig()
    async with keeping() as keeper:
        for _ in range(WARM):
            await started(keeper, config, Lower())
        before = await _settled_memory()
        began = time.perf_counter()
        created = await asyncio.gather(
            *(start(keeper, config, Lower()) for _ in range(CROWD)), return_exceptions=True
        )
        took = time.perf_counter() - began
        failures = [_said(one) for one in created if isinstance(one, BaseException)]
        boxes = [one[0] for one in created if not isinstance(one, BaseException)]
        available = before - await _settled_memory()
        pss = _pss(keeper)
        failures += await _dead(boxes)
        gone = _end(keeper, base)
    return Crowd(len(boxes) / took, failures, None if pss is None else pss / CROWD, available / CROWD, gone)


async def _dead(boxes: list[Box]) -> list[str]:
    """What is said by those that don't run a command any more."""
    again = await asyncio.gather(*(true_in(box) for box in boxes), return_exceptions=True)
    return [_said(one) for one in again if isinstance(one, BaseException)]


def _said(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"


async def _settled_memory() -> int:
    """Available bytes, when they have stopped to change much: the kernel takes back later what was let go."""
    deadline = time.monotonic() + 15
    last, now = -1, psutil.virtual_memory().available
    while abs(now - last) > 2 * MEBI and time.monotonic() < deadline:
        await asyncio.sleep(1)
        last, now = now, psutil.virtual_memory().available
    return now


def _pss(keeper: Keeper) -> int | None:
    """Bytes of the keeper's processes and its sandboxes', with shared pages divided among those that share them."""
    total = 0
    for process in processes_of(keeper):
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except PermissionError:
            return None
        except OSError:  # it has just ended
            continue
        total += sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))
    return total


def _end(keeper: Keeper, base: Path) -> float:
    """Seconds from the keeper's end until nothing of it is left."""
    processes, groups = processes_of(keeper), cgroups_of(keeper)
    name = f"{pool.NAME}={processes[0].environ()[pool.NAME]}".encode()
    began = time.perf_counter()
    keeper.close()

    def nothing_left() -> bool | None:
        alive = any(process.is_running() for process in processes) or any(_named(name))
        files = any(path.is_file() for path in (base / "home" / "sandbox" / "keepers").iterdir())
        return None if alive or files or any(group.exists() for group in groups) else True

    until("nothing of the keeper is left", nothing_left)
    return time.perf_counter() - began


def _named(name: bytes) -> Iterator[int]:
    """Pids of processes that carry the keeper's name."""
    for pid in psutil.pids():
        with suppress(OSError):
            if name in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                yield pid
