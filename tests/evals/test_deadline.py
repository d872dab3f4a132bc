"""An author's code can neither hold the event loop nor outlive its deadline unnoticed."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from hawk.evals import deadline
from hawk.evals.deadline import in_own_thread, stuck_threads

WORD = contextvars.ContextVar("WORD", default="none")


async def until(probe: object) -> None:
    for _ in range(1200):
        if probe():  # type: ignore[operator]
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come")


async def test_work_runs_in_a_thread_with_the_callers_context() -> None:
    WORD.set("ours")

    async def work() -> tuple[str, bool]:
        await asyncio.sleep(0)
        return WORD.get(), threading.current_thread() is threading.main_thread()

    assert await in_own_thread(work, 60, name="t") == ("ours", False)


async def test_what_it_raises_is_raised() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await in_own_thread(work, 60, name="t")


@pytest.mark.parametrize("leave", [SystemExit, asyncio.CancelledError, KeyboardInterrupt, StopIteration])
async def test_what_would_end_the_process_or_the_loop_ends_only_the_work(leave: type[BaseException]) -> None:
    def give_up() -> None:
        raise leave

    async def work() -> None:
        give_up()

    with pytest.raises(RuntimeError, match=leave.__name__):
        await in_own_thread(work, 60, name="t")


async def test_blocking_work_does_not_block_the_loop() -> None:
    released = threading.Event()

    async def work() -> str:
        released.wait(60)
        return "done"

    running = asyncio.create_task(in_own_thread(work, 60, name="t"))
    await asyncio.sleep(0)  # this loop goes on
    released.set()
    assert await running == "done"


async def test_awaiting_work_is_cancelled_at_its_deadline() -> None:
    began, ended = threading.Event(), threading.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        await in_own_thread(work, 1, name="t")
    await until(lambda: stuck_threads() == 0)
    assert ended.is_set() is began.is_set()


async def test_work_whose_thread_comes_after_its_deadline_does_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, late = threading.Event(), threading.Event()
    serve = deadline._Run.serve

    def serve_late(run: deadline._Run[None]) -> None:
        late.wait(60)
        serve(run)

    async def work() -> None:
        began.set()
        await asyncio.sleep(3600)

    monkeypatch.setattr(deadline._Run, "serve", serve_late)
    with pytest.raises(TimeoutError):
        await in_own_thread(work, 0.01, name="t")
    late.set()
    await until(lambda: stuck_threads() == 0)
    assert not began.is_set()


async def test_a_loop_that_never_awaits_is_interrupted() -> None:
    async def work() -> None:
        while True:
            time.sleep(0.01)  # noqa: ASYNC251 - it is what is tested

    with pytest.raises(TimeoutError):
        await in_own_thread(work, 0.2, name="t")
    await until(lambda: stuck_threads() == 0)


async def test_a_cancelled_caller_takes_the_work_along() -> None:
    began, ended = threading.Event(), threading.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    running = asyncio.create_task(in_own_thread(work, 3600, name="t"))
    await until(began.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(ended.is_set)
