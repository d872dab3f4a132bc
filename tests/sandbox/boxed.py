"""An eval whose every attempt runs commands in its sandbox, and writes into a ledger when it begins and is done."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox


@solver
def in_a_sandbox(ledger: str, seconds: float, command: str, gate: str) -> Solver:
    def is_open() -> bool:
        return not gate or Path(gate).exists()

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        name = f"{state.sample_id}/{state.epoch}"
        found = {"GATE": "open" if is_open() else "closed"}
        _write(ledger, f"begin {name}")
        # Something that outlives its command, as agents leave it.
        await sandbox().exec(["sh", "-c", "nohup sleep 300 >/dev/null 2>&1 &"])
        result = await sandbox().exec(["sh", "-c", command], env=found)
        _write(ledger, f"ran {name} {json.dumps([result.returncode, result.stdout, result.stderr])}")
        while not is_open():
            await asyncio.sleep(0.05)
        await asyncio.sleep(seconds * (1 + int(str(state.sample_id).removeprefix("s"))))
        state = await generate(state)
        _write(ledger, f"done {name}")
        return state

    return solve


def _write(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as f:
        f.write(f"{line} {os.getpid()}\n")


@task
def boxed(ledger: str, samples: int = 4, seconds: float = 0.6, command: str = "true", gate: str = "") -> Task:
    """Attempts go on after their command once there is the file `gate`; `$GATE` tells it whether there was one before."""
    dataset = [Sample(id=f"s{i}", input="?", target="42") for i in range(samples)]
    return Task(dataset=dataset, solver=in_a_sandbox(ledger, seconds, command, gate), scorer=includes())
