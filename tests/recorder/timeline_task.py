"""Attempts whose time goes to different things: a tool that hangs, back-off after a failed call, a try that errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, tool
from inspect_ai.util import sandbox

CALLS = 3


class OverloadedError(Exception):
    """What a provider says when it is asked again later."""


@modelapi(name="timed")
class Timed(ModelAPI):
    """Calls the tool that the sample names, three times, and submits; the sample `backs-off` fails once before."""

    def __init__(self, model_name: str, **kwargs: Any) -> None:
        super().__init__(model_name, config=GenerateConfig())
        self._failed = False

    def should_retry(self, ex: Exception) -> bool:
        return isinstance(ex, OverloadedError)

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        await asyncio.sleep(0.3)
        name = (
            input[-1].text
            if input[-1].role == "user"
            else str(next(m.text for m in input if m.role == "user"))
        )
        if "backs-off" in name and not self._failed:
            self._failed = True
            raise OverloadedError("come back later")
        done = sum(isinstance(message, ChatMessageTool) for message in input)
        call = (
            ("submit", {"answer": "42"})
            if done >= CALLS
            else ("work", {"how": "hang" if "hangs" in name else "go"})
        )
        output = ModelOutput.for_tool_call(self.model_name, call[0], dict(call[1]))
        output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
        return output


@tool
def work() -> Tool:
    async def execute(how: str) -> str:
        """Do some work.

        Args:
            how: `go`, or `hang`.
        """
        await sandbox().exec(["sleep", "1000" if how == "hang" else "0.2"])
        return "done"

    return execute


@solver
def errs_once(ledger: str) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        mark = Path(ledger)
        if state.sample_id == "errs" and not mark.exists():
            mark.touch()
            await asyncio.sleep(0.5)
            raise RuntimeError("the first try breaks")
        return state

    return solve


@scorer(metrics=[accuracy()])
def looks() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        await sandbox().exec(["true"])
        return Score(value=1.0)

    score_: Callable[[TaskState, Target], Awaitable[Score]] = score
    return score_


@task
def timed(ledger: str) -> Task:
    names = ["plain", "backs-off", "errs", "hangs"]
    return Task(
        dataset=[Sample(id=name, input=f"Please: {name}", target="42") for name in names],
        solver=[errs_once(ledger), react(tools=[work()])],
        scorer=looks(),
        sandbox="local",
    )
