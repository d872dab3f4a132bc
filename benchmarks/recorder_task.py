"""Attempts of an agent that waits: each asks its model, waits in a tool, and asks again, for as long as nobody ends it."""

from __future__ import annotations

import asyncio

from inspect_ai import Task, task
from inspect_ai.agent import as_solver, react
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessage,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.tool import Tool, ToolChoice, ToolInfo, tool

PAUSE = 40.0
"""Seconds of a wait; not so long that an attempt would count as stalled."""


@modelapi(name="waiting")
class WaitingAPI(ModelAPI):
    """Calls the tool, whatever happened before."""

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        output = ModelOutput.for_tool_call(self.model_name, "wait", {})
        output.usage = ModelUsage(input_tokens=5, output_tokens=1, total_tokens=6)
        return output


@tool
def wait() -> Tool:
    async def execute() -> str:
        """Wait for the build."""
        await build()
        return "It goes on."

    return execute


async def build() -> None:
    await asyncio.sleep(PAUSE)


@task
def waiting(samples: int = 500) -> Task:
    dataset = [Sample(id=i, input="Wait for the build.") for i in range(1, samples + 1)]
    return Task(dataset=dataset, solver=as_solver(react(tools=[wait()])), model=get_model("waiting/model"))
