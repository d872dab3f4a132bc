"""What a process was doing at one moment: its threads, and what each of its tasks awaits.

A chain is the way from a task's coroutine to the innermost await, outermost frame first: a thread's stack shows of
a hundred waiting tasks nothing but the event loop's own wait. Equal chains are one, with a count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

LIBRARY_MARKS = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ")
"""Parts of the path of code that the author of an evaluation did not write."""

_OURS = f"{Path(__file__).parents[2]}/"
"""Where Hawk's own code lies, which may be installed from a checkout."""

_JOINS = frozenset({
    ("anyio/_backends/_asyncio.py", "__aexit__"),
    ("asyncio/taskgroups.py", "__aexit__"),
    ("asyncio/tasks.py", "wait"),
    ("asyncio/tasks.py", "_wait"),
})  # fmt: skip
"""Where a task waits for tasks that it has started: those say what is really waited for."""


RUNNING = "nothing: its code runs"
"""What a task awaits that the loop runs at this moment; its chain ends where the thread's stack goes on."""


class Frame(msgspec.Struct, frozen=True):
    """One function that is being executed, at a line of a file."""

    file: str
    line: int
    function: str

    @property
    def place(self) -> str:
        """`file:line`, the file from its package on."""
        return f"{short_path(self.file)}:{self.line}"

    @property
    def library(self) -> bool:
        """Whether it belongs to Python, to Hawk or to another installed package."""
        file = self.file
        return not file or file.startswith(("<", _OURS)) or any(mark in file for mark in LIBRARY_MARKS)


class Who(msgspec.Struct, frozen=True, array_like=True):
    """An attempt: task, sample, number of the attempt, and the uuid of the sample's log entry."""

    task: str
    sample: str
    attempt: int
    uuid: str

    @property
    def name(self) -> str:
        return f"{self.task}/{self.sample}/{self.attempt}"


class Chain(msgspec.Struct):
    """Tasks that all wait in the same place.

    Attributes:
        frames: Outermost first; the last one is where they wait.
        count: How many tasks.
        attempts: Whose they are, each once; tasks of no attempt are only counted.
        joins: They wait for tasks that they started.
        helper: They watch an attempt, and do nothing of its work.
        awaits: What the last frame waits for, where that can be told.
        label: The same in words that follow "waits for": `a model's answer`; empty where it has no name.
    """

    frames: tuple[Frame, ...]
    count: int
    attempts: list[Who] = []
    joins: bool = False
    helper: bool = False
    awaits: str = ""
    label: str = ""

    @property
    def aside(self) -> bool:
        """Whether it says nothing of what its attempts wait for."""
        return self.joins or self.helper


class Thread(msgspec.Struct):
    """A thread's stack, outermost frame first.

    Attributes:
        id: The kernel's id of it.
        loop: It runs the event loop.
        idle: It waits for something; None where that was not looked at.
        gil: It holds the interpreter's lock; None likewise.
        attempt: Whose code it runs just now, for the thread of the event loop.
    """

    name: str
    id: int
    frames: tuple[Frame, ...]
    loop: bool = False
    idle: bool | None = None
    gil: bool | None = None
    attempt: Who | None = None


class StackRecord(msgspec.Struct):
    """All of a worker's stacks.

    Attributes:
        at: When, ISO 8601.
        why: Why it was written: `asked`, `last` (every few seconds, for what can't be asked any more), a stall, `fatal`.
        threads_by: Who saw the threads: `worker` itself, `py-spy` or `faulthandler`.
        native: Threads show native frames too.
        loop_lag: Seconds for which the event loop had not answered.
        tasks: How many tasks there were.
        chains_at: When the chains were taken, if not with the threads.
        missing: What could not be taken, and why.
        cost_ms: Milliseconds of the worker's time that this took.
        live: Its process was there when it was asked.
        ended: How the process ended, where it has.
    """

    at: str
    worker: int
    pid: int
    why: str = "asked"
    threads: list[Thread] = []
    threads_by: str = "worker"
    native: bool = False
    loop_lag: float = 0.0
    tasks: int = 0
    chains: list[Chain] = []
    chains_at: str | None = None
    missing: dict[str, str] = {}
    cost_ms: float = 0.0
    live: bool = True
    ended: str | None = None

    @property
    def blocked(self) -> Thread | None:
        """The event loop's thread, when it was executing something instead of waiting for events."""
        if self.loop_lag < LAGGING and not any(thread.gil for thread in self.threads if thread.loop):
            return None
        return next((thread for thread in self.threads if thread.loop), None)


LAGGING = 2.0
"""Seconds without an answer of the event loop from which on its thread's stack is what holds it."""


def joins(frames: Sequence[Frame]) -> bool:
    """Whether a chain ends in waiting for tasks that were started from it."""
    if not frames:
        return False
    last = frames[-1]
    function = last.function.rpartition(".")[2]
    return any(last.file.endswith(file) and function == name for file, name in _JOINS)


def own_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of somebody's own code: where an author would look first."""
    return next((frame for frame in reversed(frames) if not frame.library), None)


def attempts_of(record: StackRecord) -> list[Who]:
    """Every attempt that a record knows of, each once."""
    return list(dict.fromkeys(who for chain in record.chains for who in chain.attempts))


def waits(record: StackRecord) -> list[Chain]:
    """Where attempts wait, most attempts first: chains of their own work, not of what joins or watches it.

    An attempt that has no other chain is shown by that which joins, at last by that which watches.
    """
    found: list[Chain] = []
    shown: set[Who] = set()
    for kind in (lambda c: not c.aside, lambda c: c.joins, lambda c: c.helper):
        new = [c for c in record.chains if c.attempts and kind(c) and not shown.issuperset(c.attempts)]
        shown.update(who for chain in new for who in chain.attempts)
        found += new
    return sorted(found, key=lambda chain: -len(chain.attempts))


def only(record: StackRecord, wanted: str) -> StackRecord:
    """The record with the chains of one attempt, by uuid, sample id, `sample/attempt` or `task/sample/attempt`."""
    chains = []
    for chain in record.chains:
        its = [who for who in chain.attempts if matches(who, wanted)]
        if its:
            chains.append(msgspec.structs.replace(chain, attempts=its))
    return msgspec.structs.replace(record, chains=chains)


def matches(who: Who, wanted: str) -> bool:
    """Whether an attempt is the one that somebody named."""
    return wanted in (who.uuid, who.sample, f"{who.sample}/{who.attempt}", who.name)


def short_path(file: str) -> str:
    """A path from its package on: `asyncio/locks.py`, `inspect_ai/model/_model.py`; else its last two parts."""
    if file.startswith(_OURS):
        return f"hawk/{file.removeprefix(_OURS)}"
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in file:
            return file.rpartition(mark)[2]
    parts = file.split("/")
    for index, part in enumerate(parts):
        if part.startswith("python3.") and index and parts[index - 1] == "lib":
            return "/".join(parts[index + 1 :])
    return "/".join(parts[-2:])
