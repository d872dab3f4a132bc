"""Small real evaluations under a watcher, in a process of their own: `python watched.py DIR`.

Writes `DIR/<name>.json` for each of `EVALS`: what the watcher was told, what the solvers saw, what the log says.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import msgspec
import tenacity
from inspect_ai import Epochs, Task, eval, eval_set, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import ChatMessageTool, ModelAPI, ModelOutput, ModelUsage, get_model, modelapi
from inspect_ai.scorer import Metric, Score, Scorer, Target, accuracy, metric, scorer
from inspect_ai.solver import Generate, Solver, TaskState, basic_agent, generate, solver
from inspect_ai.tool import Tool, tool
from inspect_ai.util import SandboxEnvironment, sandbox

from hawk.bridge.attempts import check_scheduler, interrupt, watch
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


now = Watching()


class Relay:
    """The one watcher of the process: passes on to the evaluation's own."""

    def __getattr__(self, name: str) -> Any:
        return getattr(now, name)


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
    [log] = eval(whole, display="none", log_level="error", log_dir=str(WHERE / "logs"), **options)
    return log


# --- evaluations, by name


def order_ints() -> EvalLog:
    return run(samples(10, 9, 8, 7), noting(), epochs=2)


def order_limit() -> EvalLog:
    return run(samples("d", "c", "b", "a"), noting(), limit=3)


def order_range() -> EvalLog:
    return run(samples("d", "c", "b", "a"), noting(), limit=(1, 3))


def order_shuffle() -> EvalLog:
    return run(samples(*range(20)), noting(), sample_shuffle=7, epochs=2)


def order_shuffle_limit() -> EvalLog:
    return run(samples(*range(20)), noting(), sample_shuffle=True, limit=5)


def order_sample_ids() -> EvalLog:
    return run(samples("d", "c", "b", "a"), noting(), sample_id=["a", "d", "c"])


def order_sample_id_pattern() -> EvalLog:
    return run(samples("x1", "y1", "x2", "y2"), noting(), sample_id="y*")


def order_no_ids() -> EvalLog:
    return run(MemoryDataset([Sample(input="note") for _ in range(3)]), noting(), epochs=2)


def one_by_one_backwards() -> EvalLog:
    """Starts in the watcher's order, though Inspect would start them in its own."""
    order = [("c", 2), ("a", 1), ("b", 1), ("c", 1), ("b", 2), ("a", 2)]
    turns = {key: asyncio.Event() for key in order}

    async def admit(sample_id: str, epoch: int) -> bool:
        key = (sample_id, epoch)
        waiting.add(key)
        if waiting == set(order):
            turns[order[0]].set()
        await turns[key].wait()
        return True

    @solver
    def passing_on() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            key = (str(state.sample_id), state.epoch)
            now.seen.append(list(key))
            following = order.index(key) + 1
            if following < len(order):
                turns[order[following]].set()
            return state

        return solve

    waiting: set[tuple[str, int]] = set()
    now.admit = admit
    return run(samples("a", "b", "c"), passing_on(), epochs=2)


async def _only_first(sample_id: str, epoch: int) -> bool:
    return epoch == 1


async def _nobody(sample_id: str, epoch: int) -> bool:
    return False


def some_not_admitted() -> EvalLog:
    now.admit = _only_first
    return run(samples("a", "b"), acting(), checking(), epochs=Epochs(3, "at_least_1"))


def none_admitted() -> EvalLog:
    now.admit = _nobody
    return run(samples("a", "b"), acting(), checking(), epochs=2)


