"""The await chain of every asyncio task of a loop, walked from any thread.

Nothing is asked of the loop, which may be blocked: coroutines hold what they await. It changes while it is read,
so a chain may be torn for one moment; it is evidence, not a lock. Costs a few microseconds a task.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from contextvars import Context
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any

from hawk.core.recorder.stacks import RUNNING, Chain, Frame, Who, joins

DEEPEST = 200
"""Frames of one chain: what is deeper runs in circles."""

WhoOf = Callable[[Context], Who | None]
"""Whose a task is, by its context."""

_Key = tuple[tuple[CodeType, int], ...]

_STEPS = (CoroutineType, GeneratorType, AsyncGeneratorType)


def chains(loop: asyncio.AbstractEventLoop, who_of: WhoOf) -> tuple[list[Chain], int]:
    """All chains of a loop's tasks, equal ones folded, most tasks first; and how many tasks there are."""
    tasks = _tasks(loop)
    running = asyncio.current_task(loop)
    folded: dict[tuple[_Key, str], tuple[int, dict[Who, None]]] = {}
    for task in tasks:
        key = tuple(_walk(task.get_coro()))
        if not key:
            continue
        at = key, RUNNING if task is running else _awaited(getattr(task, "_fut_waiter", None))
        count, attempts = folded.get(at, (0, {}))
        context = _context(task)
        who = who_of(context) if context is not None else None
        if who is not None:
            attempts[who] = None
        folded[at] = count + 1, attempts
    lines: dict[tuple[CodeType, int], Frame] = {}
    found = [
        _chain(key, awaits, count, attempts, lines) for (key, awaits), (count, attempts) in folded.items()
    ]
    return sorted(found, key=lambda chain: -chain.count), len(tasks)


def current(loop: asyncio.AbstractEventLoop, who_of: WhoOf) -> Who | None:
    """Whose code the loop runs at this moment."""
    task = asyncio.current_task(loop)
    context = _context(task) if task is not None else None
    return who_of(context) if context is not None else None


def stack(frame: FrameType | None) -> tuple[Frame, ...]:
    """A thread's frames, outermost first."""
    found: list[Frame] = []
    while frame is not None and len(found) < DEEPEST:
        code = frame.f_code
        found.append(Frame(code.co_filename, frame.f_lineno or 0, code.co_qualname))
        frame = frame.f_back
    return tuple(reversed(found))


def _tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    try:
        return [task for task in asyncio.all_tasks(loop) if not task.done()]
    except RuntimeError:  # its set would not hold still
        return []


def _walk(awaitable: Any) -> list[tuple[CodeType, int]]:
    """(code, offset of the instruction) of each frame, outermost first: lines are looked up for what is left of it.

    Coroutines are nearly all there is, in some ten thousand frames: they are taken first, and by type.
    """
    found: list[tuple[CodeType, int]] = []
    add = found.append
    while awaitable is not None and len(found) < DEEPEST:
        if type(awaitable) is CoroutineType:
            frame, awaitable = awaitable.cr_frame, awaitable.cr_await
        elif type(awaitable) is GeneratorType:
            frame, awaitable = awaitable.gi_frame, awaitable.gi_yieldfrom
        elif type(awaitable) is AsyncGeneratorType:
            frame, awaitable = awaitable.ag_frame, awaitable.ag_await
        else:
            awaitable = _inside(awaitable)
            continue
        if frame is None:  # it ended meanwhile
            break
        add((frame.f_code, frame.f_lasti))
    return found


def _inside(wrapper: Any) -> Any:
    """The coroutine or generator in a wrapper that does not name it: an async generator's step, an `__await__`."""
    if wrapper is None or isinstance(wrapper, asyncio.Future):
        return None
    for held in gc.get_referents(wrapper):
        if isinstance(held, _STEPS):
            return held
    return None


def _context(task: asyncio.Task[Any]) -> Context | None:
    if sys.version_info >= (3, 12):
        return task.get_context()
    return next((held for held in gc.get_referents(task) if type(held) is Context), None)


def _awaited(future: Any) -> str:
    if isinstance(future, asyncio.Task):
        return f"task {future.get_name()}"[:80]
    children = getattr(future, "_children", None)
    return f"{len(children)} tasks" if isinstance(children, list) else ""


def _chain(
    key: _Key,
    awaits: str,
    count: int,
    attempts: dict[Who, None],
    lines: dict[tuple[CodeType, int], Frame],
) -> Chain:
    for code, offset in key:
        if (code, offset) not in lines:
            lines[code, offset] = Frame(code.co_filename, _line(code, offset), code.co_qualname)
    frames = tuple(lines[at] for at in key)
    joined = joins(frames) or bool(awaits and awaits != RUNNING)
    return Chain(frames, count, list(attempts), joins=joined, awaits=awaits)


def _line(code: CodeType, offset: int) -> int:
    """The line of an instruction; that of the function where the table has none."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno
