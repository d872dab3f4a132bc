"""What goes wrong in a worker, step by step: copied by the lab under other names, so that no rule can know them.

A sample's steps are lists, `["sleep", 3]`; each is a function below. A step that begins what a scenario is about touches
a file in the sample's gate, which is how the lab knows since when a fault is there.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.approval import Approval, ApprovalPolicy, Approver, approver, auto_approver
from inspect_ai.dataset import Sample
from inspect_ai.log._samples import awaiting_human
from inspect_ai.model import ChatMessage, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolCall, ToolCallView, ask_user, tool
from inspect_ai.util import concurrency, sandbox

Step = Callable[..., Awaitable[Any]]
LOCKS: dict[str, asyncio.Lock] = {}


class Going:
    """An attempt on its way through its steps."""

    def __init__(self, gate: str, state: TaskState, generate: Generate) -> None:
        self.gate, self.state, self.generate = Path(gate), state, generate

    def mark(self, name: str) -> None:
        """Tell the lab that something has begun."""
        (self.gate / f"{name}.{self.state.sample_id}.{self.state.epoch}").touch()

    # --- healthy steps

    async def ask(self, times: int = 1) -> None:
        """Ask the model, so many times; of its tools none."""
        for _ in range(times):
            self.state = await self.generate(self.state)

    async def agent(self) -> None:
        """Ask the model and do what it calls for, until it calls for nothing."""
        self.state.tools = [lab_shell(), lab_publish(), ask_user()]
        self.state = await self.generate(self.state, tool_calls="loop")

    async def again(self, times: int = 1000) -> None:
        """An agent that asks on while nothing is answered, as agents do that want a call of a tool."""
        for _ in range(times):
            self.state = await self.generate(self.state)
            if self.state.output.completion:
                return
            await asyncio.sleep(0.3)

    async def sleep(self, seconds: float) -> None:
        self.mark("sleep")
        await asyncio.sleep(seconds)

    async def thread(self, seconds: float) -> None:
        """A long call where it belongs: in a thread."""
        await asyncio.to_thread(time.sleep, seconds)

    async def run(self, command: str, timeout: int | None = None) -> None:  # noqa: ASYNC109  # the sandbox's
        """A command in the sandbox."""
        self.mark("run")
        await sandbox().exec(["sh", "-c", command], timeout=timeout)

    async def say(self, size: int, times: int = 1, pause: float = 0.2) -> None:
        """Print much."""
        for _ in range(times):
            print("y" * size)
            await asyncio.sleep(pause)

    async def turn(self, name: str, seconds: float) -> None:
        """Hold a lock for a while, one attempt after the other."""
        async with LOCKS.setdefault(name, asyncio.Lock()):
            for _ in range(int(seconds / 0.25)):
                await asyncio.sleep(0.25)

    # --- steps that hold the worker

    async def nap(self, seconds: float) -> None:
        self.mark("block")
        time.sleep(seconds)  # noqa: ASYNC251  # the fault itself  # line: nap

    async def match(self, length: int) -> None:
        self.mark("block")
        re.match(r"(a+)+$", "a" * length + "b")  # line: match

    async def wait_for_thread(self, seconds: float) -> None:
        self.mark("block")
        done = threading.Event()
        done.wait(seconds)  # line: wait_for_thread

    async def busy(self, seconds: float, share: float) -> None:
        """Keep a processor, though letting others run now and then."""
        self.mark("busy")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            until = time.monotonic() + share
            while time.monotonic() < until:
                pass
            await asyncio.sleep(0)

    async def fill(self, usage: str, limit: int, seconds: float) -> None:
        """Take memory until a file says that so many bytes are in use."""
        kept = []
        while int(Path(usage).read_text()) < limit:
            kept.append(b"x" * (1 << 20))
            await asyncio.sleep(0.002)
        self.mark("hoard")
        await asyncio.sleep(seconds)
        del kept

    async def hoard(self, first: int, more: int, seconds: float) -> None:
        """Take so many MiB, and then so many a second more."""
        kept = [b"x" * (1 << 20) for _ in range(first)]
        self.mark("hoard")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            kept += [b"x" * (1 << 20) for _ in range(more)]
            await asyncio.sleep(1)

    async def fault(self) -> None:
        self.mark("die")
        ctypes.string_at(0)  # line: fault

    async def leave(self, code: int) -> None:
        self.mark("die")
        os._exit(code)

    # --- steps that never end

    async def event(self) -> None:
        self.mark("never")
        await asyncio.Event().wait()  # line: event

    async def future(self) -> None:
        self.mark("never")
        await asyncio.get_running_loop().create_future()  # line: future

    async def queue(self) -> None:
        self.mark("never")
        await asyncio.Queue[int]().get()  # line: queue

    async def deadlock(self, name: str) -> None:
        lock = LOCKS.setdefault(name, asyncio.Lock())
        self.mark("never")
        async with lock, lock:  # line: deadlock
            pass

    async def limiter(self, name: str, places: int, seconds: float) -> None:
        """Take one of few places and keep it."""
        self.mark("limiter")
        async with concurrency(name, places):
            await asyncio.sleep(seconds)

    # --- steps that fail

    async def fail(self, message: str, after: float = 0.0) -> None:
        self.mark("fail")
        await asyncio.sleep(after)
        raise RuntimeError(message)  # line: fail

    async def fail_first(self, times: int, message: str) -> None:
        """Fail so many tries of this attempt, and then no more."""
        tries = self.gate / f"tries.{self.state.sample_id}.{self.state.epoch}"
        with tries.open("a") as f:
            f.write("x")
        if tries.stat().st_size <= times:
            raise RuntimeError(message)

    async def other(self, name: str) -> None:
        """Ask another model."""
        self.state.output = await get_model(name).generate(self.state.messages)


@solver
def in_steps(gate: str, steps: dict[str, list[list[Any]]]) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        going = Going(gate, state, generate)
        going.mark("begin")
        for name, *args in steps[str(state.sample_id)]:
            await getattr(going, name)(*args)
        if not going.state.output.choices:
            going.state.output = ModelOutput.from_content("none", "42")
            going.state.output.usage = ModelUsage()
        return going.state

    return solve


@scorer(metrics=[accuracy()])
def lab_scorer(gate: str, how: dict[str, list[Any]]) -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        Path(gate, f"score.{state.sample_id}.{state.epoch}").touch()
        name, *args = how.get(str(state.sample_id)) or how.get("*") or ["at once"]
        if name == "never":
            await asyncio.Event().wait()  # line: score never
        elif name == "slow":
            await asyncio.sleep(args[0])
        elif name == "fail":
            raise ValueError(args[0])  # line: score fail
        elif name == "ask":
            await get_model().generate("Grade it.")
        return Score(value=1)

    return score


# --- tools


@tool
def lab_shell() -> Tool:
    async def execute(command: str, timeout: int | None = None) -> str:  # noqa: ASYNC109  # the tool's
        """Run a command.

        Args:
            command: The command.
            timeout: Seconds that it may take.
        """
        result = await sandbox().exec(["bash", "-c", command], timeout=timeout)
        return (result.stderr + result.stdout).strip() or "(nothing)"

    return execute


@tool
def lab_publish() -> Tool:
    async def execute() -> str:
        """Publish the results, which a person has to approve."""
        return "Published."

    return execute


@approver
def slow_person(seconds: float | None) -> Approver:
    """Approve after a while, as a person does; or never, as an approver of somebody's own may."""

    async def approve(
        message: str, call: ToolCall, view: ToolCallView, history: list[ChatMessage]
    ) -> Approval:
        if seconds is None:
            await asyncio.get_running_loop().create_future()
        else:
            with awaiting_human("approval"):
                await asyncio.sleep(seconds)
        return Approval(decision="approve")

    return approve


# --- the task


def _load(gate: str, load: list[Any]) -> None:
    """What happens while the task is made."""
    name, *args = load
    Path(gate, "load").touch()
    if name == "sleep":
        time.sleep(args[0])  # line: load
    elif name == "import":
        importlib.import_module(args[0])
    elif name == "open":
        Path(args[0]).read_text()
    elif name == "raise":
        raise ValueError(args[0])


@task
def lab_task(
    gate: str,
    samples: list[dict[str, Any]],
    score: dict[str, list[Any]] | None = None,
    load: list[Any] | None = None,
    approve_after: float | None = None,
    asked: bool = False,
) -> Task:
    if load:
        _load(gate, load)
    steps = {str(sample["id"]): sample["steps"] for sample in samples}
    dataset = [
        Sample(id=s["id"], input=s["input"], target="42", setup=s.get("setup"), files=s.get("files"))
        for s in samples
    ]
    policies = [
        ApprovalPolicy(slow_person(approve_after), "lab_publish"),
        ApprovalPolicy(auto_approver(), "*"),
    ]
    return Task(
        dataset=dataset,
        solver=in_steps(gate, steps),
        scorer=lab_scorer(gate, score or {}),
        approval=policies if asked else None,
    )
