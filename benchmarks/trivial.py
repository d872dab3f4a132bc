"""Four tasks of trivial samples: what is left is the cost of running them. And one that holds its attempt."""

from __future__ import annotations

import asyncio

from inspect_ai import Task, task
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
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver
from inspect_ai.tool import ToolChoice, ToolInfo


@modelapi(name="trivial")
class TrivialAPI(ModelAPI):
    """Answers `yes` at once."""

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        output = ModelOutput.from_content(self.model_name, "yes")
        output.usage = ModelUsage(input_tokens=5, output_tokens=1, total_tokens=6)
        return output


def _trivial(samples: int) -> Task:
    dataset = [Sample(id=i, input="Say yes.", target="yes") for i in range(1, samples + 1)]
    return Task(dataset=dataset, solver=generate(), scorer=includes(), model=get_model("trivial/model"))


@task
def first(samples: int = 250) -> Task:
    return _trivial(samples)


@task
def second(samples: int = 250) -> Task:
    return _trivial(samples)


@task
def third(samples: int = 250) -> Task:
    return _trivial(samples)


@task
def fourth(samples: int = 250) -> Task:
    return _trivial(samples)


@task
def holding(seconds: float = 2.0) -> Task:
    return Task(dataset=[Sample(input="Wait.")], solver=hold(seconds), model=get_model("trivial/model"))


@solver
def hold(seconds: float) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await asyncio.sleep(seconds)
        return state

    return solve
