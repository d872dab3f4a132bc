"""Real evals for tests: attempts in bubblewrap sandboxes, with solvers that are tests, and a model that plays a script."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, EvalSample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver, use_tools
from inspect_ai.tool import Tool, ToolCall, ToolChoice, ToolInfo
from inspect_ai.util import SandboxEnvironment, sandbox

from hawk.sandbox.config import BubblewrapConfig

Work = Callable[[SandboxEnvironment], Awaitable[Any]]

MODEL = "playing/script"
LAST = "That is all."
"""What the model says when its script is over."""


@modelapi(name="playing")
class Playing(ModelAPI):
    """Calls the tools that the first message lists as JSON (`[name, arguments]`), one a turn, then says `LAST`."""

    def __init__(self, model_name: str, **_: object) -> None:
        super().__init__(model_name, config=GenerateConfig())

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        moves = _script(next(message.text for message in input if message.role == "user"))
        turn = sum(isinstance(message, ChatMessageAssistant) for message in input)
        if turn < len(moves):
            name, arguments = moves[turn]
            output = ModelOutput.for_tool_call(self.model_name, name, arguments, tool_call_id=f"call-{turn}")
        else:
            output = ModelOutput.from_content(self.model_name, LAST)
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output


def _script(text: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        return [(name, arguments) for name, arguments in json.loads(text)]
    except ValueError:
        return []


def run_eval(
    solvers: Solver | list[Solver],
    samples: Sequence[Sample],
    config: dict[str, Any] | str | None = None,
    **options: Any,
) -> EvalLog:
    """Run an eval with these samples, each in a sandbox of this configuration (fields, or the path of a file)."""
    chosen = config if isinstance(config, str) else BubblewrapConfig.model_validate(config or {})
    task = Task(dataset=list(samples), solver=solvers, sandbox=("bubblewrap", chosen))
    logs = Path("logs").absolute()
    [log] = eval(task, model=MODEL, log_dir=str(logs), display="none", log_level="warning", **options)
    return log


def run_samples(
    work: Work, samples: Sequence[Sample] = (), config: dict[str, Any] | str | None = None, **options: Any
) -> list[Any]:
    """What `work` returned for each sample, in their order; it is given the sample's sandbox.

    An error of a sample is the test's.
    """
    results: dict[str, Any] = {}
    samples = samples or [Sample("?")]

    @solver
    def doing() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            results[str(state.sample_id)] = await work(sandbox())
            return state

        return solve()  # type: ignore[return-value]

    log = run_eval(_solver(results, work), samples, config, **options)
    assert_fine(log)
    return [results[str(sample.id)] for sample in sorted(log.samples or [], key=lambda s: int(s.id))]
