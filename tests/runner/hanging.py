"""An eval whose attempts hang the first time that they run (one of them the second time too), each in its own way."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver, use_tools
from inspect_ai.tool import Tool, tool


@modelapi(name="hanging")
class Hanging(ModelAPI):
    """Calls the tool first, then answers."""

    def __init__(self, model_name: str, **kwargs: object) -> None:
        super().__init__(model_name, config=GenerateConfig())

    async def generate(self, input: Any, tools: Any, tool_choice: object, config: object) -> ModelOutput:
        called = any(getattr(message, "role", "") == "tool" for message in input)
        if tools and not called:
            output = ModelOutput.for_tool_call(self.model_name, "read_mail", {}, content="")
        else:
            output = ModelOutput.from_content(self.model_name, "42")
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output


@tool
def read_mail() -> Tool:
    async def execute() -> str:
        """Read the mail that never comes."""
        await asyncio.Event().wait()
        return ""

    return execute


@solver
def its_way(folder: str) -> Solver:
    tools = use_tools(read_mail())

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        name = str(state.sample_id)
        ledger = Path(folder) / "ledger"
        before = ledger.read_text().split() if ledger.exists() else []
        with ledger.open("a") as f:
            f.write(f"{name}\n")
        if name == "tool":
            return await generate(await tools(state, generate))
        if name == "steps":
            while not (Path(folder) / "enough").exists():
                state = await generate(state)
                (Path(folder) / "step").write_text(str(time.monotonic()))
                await asyncio.sleep(0.1)
        if before.count(name) < {"never": 1, "score": 1, "last": 2}.get(name, 0):
            await asyncio.Event().wait()
        if name == "blocks" and name not in before:
            while "last" not in ledger.read_text().split():
                await asyncio.sleep(0.05)
            time.sleep(3600)  # noqa: ASYNC251  # that is the point
        return await generate(state)

    return solve


def _task(folder: str, *names: str) -> Task:
    return Task(
        dataset=[Sample(id=name, input="?", target="42") for name in names],
        solver=its_way(folder),
        scorer=includes(),
        token_limit=100_000,
    )


@task
def hangs(folder: str) -> Task:
    return _task(folder, "tool", "never", "score", "steps")


@task
def last(folder: str) -> Task:
    return _task(folder, "last")


@task
def blocks(folder: str) -> Task:
    return _task(folder, "blocks", "well")
