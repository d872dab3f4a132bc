"""What kind of thing an await chain ends in: a timer, the network, an event that somebody has to set. Pure.

Read off the functions in the chain: what a coroutine awaits at last is nearly always a bare future, and only the library
function that made it tells what will complete it. Names of functions of Python, anyio and Inspect: one that has changed
costs a kind, no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from hawk.core.recorder.stacks import RUNNING, Frame


class WaitKind(StrEnum):
    """What has to happen before a chain goes on."""

    TIMER = "timer"  # time passes: a sleep, or a wait with a time-out
    NETWORK = "network"  # a socket
    PROCESS = "process"  # a process of this machine ends or writes
    THREAD = "thread"  # code in a thread
    TASKS = "tasks"  # tasks that it started
    LIMITER = "limiter"  # a place among those that may run at once
    EVENT = "event"  # somebody sets it
    LOCK = "lock"  # somebody lets go of it
    CONDITION = "condition"  # somebody notifies it
    QUEUE = "queue"  # somebody puts something in, or takes something out
    FUTURE = "future"  # somebody completes it
    RUNNING = "running"  # nothing: its code runs

    @property
    def by_others(self) -> bool:
        """Whether only other code of the same process can end it: neither time nor the world outside does."""
        return self in _BY_OTHERS

    @property
    def words(self) -> str:
        return _WORDS[self]


_BY_OTHERS = frozenset(
    {WaitKind.EVENT, WaitKind.LOCK, WaitKind.CONDITION, WaitKind.QUEUE, WaitKind.FUTURE, WaitKind.LIMITER}
)
_WORDS = {
    WaitKind.TIMER: "a timer",
    WaitKind.NETWORK: "the network",
    WaitKind.PROCESS: "a process",
    WaitKind.THREAD: "a thread",
    WaitKind.TASKS: "tasks that it started",
    WaitKind.LIMITER: "a place among those that may run at once",
    WaitKind.EVENT: "an event that nobody has set",
    WaitKind.LOCK: "a lock that somebody holds",
    WaitKind.CONDITION: "a condition that nobody has notified",
    WaitKind.QUEUE: "a queue",
    WaitKind.FUTURE: "a future that nobody has completed",
    WaitKind.RUNNING: "nothing: its code runs",
}

_BY_FUNCTION: tuple[tuple[str, str, WaitKind], ...] = (
    ("inspect_ai/util/_concurrency.py", "concurrency", WaitKind.LIMITER),
    ("asyncio/tasks.py", "sleep", WaitKind.TIMER),
    ("asyncio/tasks.py", "wait_for", WaitKind.TIMER),
    ("asyncio/tasks.py", "__sleep0", WaitKind.RUNNING),
    ("asyncio/threads.py", "to_thread", WaitKind.THREAD),
    ("anyio/to_thread.py", "run_sync", WaitKind.THREAD),
    ("anyio/from_thread.py", "", WaitKind.THREAD),
    ("asyncio/base_events.py", "run_in_executor", WaitKind.THREAD),
    ("asyncio/base_events.py", "getaddrinfo", WaitKind.NETWORK),
    ("asyncio/subprocess.py", "", WaitKind.PROCESS),
    ("asyncio/base_subprocess.py", "", WaitKind.PROCESS),
    ("hawk/sandbox/box.py", "_await", WaitKind.PROCESS),
    ("anyio/_backends/_asyncio.py", "StreamReaderWrapper.receive", WaitKind.PROCESS),
    ("anyio/_backends/_asyncio.py", "Process.wait", WaitKind.PROCESS),
    ("anyio/_backends/_asyncio.py", "TaskGroup.__aexit__", WaitKind.TASKS),
    ("anyio/_backends/_asyncio.py", "CapacityLimiter.acquire_on_behalf_of", WaitKind.LOCK),
    ("anyio/_backends/_asyncio.py", "Lock.acquire", WaitKind.LOCK),
    ("anyio/_backends/_asyncio.py", "Semaphore.acquire", WaitKind.LOCK),
    ("anyio/_backends/_asyncio.py", "Event.wait", WaitKind.EVENT),
    ("anyio/_backends/_asyncio.py", "", WaitKind.NETWORK),
    ("anyio/_core/_synchronization.py", "Condition.wait", WaitKind.CONDITION),
    ("anyio/streams/memory.py", "", WaitKind.QUEUE),
    ("asyncio/taskgroups.py", "", WaitKind.TASKS),
    ("asyncio/tasks.py", "wait", WaitKind.TASKS),
    ("asyncio/tasks.py", "_wait", WaitKind.TASKS),
    ("asyncio/streams.py", "", WaitKind.NETWORK),
    ("asyncio/selector_events.py", "", WaitKind.NETWORK),
    ("asyncio/sslproto.py", "", WaitKind.NETWORK),
    ("asyncio/queues.py", "", WaitKind.QUEUE),
    ("asyncio/locks.py", "Condition.wait", WaitKind.CONDITION),
    ("asyncio/locks.py", "Condition.wait_for", WaitKind.CONDITION),
    ("asyncio/locks.py", "Event.wait", WaitKind.EVENT),
    ("asyncio/locks.py", "Barrier.wait", WaitKind.CONDITION),
    ("asyncio/locks.py", "", WaitKind.LOCK),
)
"""(end of the file's path, function or part of a qualified name, kind). An empty function: any of the file."""

_NETWORKED = (
    *(
        "/httpx/",
        "/httpcore/",
        "/aiohttp/",
        "/websockets/",
        "/grpc/",
        "/asyncssh/",
        "/aiobotocore/",
        "/redis/",
    ),
    *("/asyncpg/", "/psycopg/", "/aiosqlite/", "/motor/", "/nats/", "/aiodocker/", "/kubernetes_asyncio/"),
    *("/playwright/", "/mcp/client/", "/mcp/shared/"),
)
"""Packages that talk to something outside: what they await is an answer, however they await it."""

_OUTERMOST_FIRST = (WaitKind.LIMITER, WaitKind.TIMER, WaitKind.THREAD, WaitKind.PROCESS, WaitKind.NETWORK)
"""Of several kinds among a chain's innermost library frames, what explains the others."""


def wait_kind(frames: Sequence[Frame], awaits: str = "") -> WaitKind:
    """What a chain waits for.

    The library frames below the innermost frame of somebody's own code are looked at: a socket's read, say, ends in
    an event, which is the library's own affair.

    Args:
        awaits: What the recorder says of the last frame: `RUNNING`, a task, a number of tasks.
    """
    if awaits == RUNNING:
        return WaitKind.RUNNING
    if awaits:
        return WaitKind.TASKS
    below: list[Frame] = []
    for frame in reversed(frames):
        if not frame.library:
            break
        below.append(frame)
    found = [kind for frame in below if (kind := _of(frame)) is not None]
    for kind in _OUTERMOST_FIRST:
        if kind in found:
            return kind
    if any(mark in frame.file for frame in below for mark in _NETWORKED):
        return WaitKind.NETWORK
    # What is composed of simpler things says more than they do: a queue or a condition than its event.
    return found[-1] if found else WaitKind.FUTURE


def _of(frame: Frame) -> WaitKind | None:
    name = frame.function.rpartition(".")[2]
    for file, function, kind in _BY_FUNCTION:
        if frame.file.endswith(file) and (not function or function in (name, frame.function)):
            return kind
    return None
