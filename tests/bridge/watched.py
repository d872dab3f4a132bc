"""Small real evaluations under a watcher, in a process of their own: `python -m tests.bridge.watched DIR`.

Writes `DIR/<name>.json` for each of `EVALS`: what the watcher was told, what the solvers saw, what the log says.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from inspect_ai import Epochs, Task, eval_set, task
from inspect_ai._eval.task import run as inspects
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import get_model
from inspect_ai.solver import Generate, Solver, TaskState, basic_agent, generate, solver
from inspect_ai.util import SandboxEnvironment, sandbox

from hawk.bridge.attempts import check_scheduler, interrupt, watch
from tests.bridge.watching import (
    Back,
    Watched,
    acting,
    checking,
    fragile,
    noting,
    now,
    run,
    samples,
    second,
    work,
)

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


def clock_set_back() -> EvalLog:
    """While the agent works."""

    @solver
    def setting_back() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            inspects.datetime = Back  # type: ignore[misc]
            await asyncio.sleep(0.05)
            return state

        return solve

    try:
        return run(samples("a"), setting_back(), checking())
    finally:
        inspects.datetime = datetime.datetime  # type: ignore[misc]


@task
def tried_again() -> Task:
    return Task(dataset=samples("a", "b", "c"), solver=acting(), scorer=fragile())


def task_retried() -> EvalLog:
    """A task that fails as a whole and is run again in the same process: what had ended is taken from its log."""
    done, logs = eval_set(
        tried_again(),
        epochs=2,
        model=get_model("watched/m"),
        log_dir=str(Path.cwd() / "again"),
        retry_attempts=2,
        fail_on_error=False,
        display="none",
        log_level="error",
    )
    now.seen.append(["metric", now.metric_calls, done])
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
        clock_set_back,
        task_retried,
    )
}


def said(log: EvalLog) -> dict[str, Any]:
    return {
        "status": log.status,
        "location": log.location,
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
    os.chdir(sys.argv[1])
    check_scheduler()
    watch(now)  # type: ignore[arg-type]
    for name, evaluate in EVALS.items():
        own = now.begin(name)
        try:
            document: dict[str, Any] = {"log": said(evaluate())}
        except Exception:
            document = {"failed": traceback.format_exc()}
        document |= {"calls": own.calls, "seen": own.seen, "ended": own.ended_facts}
        Path(f"{name}.json").write_bytes(msgspec.json.encode(document))
