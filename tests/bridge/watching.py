"""A watcher that writes down what it is told, and what evaluations under it are made of: a model, solvers, scorers."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import tenacity
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessageTool, ModelAPI, ModelOutput, ModelUsage, get_model, modelapi
from inspect_ai.scorer import Metric, Score, Scorer, Target, accuracy, metric, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, tool
from inspect_ai.util import SandboxEnvironment, sandbox

from hawk.bridge.ended import Ended

asked: ContextVar[tuple[str, int] | None] = ContextVar("asked", default=None)
"""(sample id, epoch) that the attempt at hand asked the watcher with."""


class Watching:
    """A watcher that writes down what it is told; `admit` and `on_scoring` are an evaluation's own."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.calls: list[list[Any]] = []
        self.ended_facts: list[Ended] = []
        self.seen: list[Any] = []
        self.identifiers: set[str] = set()
        self.admit: Callable[[str, int], Any] | None = None
        self.on_scoring: Callable[[dict[str, SandboxEnvironment]], Any] | None = None
        self.background: asyncio.Task[None] | None = None
        self.metric_calls = 0

    def attempt(self, identifier: str, sample_id: str, epoch: int) -> _Turn:
        self.identifiers.add(identifier)
        asked.set((sample_id, epoch))
        self.calls.append(["attempt", sample_id, epoch])
        return _Turn(self, sample_id, epoch)

    def begun(self, identifier: str, sample_id: str, epoch: int) -> None:
        self.calls.append(["begun", sample_id, epoch])

    async def scoring(
        self,
        identifier: str,
        sample_id: str,
        epoch: int,
        sandboxes: dict[str, SandboxEnvironment],
        canceled: bool,
    ) -> None:
        self.calls.append(["scoring", sample_id, epoch, sorted(sandboxes), canceled])
        if self.on_scoring is not None:
            await self.on_scoring(sandboxes)

    async def ended(self, identifier: str, eval_id: str, result: Ended) -> None:
        self.calls.append(["ended", result.sample_id, result.epoch])
        self.ended_facts.append(result)


class _Turn:
    def __init__(self, watching: Watching, sample_id: str, epoch: int) -> None:
        self.watching, self.key = watching, (sample_id, epoch)

    async def admitted(self) -> bool:
        admit = self.watching.admit
        return True if admit is None else bool(await admit(*self.key))

    def left(self) -> None:
        self.watching.calls.append(["left", *self.key])


class Relay:
    """The one watcher of the process: passes on to the evaluation's own."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, name: str) -> Watching:
        """A watcher for the next evaluation."""
        own = Watching(name)
        object.__setattr__(self, "_own", own)
        return own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._own, name, value)


now = Relay()


# --- what is evaluated


class Refused(Exception):  # noqa: N818
    """As a provider's client raises it: a status, and a message of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status_code, self.message = status, message


@modelapi("watched")
class Watched(ModelAPI):
    """Does what the first message says: `tools N`, `refused STATUS N`, `broken`, `wait`, or answers."""

    failures = 0

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        word, *rest = next(m.text for m in input if m.role == "user").split()
        if word == "refused" and Watched.failures < int(rest[1]):
            Watched.failures += 1
            raise Refused(int(rest[0]), "Error code: 429 - slow down (please)")
        if word == "broken":
            raise Refused(400, "Error code: 400 - no such model (sorry)")
        if word == "wait":
            now.seen.append("model called")
            await asyncio.sleep(60)
        if word == "tools" and sum(isinstance(m, ChatMessageTool) for m in input) < int(rest[0]):
            output = ModelOutput.for_tool_call(self.model_name, "work", {"note": "x" * 50})
        elif tools:
            output = ModelOutput.for_tool_call(self.model_name, "submit", {"answer": "done"})
        else:
            output = ModelOutput.from_content(self.model_name, "done")
        output.usage = ModelUsage(
            input_tokens=7, output_tokens=3, total_tokens=10, input_tokens_cache_read=2, reasoning_tokens=1
        )
        return output

    def should_retry(self, ex: BaseException) -> bool:
        return isinstance(ex, Refused) and ex.status_code != 400

    def retry_wait(self) -> Any:
        return tenacity.wait_fixed(0.01)


@tool
def work() -> Tool:
    async def execute(note: str) -> str:
        """Work.

        Args:
            note: Anything.
        """
        return "done"

    return execute


@solver
def noting() -> Solver:
    """Notes which attempt it is, and which one the watcher was asked for."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        now.seen.append([list(asked.get() or ()), [str(state.sample_id), state.epoch]])
        return state

    return solve


@solver
def acting() -> Solver:
    """Does what the sample says: its text is `ACTION [ARGUMENT]`."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        action, _, argument = state.input_text.partition(" ")
        now.seen.append(["solving", str(state.sample_id), state.epoch])
        if action == "raise":
            raise ValueError(argument)
        if action == "sleep":
            await asyncio.sleep(float(argument))
        if action == "exec":
            await sandbox().exec(["true"])
            await sandbox().write_file("by-agent.txt", "agent")
        if action == "call":
            await get_model().generate("hello")
        return state

    return solve


@scorer(metrics=[accuracy()])
def checking() -> Scorer:
    """Passes, with checks in its metadata; raises where the target says so."""

    async def score(state: TaskState, target: Target) -> Score:
        now.seen.append(["scoring", str(state.sample_id), state.epoch])
        if target.text == "raise":
            raise RuntimeError("the scorer is broken")
        if target.text == "sandbox":
            await sandbox().write_file("by-scorer.txt", "scorer")
            await sandbox().exec(["true"])
        if target.text == "slow":
            await asyncio.sleep(0.3)
        checks = [
            {"name": "compiles", "passed": True},
            {"name": "tests", "passed": False, "notes": "1 of 3"},
            {"nameless": 1},
            "no check",
        ]
        return Score(value="C", answer="a" * 5000, explanation="e", metadata={"checks": checks})

    return score


@scorer(metrics=[accuracy()])
def second() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value={"x": 1, "y": 0.5})

    return score


def samples(*ids: Any, text: str = "note") -> MemoryDataset:
    return MemoryDataset([Sample(id=i, input=text, target="t") for i in ids])


def run(dataset: Any, solvers: Any, scorers: Any = None, *, sandbox: Any = None, **options: Any) -> EvalLog:
    whole = Task(dataset=dataset, solver=solvers, scorer=scorers, sandbox=sandbox, name=now.name)
    options = {"fail_on_error": False, "model": "watched/m", **options}
    [log] = eval(whole, display="none", log_level="error", log_dir=str(Path.cwd() / "logs"), **options)
    return log


@metric
def breaking() -> Metric:
    """Fails when it is computed at the end of the first try of its task."""

    def compute(scores: Any) -> float:
        if len(now.ended_facts) == 6:
            now.metric_calls += 1
            if now.metric_calls == 1:
                raise RuntimeError("the metric broke")
        return 1.0

    return compute


@scorer(metrics=[breaking()])
def fragile() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value="C")

    return score


class Back(datetime.datetime):
    """A clock that was set back by an hour."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        return datetime.datetime.now(tz) - datetime.timedelta(hours=1)
