"""Running an author's code beside the event loop: in a thread and a loop of its own, until a deadline.

A scorer that computes or sleeps for long would otherwise hold all attempts of the worker. A thread can't be killed;
one that does not end is told to in every way there is, is waited for no longer, and never holds up the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_GRACE = 1.0  # seconds between asking a thread's loop to stop and raising in the thread itself

_abandoned: set[threading.Thread] = set()


async def in_own_thread(work: Callable[[], Coroutine[Any, Any, T]], seconds: float, *, name: str) -> T:
    """What `work` returns, run in a thread with an event loop of its own.

    It sees the caller's context variables.

    Args:
        work: Makes the coroutine; is called in the thread.
        seconds: How long it may take.
        name: Of the thread.

    Raises:
        TimeoutError: It took longer.
        RuntimeError: It raised what would end a process or a loop (SystemExit, …).
        Exception: What else it raised.
    """
    run = _Run(work, asyncio.get_running_loop())
    context = contextvars.copy_context()
    run.thread = threading.Thread(target=context.run, args=(run.serve,), name=name, daemon=True)
    run.thread.start()
    try:
        done, _ = await asyncio.wait([run.outcome], timeout=seconds)
    except asyncio.CancelledError:
        run.abandon()
        raise
    if not done:
        run.abandon()
        raise TimeoutError
    return run.outcome.result()


def stuck_threads() -> int:
    """How many threads were given up and still run."""
    _abandoned.difference_update([thread for thread in _abandoned if not thread.is_alive()])
    return len(_abandoned)


class _Run(Generic[T]):
    """One coroutine in one thread."""

    thread: threading.Thread

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], home: asyncio.AbstractEventLoop) -> None:
        self.outcome: asyncio.Future[T] = home.create_future()
        self._work = work
        self._home = home
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None

    def serve(self) -> None:
        """The thread's body."""
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            try:
                result = runner.run(self._work_noted())
            except BaseException as ex:
                self._tell(self._fail, ex)
            else:
                self._tell(self._succeed, result)

    async def _work_noted(self) -> T:
        self._task = asyncio.current_task()
        if self.outcome.cancelled():  # before there was anything to cancel here: it would never end
            raise asyncio.CancelledError
        return await self._work()

    def _tell(self, how: Callable[[Any], None], what: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
            self._home.call_soon_threadsafe(how, what)

    def _succeed(self, result: T) -> None:
        if not self.outcome.done():
            self.outcome.set_result(result)

    def _fail(self, ex: BaseException) -> None:
        if self.outcome.done():
            return
        if not isinstance(ex, Exception) or isinstance(
            ex, StopIteration
        ):  # they would end more than the work
            ex = RuntimeError(f"it ended with {type(ex).__name__} {ex}".rstrip())
        self.outcome.set_exception(ex)

    def abandon(self) -> None:
        """Wait no longer, and have it end if that can be."""
        self.outcome.cancel()
        _abandoned.add(self.thread)
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        timer = threading.Timer(_GRACE, self._interrupt)  # the caller's loop may be closed by then
        timer.daemon = True
        timer.start()

    def _interrupt(self) -> None:
        """Raise in the thread: ends a loop of Python code. A call into C is not interrupted."""
        if self.thread.is_alive() and self.thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.thread.ident), ctypes.py_object(SystemExit)
            )
