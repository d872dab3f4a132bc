"""An eval that plays what a plan file says: how long each attempt takes and how it ends, in a real sandbox.

The plan: `{sample: [[seconds, "pass" | "fail" | "boom" | "scorer" | "idle" | "stubborn" | "late"], …]}`, read anew by
every attempt. A stubborn one goes on for some seconds after it was canceled; a late one passes, after some scoring.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox

STUBBORN = 5.0
"""Seconds that a stubborn attempt takes to end."""

LATE = 4.0
"""Seconds that it takes to score a late one."""

HOSTILE = """
printf x > "$(printf 'a\\nb')"; ln -s /etc/passwd out; ln -s ../../../.. up; mkfifo pipe; mkdir -p deep/er
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('socket')"
truncate -s 5G sparse
"""


@solver
def player(plan: str, ledger: str) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        seconds, end = _row(plan, state)
        name = f"{state.metadata['task']}/{state.sample_id}/{state.epoch}"
        _write(ledger, f"begin {name}")
        if end == "idle":
            return state
        try:
            done = await sandbox().exec(["sleep", str(seconds)])
        except anyio.get_cancelled_exc_class():
            if end == "stubborn":
                _write(ledger, f"canceled {name}")
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(STUBBORN)
            raise
        if end == "boom" or not done.success:
            raise RuntimeError("boom" if end == "boom" else f"sleep ended with {done.returncode}")
        if end == "hostile":
            await sandbox().exec(["sh", "-c", HOSTILE])
        await sandbox().write_file("left.txt", f"{name} {end}")
        _write(ledger, f"done {name}")
        return state

    return solve


@scorer(metrics=[accuracy()])
def judge(plan: str) -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        end = _row(plan, state)[1]
        if end == "late":
            await anyio.sleep(LATE)
        if end == "scorer":
            raise ValueError("the scorer is broken")
        if end != "idle":
            assert (await sandbox().read_file("left.txt")).endswith(end)
        return Score(value="C" if end in ("pass", "hostile", "late") else "I")

    return score


def _row(plan: str, state: TaskState) -> tuple[float, str]:
    seconds, end = json.loads(Path(plan).read_text())[str(state.sample_id)][state.epoch - 1]
    return float(seconds), str(end)


def _write(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as f:
        f.write(f"{line} {os.getpid()}\n")


def _task(name: str, plan: str, ledger: str) -> Task:
    samples = [
        Sample("?", id=sample, metadata={"task": name}) for sample in json.loads(Path(plan).read_text())
    ]
    config = str(Path(__file__).with_name("sandbox.yaml"))
    return Task(samples, solver=player(plan, ledger), scorer=judge(plan), sandbox=("bubblewrap", config))


@task
def one(plan: str, ledger: str) -> Task:
    return _task("one", plan, ledger)


@task
def two(plan: str, ledger: str) -> Task:
    return _task("two", plan, ledger)
