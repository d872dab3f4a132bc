"""A task whose first sample does what hangs and kills workers, one after another, each when a file says so.

The other sample waits for ever; its name is full of escape sequences. `<gate>/<phase>` begins a phase.
"""

from __future__ import annotations

import asyncio
import ctypes
import re
import time
from collections.abc import Callable
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver

ROOM, ENOUGH = 128, 122
"""MiB that a worker may have, and of which it takes so many before it takes all."""

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[0m"


def nap() -> None:
    time.sleep(9)


def hold() -> None:
    ctypes.PyDLL(None).usleep(16_000_000)  # a C function that keeps the interpreter's lock


def match() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


def fault() -> None:
    ctypes.string_at(0)


def hoard() -> None:
    kept = [b"x" * (1 << 20) for _ in range(ENOUGH)]
    time.sleep(4)
    while True:
        kept.append(b"x" * (1 << 20))


PHASES: dict[str, Callable[[], None]] = {f.__name__: f for f in (nap, hold, match, fault, hoard)}


@solver
def in_phases(gate: str) -> Solver:
    lock = asyncio.Lock()

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.sample_id == HOSTILE:
            await asyncio.Event().wait()
        while not (Path(gate) / "deadlock").exists():
            for name, phase in PHASES.items():
                if (go := Path(gate) / name).exists():
                    go.unlink()
                    phase()
                    (Path(gate) / f"{name}-over").touch()
            await asyncio.sleep(0.05)
        async with lock:
            other = lock
            async with other:
                return state

    return solve


@task
def phases(gate: str) -> Task:
    dataset = [Sample(id="main", input="?", target="42"), Sample(id=HOSTILE, input="?", target="42")]
    return Task(dataset=dataset, solver=in_phases(gate), scorer=includes())
