"""An eval whose every attempt writes into a ledger when it begins and when it is done."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver


@modelapi(name="counted")
class Counted(ModelAPI):
    def __init__(self, model_name: str, **kwargs: object) -> None:
        super().__init__(model_name, config=GenerateConfig())

    async def generate(
        self, input: object, tools: object, tool_choice: object, config: object
    ) -> ModelOutput:
        output = ModelOutput.from_content(self.model_name, "42")
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output


@solver
def in_steps(ledger: str, seconds: float, gate: str = "") -> Solver:
    """`gate`: a file without which no sample but the first goes on."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        name = f"{state.metadata['task']}/{state.sample_id}/{state.epoch}"
        _write(ledger, f"begin {name}")
        position = int(str(state.sample_id).removeprefix("s"))
        while gate and position and not Path(gate).exists():
            await asyncio.sleep(0.05)
        for _ in range(4):
            await asyncio.sleep(seconds * (1 + position) / 4)
            state = await generate(state)
        _write(ledger, f"done {name}")
        return state

    return solve


def _write(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as f:
        f.write(f"{line} {os.getpid()}\n")


def _task(name: str, ledger: str, samples: int, seconds: float, gate: str) -> Task:
    dataset = [Sample(id=f"s{i}", input="?", target="42", metadata={"task": name}) for i in range(samples)]
    return Task(dataset=dataset, solver=in_steps(ledger, seconds, gate), scorer=includes())


@task
def left(ledger: str, samples: int = 4, seconds: float = 0.6, gate: str = "") -> Task:
    return _task("left", ledger, samples, seconds, gate)


@task
def right(ledger: str, samples: int = 4, seconds: float = 0.6, gate: str = "") -> Task:
    return _task("right", ledger, samples, seconds, gate)
