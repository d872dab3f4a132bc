"""Await chains lead to the innermost await, however it is reached, and are read without the loop's help."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from hawk.core.recorder.stacks import (
    RUNNING,
    Chain,
    Frame,
    StackRecord,
    Who,
    joins,
    only,
    own_frame,
    short_path,
    waits,
)
from hawk.runner import awaits

whose: ContextVar[Who | None] = ContextVar("whose", default=None)


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def numbers() -> AsyncIterator[int]:
    yield 1
    await never()


async def over_a_generator() -> None:
    async for _ in numbers():
        pass


class Custom:
    def __await__(self) -> Generator[Any, None, None]:
        return (yield from never().__await__())


async def over_an_object() -> None:
    await Custom()


async def with_a_deadline() -> None:
    await asyncio.wait_for(never(), 100)


async def with_a_lock() -> None:
    lock = asyncio.Lock()
    async with lock, lock:
        pass


async def with_anyio() -> None:
    await anyio.Event().wait()


async def in_a_group() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(never)


async def gathered() -> None:
    await asyncio.gather(never(), never())


async def on_a_task() -> None:
    await asyncio.create_task(never(), name="child")


def names(chain: Chain) -> list[str]:
    return [frame.function.rpartition(".")[2] for frame in chain.frames]


async def chains_of(*functions: Callable[[], Awaitable[None]]) -> list[Chain]:
    """The chains of tasks of these functions, taken by another thread."""
    loop = asyncio.get_running_loop()
    tasks = [asyncio.ensure_future(function()) for function in functions]
    await asyncio.sleep(0.05)
    found, _ = await asyncio.to_thread(awaits.chains, loop, lambda context: context.get(whose))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


@pytest.mark.parametrize(
    ("function", "last"),
    [
        (over_a_generator, ["over_a_generator", "numbers", "never"]),
        (over_an_object, ["over_an_object", "__await__", "never"]),
        (with_a_lock, ["with_a_lock", "__aenter__", "acquire"]),
        (with_anyio, ["with_anyio", "wait", "wait"]),
    ],
)
async def test_a_chain_leads_to_the_innermost_await(
    function: Callable[[], Awaitable[None]], last: list[str]
) -> None:
    (chain,) = [c for c in await chains_of(function) if function.__name__ in names(c)]
    assert names(chain)[-len(last) :] == last
    assert not chain.joins
    assert chain.frames[-1].line > 0


async def test_a_wait_with_a_deadline_is_found_whether_it_is_a_task_of_its_own_or_not() -> None:
    found = [names(c) for c in await chains_of(with_a_deadline)]
    assert any(n[-1] in ("wait_for", "never") and "with_a_deadline" in n for n in found)
    assert any(n[-1] == "never" for n in found)


@pytest.mark.parametrize("function", [in_a_group, gathered, on_a_task])
async def test_who_waits_for_its_own_tasks_joins_them(function: Callable[[], Awaitable[None]]) -> None:
    found = await chains_of(function)
    (chain,) = [c for c in found if function.__name__ in names(c)]
    assert chain.joins
    assert sum(c.count for c in found if names(c)[-1] == "never" and not c.joins) == (
        2 if function is gathered else 1
    )


async def test_ten_thousand_equal_chains_are_one_with_a_count_and_the_names_of_their_attempts() -> None:
    async def deep(left: int) -> None:
        await (deep(left - 1) if left else never())

    async def named(number: int) -> None:
        whose.set(Who("task", f"s{number % 100}", 1, f"u{number % 100}"))
        await deep(20)

    found = await chains_of(*(lambda n=n: named(n) for n in range(10_000)))
    chain = max(found, key=lambda c: c.count)
    assert (chain.count, len(chain.attempts), len(chain.frames)) == (10_000, 100, 23)
    assert chain.attempts[0].name.startswith("task/s")


def test_a_blocked_loop_says_which_attempt_it_runs() -> None:
    started = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def block() -> None:
        whose.set(Who("task", "one", 2, "u"))
        loops.append(asyncio.get_running_loop())
        started.set()
        time.sleep(2)  # noqa: ASYNC251  # the fault that is looked for

    thread = threading.Thread(target=lambda: asyncio.run(block()))
    thread.start()
    assert started.wait(10)
    found, count = awaits.chains(loops[0], lambda context: context.get(whose))
    assert awaits.current(loops[0], lambda context: context.get(whose)) == Who("task", "one", 2, "u")
    assert [(c.awaits, c.attempts) for c in found] == [(RUNNING, [Who("task", "one", 2, "u")])]
    assert count == 1
    thread.join()


def frame(file: str, function: str = "f") -> Frame:
    return Frame(file, 1, function)


OWN = frame("/home/ann/evals/tool.py")
LIBRARY = frame("/usr/lib/python3.11/asyncio/locks.py", "Event.wait")
GROUP = frame("/x/site-packages/anyio/_backends/_asyncio.py", "TaskGroup.__aexit__")


def test_what_attempts_wait_for_is_their_work_not_what_joins_or_watches_it() -> None:
    a, b, c = (Who("t", name, 1, name) for name in "abc")
    work, group, watch = (
        Chain((OWN, LIBRARY), 1, [a]),
        Chain((OWN, GROUP), 2, [a, b], joins=True),
        Chain((LIBRARY,), 3, [a, b, c], helper=True),
    )
    record = StackRecord("2026-01-01T00:00:00+00:00", 0, 1, chains=[watch, group, work, Chain((OWN,), 9)])
    assert {tuple(w.name for w in chain.attempts) for chain in waits(record)} == {
        ("t/a/1",), ("t/a/1", "t/b/1"), ("t/a/1", "t/b/1", "t/c/1")
    }  # fmt: skip
    assert waits(only(record, "a"))[0].frames == work.frames
    assert [only(record, wanted).chains != [] for wanted in ("a/1", "t/b/1", "d", "a/2")] == [
        True,
        True,
        False,
        False,
    ]


def test_paths_begin_at_their_package_and_an_authors_code_is_told_from_libraries() -> None:
    assert (
        short_path("/x/lib/python3.11/site-packages/inspect_ai/model/_model.py")
        == "inspect_ai/model/_model.py"
    )
    assert short_path("/usr/lib/python3.13/asyncio/locks.py") == "asyncio/locks.py"
    assert short_path("/home/ann/evals/tool.py") == "evals/tool.py"
    assert short_path(awaits.__file__) == "hawk/runner/awaits.py"
    assert own_frame([OWN, LIBRARY, frame(awaits.__file__)]) is OWN
    assert own_frame([LIBRARY, frame("<frozen importlib>")]) is None
    assert joins([OWN, GROUP])
    assert not joins([GROUP, OWN])