@solver
def interrupting(when: str) -> Solver:
    """Attempt 2 waits in its solver; attempt 1 has it interrupted, once it is where it should be."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.epoch == 2:
            now.seen.append("attempt 2 began")
            if when == "model":
                return await generate(state)
            if when == "agent":
                await asyncio.sleep(60)
            return state
        identifier = next(iter(now.identifiers))
        now.seen.append(["unknown", interrupt(identifier, "a", 7), interrupt("another", "a", 2)])
        wanted = {"model": "model called", "agent": "attempt 2 began", "scoring": ["scoring", "a", 2]}[when]
        while wanted not in now.seen:
            await asyncio.sleep(0.01)
        now.seen.append(["interrupted", interrupt(identifier, "a", 2)])
        return state

    return solve


def interrupted_agent() -> EvalLog:
    return run(samples("a"), interrupting("agent"), checking(), epochs=2, sandbox="local", retry_on_error=2)


def interrupted_model_call() -> EvalLog:
    return run(samples("a", text="wait"), interrupting("model"), checking(), epochs=2)


def interrupted_before_it_starts() -> EvalLog:
    """While its sandbox is made: it ends as it starts, before its agent does anything."""
    dataset = MemoryDataset([Sample(id="a", input="note", setup="sleep 0.5")])

    @solver
    def first() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            now.seen.append(["solving", str(state.sample_id), state.epoch])
            await sandbox().exec(["touch", "worked"])
            now.seen.append(["worked", str(state.sample_id), state.epoch])
            return state

        return solve

    async def interrupting_later(sample_id: str, epoch: int) -> bool:
        async def soon() -> None:
            while not interrupt(next(iter(now.identifiers)), "a", 2):
                await asyncio.sleep(0.01)
            now.seen.append("interrupted")

        if epoch == 2:
            now.background = asyncio.create_task(soon())
        return True

    now.admit = interrupting_later
    return run(dataset, first(), checking(), epochs=2, sandbox="local")


def interrupted_between_tries() -> EvalLog:
    """It errs and is tried again: the interrupt finds the try that runs."""

    @solver
    def erring() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            now.seen.append(["solving", str(state.sample_id), state.epoch])
            if len(now.seen) < 3:
                raise ValueError("again")
            now.seen.append(["interrupted", interrupt(next(iter(now.identifiers)), "a", 1)])
            await asyncio.sleep(60)
            return state

        return solve

    return run(samples("a"), erring(), checking(), retry_on_error=5)


def interrupted_while_scored() -> EvalLog:
    dataset = MemoryDataset([Sample(id="a", input="note", target="slow")])
    return run(dataset, interrupting("scoring"), checking(), epochs=2)


def kept_before_scorers() -> EvalLog:
    async def keep(sandboxes: dict[str, SandboxEnvironment]) -> None:
        found = await sandboxes["default"].exec(["ls"])
        now.seen.append(["kept", sorted(found.stdout.split())])

    now.on_scoring = keep
    dataset = MemoryDataset([Sample(id="a", input="exec", target="sandbox", files={"given.txt": "g"})])
    return run(dataset, acting(), checking(), sandbox="local")


def errors() -> EvalLog:
    dataset = MemoryDataset(
        [
            Sample(id="setup", input="exec", setup="exit 3"),
            Sample(id="solver", input='raise it\'s "broken" (badly)'),
            Sample(id="scorer", input="note", target="raise"),
        ]
    )
    return run(dataset, acting(), [checking(), second()], sandbox="local")


def errors_scored() -> EvalLog:
    dataset = MemoryDataset(
        [
            Sample(id="solver", input="raise oh no"),
            Sample(id="both", input="raise first", target="raise"),
        ]
    )
    return run(dataset, acting(), checking(), score_on_error=True)


def errors_retried() -> EvalLog:
    return run(MemoryDataset([Sample(id="a", input="raise again")]), acting(), checking(), retry_on_error=2)


def limits() -> EvalLog:
    dataset = MemoryDataset([Sample(id="time", input="sleep 60")])
    return run(dataset, acting(), checking(), time_limit=1)


def message_limit() -> EvalLog:
    agent = basic_agent(tools=[work()], message_limit=6)
    return run(samples("a", text="tools 50"), agent, checking(), message_limit=6)


def usage() -> EvalLog:
    return run(samples("a", text="tools 2"), basic_agent(tools=[work()]), [checking(), second()])


def provider_retries() -> EvalLog:
    Watched.failures = 0
    return run(samples("a", text="refused 429 2"), generate(), checking())


def provider_refuses() -> EvalLog:
    return run(samples("a", text="broken"), generate(), checking())


def sandbox_only() -> EvalLog:
    dataset = MemoryDataset(
        [
            Sample(id="works", input="exec", target="sandbox", files={"given.txt": "g"}),
            Sample(id="idle", input="note", target="sandbox", files={"given.txt": "g"}),
        ]
    )
    return run(dataset, acting(), checking(), sandbox="local")


def bounded() -> EvalLog:
    """More events than are kept in memory."""
    os.environ["INSPECT_TRANSCRIPT_BOUNDED"] = "1"
    agent = basic_agent(tools=[work()], message_limit=500)
    dataset = MemoryDataset(
        [
            Sample(id="long", input="tools 60", setup="true", target="raise"),
            Sample(id="pass", input="tools 60"),
        ]
    )
    try:
        return run(dataset, agent, checking(), sandbox="local")
    finally:
        del os.environ["INSPECT_TRANSCRIPT_BOUNDED"]


metric_calls = 0


@metric
def breaking() -> Metric:
    """Fails when it is computed at the end of the first try of its task."""

    def compute(scores: Any) -> float:
        global metric_calls
        if len(now.ended_facts) == 6:
            metric_calls += 1
            if metric_calls == 1:
                raise RuntimeError("the metric broke")
        return 1.0

    return compute


@scorer(metrics=[breaking()])
def fragile() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value="C")

    return score


@task
def tried_again() -> Task:
    return Task(dataset=samples("a", "b", "c"), solver=acting(), scorer=fragile())


def task_retried() -> EvalLog:
    """A task that fails as a whole and is run again in the same process: what had ended is taken from its log."""
    done, logs = eval_set(
        tried_again(),
        epochs=2,
        model=get_model("watched/m"),
        log_dir=str(WHERE / "again"),
        retry_attempts=2,
        fail_on_error=False,
        display="none",
        log_level="error",
    )
    now.seen.append(["metric", metric_calls, done])
    return read_eval_log(logs[0].location)


EVALS: dict[str, Callable[[], EvalLog]] = {
    function.__name__: function
    for function in (
        order_ints,
        order_limit,
        order_range,
        order_shuffle,
        order_shuffle_limit,
        order_sample_ids,
        order_sample_id_pattern,
        order_no_ids,
        one_by_one_backwards,
        some_not_admitted,
        none_admitted,
        interrupted_agent,
        interrupted_model_call,
        interrupted_before_it_starts,
        interrupted_between_tries,
        interrupted_while_scored,
        kept_before_scorers,
        errors,
        errors_scored,
        errors_retried,
        limits,
        message_limit,
        usage,
        provider_retries,
        provider_refuses,
        sandbox_only,
        bounded,
        task_retried,
    )
}


def said(log: EvalLog) -> dict[str, Any]:
    return {
        "status": log.status,
        "sample_ids": [str(i) for i in log.eval.dataset.sample_ids or ()],
        "samples": [
            {
                "id": str(s.id),
                "epoch": s.epoch,
                "uuid": s.uuid,
                "error": s.error.message if s.error else None,
                "scores": {name: score.value for name, score in (s.scores or {}).items()},
                "events": len(s.events),
                "total_time": s.total_time,
            }
            for s in log.samples or ()
        ],
    }


if __name__ == "__main__":
    WHERE = Path(sys.argv[1])
    check_scheduler()
    watch(Relay())  # type: ignore[arg-type]
    for name, evaluate in EVALS.items():
        now = Watching(name)
        try:
            document: dict[str, Any] = {"log": said(evaluate())}
        except Exception:
            document = {"failed": traceback.format_exc()}
        document |= {"calls": now.calls, "seen": now.seen, "ended": now.ended_facts}
        (WHERE / f"{name}.json").write_bytes(msgspec.json.encode(document))
