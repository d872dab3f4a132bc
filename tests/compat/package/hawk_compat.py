"""A tiny eval with a scripted model: it knows capitals, waits for a gate when asked to, and can fail.

It works as a file (`file: hawk_compat.py@capitals`) and as an installed package (entry point `hawk_compat`).
"""

from pathlib import Path
from typing import Any

import anyio
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageUser,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolChoice, ToolInfo

ANSWERS = {"France": "It is Paris.", "England": "It is London.", "Atlantis": "Nobody knows."}
GATE = "wait for "
FAIL = "fail with "


class Scripted(ModelAPI):
    """Answers by rule and reports its usage, so that nothing is looked up on the network."""

    def __init__(self, model_name: str, **kwargs: Any) -> None:
        super().__init__(model_name)

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        question = input[-1].text
        if question.startswith(FAIL):
            raise RuntimeError(question.removeprefix(FAIL))
        if question.startswith(GATE):
            gate = anyio.Path(question.removeprefix(GATE))
            while not await gate.exists():
                await anyio.sleep(0.05)
        answer = next((text for place, text in ANSWERS.items() if place in question), "Done.")
        output = ModelOutput.from_content(self.model_name, answer)
        output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
        return output


@modelapi(name="hawk_compat")
def hawk_compat() -> type[ModelAPI]:
    return Scripted


@solver
def ask(forever: str = "") -> Solver:
    """Ask once; the sample named `forever` asks again until a limit ends it."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        while state.sample_id == forever:
            state.messages.append(ChatMessageUser(content="And then?"))
            state = await generate(state)
        return state

    return solve


def _task(dataset: list[Sample], plan: Solver, message_limit: int | None = None) -> Task:
    model = get_model("hawk_compat/small")
    return Task(dataset=dataset, solver=plan, scorer=includes(), model=model, message_limit=message_limit)


@task
def capitals() -> Task:
    """Two right answers, one wrong one, one attempt that a limit ends."""
    dataset = [
        Sample(id="france", input="What is the capital of France?", target="Paris"),
        Sample(id="england", input="What is the capital of England?", target="London"),
        Sample(id="atlantis", input="What is the capital of Atlantis?", target="Poseidonis"),
        Sample(id="endless", input="Go on.", target="the end"),
    ]
    return _task(dataset, ask("endless"), message_limit=8)


@task
def gated(gate: str) -> Task:
    """Attempts that are in flight until a file appears."""
    inputs = {name: f"{GATE}{Path(gate)}" for name in ("one", "two", "three")}
    dataset = [Sample(id=name, input=text, target="Done") for name, text in inputs.items()]
    return _task(dataset, ask())


@task
def broken() -> Task:
    """Attempts that all error."""
    dataset = [Sample(id=name, input=f"{FAIL}{name}", target="") for name in ("alpha", "beta")]
    return _task(dataset, ask())
