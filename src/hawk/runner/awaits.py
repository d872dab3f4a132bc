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

_Key = tuple[int, ...]
"""Of each frame the `id` of its code and the offset of its instruction, in turn: code objects are slow to hash."""

_STEPS = (CoroutineType, GeneratorType, AsyncGeneratorType)


class _Folded:
    """Tasks with equal chains: how many, and whose, each once."""

    __slots__ = ("attempts", "count")

    def __init__(self) -> None:
        self.count = 0
        self.attempts: dict[Who, None] = {}


def chains(loop: asyncio.AbstractEventLoop, who_of: WhoOf) -> tuple[list[Chain], int]:
    """All chains of a loop's tasks, equal ones folded, most tasks first; and how many tasks there are."""
    tasks = _tasks(loop)
    running = asyncio.current_task(loop)
    codes: dict[int, CodeType] = {}
    folded: dict[tuple[_Key, str], _Folded] = {}
    for task in tasks:
        key = tuple(_walk(task.get_coro(), codes))
        if not key:
            continue
        at = key, RUNNING if task is running else _awaited(getattr(task, "_fut_waiter", None))
        same = folded.get(at)
        if same is None:
            same = folded[at] = _Folded()
        same.count += 1
        context = _context(task)
        who = who_of(context) if context is not None else None
        if who is not None:
            same.attempts[who] = None
    lines: dict[tuple[int, int], Frame] = {}
    found = [_chain(key, awaits, same, codes, lines) for (key, awaits), same in folded.items()]
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


def _walk(awaitable: Any, codes: dict[int, CodeType]) -> list[int]:
    """The key of a chain, outermost frame first: lines are looked up for what is left of it.

    Coroutines are nearly all there is, in some ten thousand frames: they are taken first, and by type.

    Args:
        codes: Takes the code of each frame, by its `id`.
    """
    found: list[int] = []
    add = found.append
    while awaitable is not None and len(found) < 2 * DEEPEST:
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
        code = frame.f_code
        name = id(code)
        codes[name] = code
        add(name)
        add(frame.f_lasti)
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
    for held in gc.get_referents(task):
        if type(held) is Context:
            return held
    return None


def _awaited(future: Any) -> str:
    if isinstance(future, asyncio.Task):
        return f"task {future.get_name()}"[:80]
    children = getattr(future, "_children", None)
    return f"{len(children)} tasks" if isinstance(children, list) else ""


def _chain(
    key: _Key, awaits: str, same: _Folded, codes: dict[int, CodeType], lines: dict[tuple[int, int], Frame]
) -> Chain:
    frames = []
    for at in zip(key[::2], key[1::2], strict=True):
        if at not in lines:
            code = codes[at[0]]
            lines[at] = Frame(code.co_filename, _line(code, at[1]), code.co_qualname)
        frames.append(lines[at])
    joined = joins(frames) or bool(awaits and awaits != RUNNING)
    return Chain(tuple(frames), same.count, list(same.attempts), joins=joined, awaits=awaits)


def _line(code: CodeType, offset: int) -> int:
    """The line of an instruction; that of the function where the table has none."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno
