"""Real evals for tests: attempts in bubblewrap sandboxes, with solvers that are tests, and a model that plays a script."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, EvalSample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver, use_tools
from inspect_ai.tool import Tool, ToolChoice, ToolInfo
from inspect_ai.util import SandboxEnvironment, sandbox

from hawk.sandbox.config import BubblewrapConfig

Work = Callable[[SandboxEnvironment], Awaitable[Any]]
Config = dict[str, Any] | str | None
"""Fields of a configuration, or the path of a file. `inspect_tools` is off: a layer with them takes seconds to make."""

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
        moves = _script(next((message.text for message in input if message.role == "user"), ""))
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
    except (ValueError, TypeError):
        return []


def run_eval(solvers: Any, samples: Sequence[Sample], config: Config = None, **options: Any) -> EvalLog:
    """An eval with these samples, each in a sandbox of this configuration."""
    chosen: str | BubblewrapConfig
    if isinstance(config, str):
        chosen = config
    else:
        chosen = BubblewrapConfig.model_validate({"inspect_tools": False, **(config or {})})
    task = Task(dataset=list(samples), solver=solvers, sandbox=("bubblewrap", chosen))
    [log] = eval(task, model=MODEL, display="none", log_level="error", **options)
    return log


def samples_of(log: EvalLog) -> list[EvalSample]:
    """The samples of an eval in which nothing went wrong."""
    assert log.error is None, log.error.traceback
    samples = sorted(log.samples or [], key=lambda sample: int(sample.id))
    for sample in samples:
        assert sample.error is None, sample.error.traceback
    return samples


def error_of(log: EvalLog) -> str:
    """What an eval says went wrong, which did."""
    errors = [log.error, *(sample.error for sample in log.samples or [])]
    texts = [f"{error.message}\n{error.traceback}" for error in errors if error is not None]
    assert texts, "nothing went wrong"
    return "\n".join(texts)


def in_samples(
    work: Work, samples: Sequence[Sample] = (), config: Config = None, **options: Any
) -> list[Any]:
    """What `work` returned for each sample, in their order; it is given the sample's sandbox."""
    results: dict[str, Any] = {}
    log = run_eval(doing(work, results), samples or [Sample("?")], config, **options)
    return [results[str(sample.id)] for sample in samples_of(log)]


def in_sample(work: Work, config: Config = None, **sample: Any) -> Any:
    """What `work` returned in the sandbox of an eval's only sample, which may have more fields."""
    [result] = in_samples(work, [Sample("?", **sample)], config)
    return result


@solver
def doing(work: Work, results: dict[str, Any]) -> Solver:
    """A solver that is a test: runs `work`, and keeps what it returns by sample."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        results[str(state.sample_id)] = await work(sandbox())
        return state

    return solve


def play(
    moves: Sequence[tuple[str, dict[str, Any]]], tools: Sequence[Tool], config: Config = None, **sample: Any
) -> tuple[list[str], EvalSample]:
    """What each call of a tool by the model gave, as the model reads it, and the sample with its transcript."""
    solvers = [use_tools(*tools), generate()]
    log = run_eval(solvers, [Sample(json.dumps(list(moves)), **sample)], config)
    [played] = samples_of(log)
    assert played.output.completion == LAST
    texts = [
        message.error.message if message.error is not None else message.text
        for message in played.messages
        if message.role == "tool"
    ]
    return texts, played
