"""Tasks and models that fail in the ways that real ones do."""

from __future__ import annotations

import time
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample, json_dataset
from inspect_ai.model import ModelAPI, ModelOutput, modelapi
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver


@modelapi(name="refusing")
class Refusing(ModelAPI):
    def __init__(self, model_name: str, **kwargs: object) -> None:
        super().__init__(model_name)

    async def generate(
        self, input: object, tools: object, tool_choice: object, config: object
    ) -> ModelOutput:
        raise ValueError("the account is closed\x1b[31m")


def _call_that_does_not_await(until: Path) -> None:
    deadline = time.monotonic() + 60
    while not until.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


@solver
def block(until: str) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        _call_that_does_not_await(Path(until))  # nothing else in the process runs meanwhile
        return state

    return solve


@task
def answers() -> Task:
    return Task(dataset=[Sample(id=f"s{i}", input="?", target="x") for i in range(3)], solver=generate())


@task
def no_dataset() -> Task:
    return Task(dataset=json_dataset("/nonexistent/questions.jsonl"), solver=generate())


@task
def blocking(until: str) -> Task:
    """Blocks its worker's event loop until a file is there."""
    return Task(dataset=[Sample(id="s0", input="?", target="x")], solver=block(until))
