"""An eval whose agent leaves what a plan file says, and whose scorer tests rewrite: they append to a copy of this file.

The plan: `{sample: [[word, …], …]}`, for each attempt what its agent does, by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant, ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import LimitExceededError, sandbox

SANDBOX = ""
FIRST = "echo task > start.txt; mkdir given; echo y > given/file"
LEAVES = {
    "changes": "rm start.txt; rm -r given; rm base; echo answer > left.txt; chmod 751 left.txt; rm -rf folder; ln -s /etc/passwd out",
    "wrong": "echo wrong > left.txt",
    "odd": r"""printf x > "$(printf 'a\nb')"; ln -s ../../../.. up; mkfifo pipe; printf z > ' $(touch pwned)'; mkdir -- -rf""",
    "large": "truncate -s 2G large",
}


async def decide(state: TaskState) -> Any:
    """What the scorer says; tests put another in its place."""
    return "C" if (await sandbox().read_file("left.txt")).strip() == "answer" else "I"


@solver
def prepared(ledger: str) -> Solver:
    """What the task does before any agent: outside the workspace too."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        _write(ledger, f"setup {_name(state)}")
        done = await sandbox().exec(["sh", "-ec", f"{FIRST}; echo ready > /tmp/ready"])
        assert done.success, done.stderr
        return state

    return solve


@solver
def leaver(plan: str, ledger: str) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        words = json.loads(Path(plan).read_text())[str(state.sample_id)][state.epoch - 1]
        _write(ledger, f"begin {_name(state)}")
        for word in words:
            done = await sandbox().exec(["sh", "-ec", LEAVES.get(word, "true")])
            assert done.success, done.stderr
        if "boom" in words:
            raise RuntimeError("boom")
        said = f"attempt {state.epoch}: " + "long " * 100
        state.messages.append(ChatMessageAssistant(content=said))
        state.output = ModelOutput.from_content("none/none", said)
        state.store.set("notes", {"words": words})
        state.metadata["seen"] = state.epoch
        if "own" in words:
            state.scores = {"own": Score(value=0.25)}
        if "limit" in words:
            raise LimitExceededError("message", value=7, limit=7, message="seven messages")
        return state

    return solve


@scorer(metrics=[accuracy()])
def judge() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=await decide(state))

    return score


def _name(state: TaskState) -> str:
    return f"{state.sample_id}/{state.epoch}"


def _write(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as f:
        f.write(f"{line}\n")


@task
def kept(plan: str, ledger: str, expected: str = "old") -> Task:
    names = json.loads(Path(plan).read_text())
    return Task(
        [Sample("?", id=name, metadata={"expected": expected}, files={"extra": "given"}) for name in names],
        setup=prepared(ledger),
        solver=leaver(plan, ledger),
        scorer=judge(),
        sandbox=("bubblewrap", SANDBOX),
    )
