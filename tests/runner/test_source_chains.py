"""Await chains and actions of real event loops and real trace files, as evidence of attempts."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from inspect_ai.util import ExecResult, concurrency
from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy

from hawk.bridge import sandboxtrace
from hawk.core.diagnosis.evidence import Attempt, Evidence
from hawk.core.recorder.stacks import StackRecord, Who
from hawk.runner.capture import Capture
from hawk.runner.sources.actions import ActionReader, timeout_of, tool_of
from hawk.runner.sources.chains import ChainReader
from hawk.runner.sources.durations import KEPT, NAMES, Durations
from hawk.store import stacks
from hawk.store.rundir import write_json
from tests.recorder.traces import enter, leave, worker_home, write_sidecar, write_trace

# --- code that waits, one function a kind


async def event() -> None:
    await asyncio.Event().wait()


async def lock() -> None:
    held = asyncio.Lock()
    async with held:
        await held.acquire()


async def future() -> None:
    await asyncio.get_running_loop().create_future()


async def queue() -> None:
    await asyncio.Queue[int]().get()


async def condition() -> None:
    changed = asyncio.Condition()
    async with changed:
        await changed.wait()


async def timer() -> None:
    await asyncio.sleep(1000)


async def timer_by_anyio() -> None:
    await anyio.sleep(1000)


async def timer_around_event() -> None:
    await asyncio.wait_for(asyncio.Event().wait(), 1000)


async def thread() -> None:
    await asyncio.to_thread(BUSY.wait)


async def process() -> None:
    running = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        await running.wait()
    finally:
        running.kill()


OPEN: list[asyncio.StreamWriter] = []
"""Connections that stay: from Python 3.13 on one that nobody holds is closed."""


async def network() -> None:
    server = await asyncio.start_server(lambda r, w: OPEN.append(w), "127.0.0.1", 0)
    reader, _ = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    await reader.read(1)


async def network_by_anyio() -> None:
    server = await asyncio.start_server(lambda r, w: OPEN.append(w), "127.0.0.1", 0)
    stream = await anyio.connect_tcp("127.0.0.1", server.sockets[0].getsockname()[1])
    await stream.receive()


async def limiter() -> None:
    async with concurrency("one-place", 1), concurrency("one-place", 1):
        pass


async def several() -> None:
    await asyncio.gather(event(), timer())


BUSY = threading.Event()
KINDS: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
    f.__name__: f
    for f in (
        *(event, lock, future, queue, condition, timer, timer_by_anyio, timer_around_event, thread, process),
        *(network, network_by_anyio, limiter, several),
    )
}


WHO: ContextVar[Who | None] = ContextVar("who", default=None)


@pytest.fixture(scope="module")
def record() -> Iterator[StackRecord]:
    """What a recorder writes of a loop in which an attempt waits in each way."""
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    tasks: list[asyncio.Task[None]] = []

    async def everything() -> None:
        for name, make in KINDS.items():
            WHO.set(Who("t", name, 1, f"u-{name}"))
            tasks.append(asyncio.create_task(make()))
        WHO.set(None)
        await asyncio.sleep(0.3)
        ready.set()
        await asyncio.wait(tasks)

    runner = threading.Thread(target=loop.run_until_complete, args=(everything(),))
    runner.start()
    assert ready.wait(30)
    capture = Capture(0, lambda context: context.get(WHO))
    capture.loop = loop
    yield capture.record("last", 0.0)
    BUSY.set()
    loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
    runner.join(30)
    assert not runner.is_alive()
    loop.close()


def context_of(home: Path, evidence: Evidence, **fields: Any) -> Any:
    worker = SimpleNamespace(index=0, home=home, identifiers=("task-1",), pid=0)
    attempts = {attempt.uuid: attempt for attempt in evidence.attempts if attempt.uuid}
    return SimpleNamespace(workers=[worker], attempts=attempts, **fields)


def looked_at(*names: str) -> Evidence:
    attempts = [Attempt("task-1", name, 1, name=f"t/{name}/1", uuid=f"u-{name}", worker=0) for name in names]
    return Evidence("job", datetime.now(UTC).isoformat(), attempts=attempts)


def test_each_way_of_waiting_is_told_by_its_kind_and_its_place(record: StackRecord, tmp_path: Path) -> None:
    home = worker_home(tmp_path)
    stacks.folder(home).mkdir()
    write_json(stacks.last_file(home), record, durable=False)
    evidence = looked_at(*KINDS)
    ChainReader().fill(evidence, context_of(home, evidence))
    kinds = {attempt.sample: attempt.wait.kind for attempt in evidence.attempts if attempt.wait is not None}
    expected = {name: name.partition("_")[0] for name in KINDS if name != "several"}
    assert {name: kind for name, kind in kinds.items() if name != "several"} == expected
    several = next(attempt.wait for attempt in evidence.attempts if attempt.sample == "several")
    assert several is not None
    assert (several.kind, several.others) == ("timer", ["event"])  # what ends by itself counts
    waits = next(attempt.wait for attempt in evidence.attempts if attempt.sample == "event")
    assert waits is not None
    assert waits.place.startswith("runner/test_source_chains.py:")
    assert waits.place.endswith(" event")
    assert "Event.wait" in waits.innermost


def test_a_place_is_dated_from_the_record_in_which_it_was_seen_first(
    record: StackRecord, tmp_path: Path
) -> None:
    home = worker_home(tmp_path)
    stacks.folder(home).mkdir()
    reader, seen = ChainReader(), []
    for at in ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:05+00:00", "2026-01-01T00:00:05+00:00"):
        record.at = at
        write_json(stacks.last_file(home), record, durable=False)
        evidence = looked_at("event")
        reader.fill(evidence, context_of(home, evidence))
        assert evidence.attempts[0].wait is not None
        seen.append((evidence.attempts[0].wait.since, evidence.attempts[0].wait.looks))
    assert seen == [("2026-01-01T00:00:00+00:00", 1), *[("2026-01-01T00:00:00+00:00", 2)] * 2]
    stacks.last_file(home).write_bytes(b'{"at": "torn')
    evidence = looked_at("event")
    reader.fill(evidence, context_of(home, evidence))
    assert evidence.attempts[0].wait is not None


# --- actions


def test_calls_in_flight_follow_the_trace_across_a_restart_and_tools_leave_their_times(
    tmp_path: Path,
) -> None:
    home = worker_home(tmp_path)
    old = enter("a", 0, "Tool Call", detail="bash(cmd='make', timeout=30)", sample_uuid="u-event")
    done = [
        *(enter(f"d{n}", 1, "Tool Call", detail="ls()", sample_uuid="u-event") for n in range(3)),
        *(leave(f"d{n}", 2, "Tool Call", detail="ls()", sample_uuid="u-event") for n in range(3)),
    ]
    write_trace(home, [old, *done])
    write_sidecar(home, at=len(old), enters=[old])
    reader = ActionReader()
    evidence = looked_at("event", "lock")
    reader.fill(evidence, context_of(home, evidence))
    (call,) = evidence.attempts[0].calls
    assert (call.action, call.timeout) == ("Tool Call", 30.0)
    assert evidence.learnt.tools["ls"].count == 3
    more = [
        enter("b", 5, "Model", detail="m", sample_uuid="u-lock"),
        leave("a", 6, "Tool Call", detail="bash()"),
    ]
    write_trace(home, [old, *done, *more], torn=b'{"timestamp')
    evidence = looked_at("event", "lock")
    reader.fill(evidence, context_of(home, evidence))
    assert [[c.action for c in attempt.calls] for attempt in evidence.attempts] == [[], ["Model"]]
    assert set(reader.times()) == {"ls", "bash"}
    # Another process's trace, shorter than what was read: begun again from the worker's own list.
    write_trace(home, [old])
    write_sidecar(home, at=len(old), enters=[old])
    evidence = looked_at("event", "lock")
    reader.fill(evidence, context_of(home, evidence))
    assert [len(attempt.calls) for attempt in evidence.attempts] == [1, 0]


@pytest.mark.parametrize(
    ("detail", "seconds"),
    [
        ("bash(cmd='x', timeout=30)", 30.0),
        ("run(timeout_seconds=2.5)", 2.5),
        ("exec(timeout=180, bash -c x)", 180.0),
        ("docker compose exec -T default /usr/bin/timeout -k 5s 60s bash -c x", 60.0),
        ("bash(cmd='timeout 5 make; make test')", None),
        ("bash(cmd='x')", None),
    ],
)
def test_the_deadline_that_a_call_names(detail: str, seconds: float | None) -> None:
    assert timeout_of(detail) == seconds
    assert tool_of("bash(cmd='\x1b[31m')") == "bash"


def test_durations_are_bounded_and_keep_the_longest() -> None:
    durations = Durations()
    durations.add("a", 100.0)
    for n in range(KEPT + 50):
        durations.add("a", float(n % 10))
    assert durations.times()["a"].most == 100.0
    assert durations.times()["a"].count == KEPT + 51
    for n in range(NAMES + 10):
        durations.add(f"n{n}", 1.0)
    assert len(durations.times()) == NAMES


class Scripted:
    """A sandbox that runs nothing."""

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109
        timeout_retry: bool = True,
    ) -> ExecResult[str]:
        return ExecResult(True, 0, "", "")


def test_commands_in_sandboxes_are_traced_with_their_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SandboxEnvironmentProxy, "exec", SandboxEnvironmentProxy.exec)
    lines: list[tuple[str, str]] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.event, record.detail))  # type: ignore[attr-defined,method-assign]
    logger = logging.getLogger("inspect_ai.hawk.sandbox")
    monkeypatch.setattr(logger, "level", 1)
    logger.addHandler(handler)
    try:
        sandboxtrace.install()
        box = SandboxEnvironmentProxy(Scripted())  # type: ignore[arg-type]
        asyncio.run(box.exec(["echo", "a b"], timeout=7))
        asyncio.run(box.exec(["x" * 5000]))
    finally:
        logger.removeHandler(handler)
    assert lines[:2] == [("enter", "exec(timeout=7, echo 'a b')"), ("exit", "exec(timeout=7, echo 'a b')")]
    assert len(lines[2][1]) < 400
    assert timeout_of(lines[0][1]) == 7
