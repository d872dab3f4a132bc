"""A task whose attempts run one command each, of a sandbox's shell."""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox


@solver
def command_of(command: str) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        done = await sandbox().exec(["sh", "-c", command])
        state.store.set("said", done.stdout + done.stderr)
        return state

    return solve


@scorer(metrics=[accuracy()])
def said() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        text = state.store.get("said", "")
        return Score(value=text.strip() == target.text, answer=text)

    return score


@scorer(metrics=[accuracy()])
def left() -> Scorer:
    """Whether the command has left `made` and has deleted `given`."""

    async def score(state: TaskState, target: Target) -> Score:
        listed = await sandbox().exec(["sh", "-c", "cat made; test ! -e given && echo gone"])
        return Score(value=listed.stdout.split() == ["made", "gone"], answer=listed.stdout)

    return score


@task
def works(command: str = "echo made >made; rm given") -> Task:
    sample = Sample(input="-", id="s0", target="-", files={"given": "x"})
    return Task(dataset=[sample], solver=command_of(command), scorer=left())


@task
def commands(command: str = "cat given", samples: int = 2) -> Task:
    dataset = [
        Sample(input="-", id=f"s{n}", target=f"hello {n}", files={"given": f"hello {n}"})
        for n in range(samples)
    ]
    return Task(dataset=dataset, solver=command_of(command), scorer=said())
