"""The 237 published pairs as Inspect tasks: an agent that sleeps in its sandbox as long as the row says, and passes or not.

Durations are divided by `REPLAY_SCALE`. One task an experiment; its samples are the evals.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox

ROWS = Path(__file__).parent / "data" / "replay.csv"


@solver
def sleeper() -> Solver:
    """Sleeps, then has passed or failed, as the data says of this attempt."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        seconds, passed = state.metadata["attempts"][state.epoch - 1]
        done = await sandbox().exec(["sleep", f"{seconds:.3f}"])
        if not done.success:
            raise RuntimeError(f"sleep ended with {done.returncode}: {done.stderr}")
        await sandbox().write_file("done", "yes" if passed else "no")
        return state

    return solve


@scorer(metrics=[accuracy()])
def as_told() -> Scorer:
    """Reads what the agent left."""

    async def score(state: TaskState, target: Target) -> Score:
        return Score(value="C" if await sandbox().read_file("done") == "yes" else "I")

    return score


@task
def replay(experiment: str) -> Task:
    """One experiment."""
    scale = float(os.environ["REPLAY_SCALE"])
    pairs: dict[str, list[tuple[float, int]]] = {}
    with ROWS.open(newline="") as f:
        for row in csv.DictReader(f):
            if row["experiment"] == experiment:
                seconds = float(row["duration_s"]) / scale
                pairs.setdefault(row["eval"], []).append((seconds, int(row["passed"])))
    return Task(
        [Sample("sleep", id=name, metadata={"attempts": rows}) for name, rows in pairs.items()],
        solver=sleeper(),
        scorer=as_told(),
        sandbox=("bubblewrap", str(Path(__file__).parent / "data" / "replay-sandbox.yaml")),
        name=experiment,
    )
