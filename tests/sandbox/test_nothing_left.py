"""Whatever is killed at whatever moment: all processes go, a sweep leaves nothing of the dead, and the living stay."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from hawk.sandbox import pool
from hawk.sandbox.box import Box, BoxGoneError
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.errors import KeeperGoneError, KeeperRefusedError, SandboxError
from hawk.sandbox.group import create, create_message
from hawk.sandbox.prepare import Lower
from hawk.sandbox.sweep import keepers, sweep
from tests.sandbox.forked import forked
from tests.sandbox.traces import SECONDS, Traces, assert_nothing_left, keeper_processes
from tests.system import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home"), pytest.mark.timeout(300)]

MOMENTS = ("starting", "creating", "running", "exporting", "closing", "any time")
TARGETS = ("worker", "first", "second", "third", "bwrap", "pid 1")
LATEST = 0.06
"""Seconds after a moment began in which the kill comes."""

TREE = """
head -c 100000 /dev/zero > file
for n in 1 2 3 4; do sleep 3600.{mark} & done
setsid sleep 3600.{mark} &
(setsid nohup sh -c 'trap "" TERM; sleep 3600.{mark} & wait' >/dev/null 2>&1 &)
wait
"""

LOST = (BoxGoneError, SandboxError, KeeperGoneError, KeeperRefusedError, TimeoutError)


class Worker:
    """A forked process that makes, uses and closes sandboxes over and over, and says what it is about to do."""

    def __init__(self) -> None:
        said, tell = os.pipe()
        self.pid = forked(lambda: asyncio.run(_work(tell)))
        os.close(tell)
        self._said = os.fdopen(said, "r")
        self.traces = Traces(pool.store_directory(), f"{self.pid}-")

    def wait_for(self, moment: str, since: float = 0.0) -> None:
        """Until it says that this begins, and says so after that monotonic time."""
        for line in self._said:
            name, _, at = line.strip().rpartition(" ")
            if name == moment and float(at) >= since:
                return
        raise AssertionError(f"the worker ended before {moment}; its traceback is in the captured output")

    def keeper(self) -> int | None:
        """Pid of its keeper's first process, which may be about to start."""
        children = psutil.Process(self.pid).children()
        return children[0].pid if children else None

    def alive(self) -> list[str]:
        """Processes that it or its sandboxes left."""
        marked = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(word == f"3600.{self.pid}" for word in process.cmdline()):
                    marked.append(f"pid {process.pid}: {process.cmdline()}")
        return [*self.traces.processes(), *marked]

    def assert_gone(self) -> None:
        """It and all its processes have gone, or soon will."""
        until("all processes have gone", lambda: not self.alive(), SECONDS)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._said.close()


async def _work(tell: int) -> None:
    def say(moment: str) -> None:
        os.write(tell, f"{moment} {time.monotonic()}\n".encode())

    say("starting")
    turn = 0
    while True:
        with contextlib.suppress(*LOST):
            keeper = await pool.keeper()
            turn += 1
            say("creating")
            async with contextlib.AsyncExitStack() as stack:
                names = [f"{turn}-{n}" for n in range(3)]
                boxes = await asyncio.gather(*(stack.enter_async_context(_box(keeper, n)) for n in names))
                say("running")
                await asyncio.gather(*map(_use, boxes))
                say("exporting")
                await asyncio.gather(*map(_export, boxes))
                say("closing")
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def _box(keeper: Keeper, label: str) -> AsyncIterator[Box]:
    storage = "disk" if label.endswith("0") else "memory"
    config = BubblewrapConfig.model_validate({"storage": storage, "inspect_tools": False})
    box = await create(keeper, create_message(config, Lower(), label, "none"), config)
    try:
        yield box
    finally:
        await box.close()


async def _use(box: Box) -> None:
    with contextlib.suppress(TimeoutError):
        await box.run(["sh", "-c", TREE.format(mark=os.getpid())], timeout=0.15)
    await box.run(["sh", "-c", f"sleep 3600.{os.getpid()} >/dev/null 2>&1 & echo x > file2"])


async def _export(box: Box) -> None:
    with tempfile.TemporaryFile() as target:
        await box.export(target.fileno())


SLEEPS = "until cat /proc/[0-9]*/comm | grep -q sleep; do :; done 2>/dev/null"


class Bystander:
    """Somebody else's keeper with a sandbox, in the same store."""

    def __init__(self) -> None:
        theirs, self._ask = os.pipe()
        self._answer, ours = os.pipe()
        self.pid = forked(lambda: asyncio.run(_stand_by(theirs, ours)))
        os.close(theirs)
        os.close(ours)
        self.traces = Traces(pool.store_directory(), f"{self.pid}-")
        assert self.says() == "all is well"

    def says(self) -> str:
        os.write(self._ask, b"?")
        return os.read(self._answer, 100).decode()

    def end(self) -> None:
        os.write(self._ask, b".")
        os.waitpid(self.pid, 0)
        os.close(self._ask)
        os.close(self._answer)


async def _stand_by(asked: int, answer: int) -> None:
    keeper = await pool.keeper()
    async with _box(keeper, "0") as box:
        await box.run(["sh", "-c", f"echo all is well > file; (sleep 3600 >/dev/null 2>&1 &); {SLEEPS}"])
        while await asyncio.to_thread(os.read, asked, 1) == b"?":
            done = await box.run(["sh", "-c", "cat /proc/[0-9]*/comm | grep -q sleep && cat file"])
            os.write(answer, done.stdout.strip() or b"something is gone")
    await pool.close()


@pytest.fixture
def bystander(home: Path) -> Iterator[Bystander]:
    one = Bystander()
    try:
        yield one
    finally:
        one.end()
    assert_nothing_left(one.traces)


@pytest.mark.parametrize("target", TARGETS)
def test_whatever_is_killed_all_processes_go_and_nothing_is_left(target: str, bystander: Bystander) -> None:
    chance = random.Random(target)
    for moment in MOMENTS:
        if moment == "starting" and target not in ("worker", "first"):
            continue
        delay = chance.uniform(0, 0.5 if moment == "any time" else LATEST)
        worker = Worker()
        try:
            _round(worker, target, moment, delay, chance)
        except AssertionError as ex:
            raise AssertionError(f"{target} was killed {delay:.3f} s after {moment}: {ex}") from ex
        finally:
            worker.end()
        worker.assert_gone()
        if target != "first":
            assert_nothing_left(worker.traces)  # that one cleans up behind the others
        sweep()
        assert worker.traces.all() == []
        assert bystander.says() == "all is well"


def _round(worker: Worker, target: str, moment: str, delay: float, chance: random.Random) -> None:
    worker.wait_for("starting")
    keeper = until("a keeper", worker.keeper, period=0.001)
    if moment != "starting":
        worker.wait_for("closing")  # one turn went well
    if moment in ("creating", "running", "exporting"):
        worker.wait_for(moment)
    time.sleep(delay)
    while True:
        victim = _victim(worker, keeper, target, chance)
        worker.traces.watch(victim.pid if target in ("bwrap", "pid 1") else keeper)
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself just now
            victim.kill()
            break
    if target == "worker":
        os.waitpid(worker.pid, 0)
    until("what it kept alive has gone", lambda: not worker.traces.watched(), SECONDS, 0.01)
    if target != "worker":
        worker.wait_for("closing", since=time.monotonic())  # it goes on, with another keeper if need be


def _victim(worker: Worker, keeper: int, target: str, chance: random.Random) -> psutil.Process:
    if target == "worker":
        return psutil.Process(worker.pid)
    if target in ("first", "second", "third"):
        if target == "first":
            return psutil.Process(keeper)
        return keeper_processes(keeper)[("first", "second", "third").index(target)]
    # There may be none between two turns.
    return until(f"a {target}", lambda: _in_sandbox(keeper, target, chance), period=0.001)


def _in_sandbox(keeper: int, target: str, chance: random.Random) -> psutil.Process | None:
    """A bwrap outside a sandbox, or a process inside that has the pid 1 there."""
    with contextlib.suppress(psutil.Error, ValueError):
        monitors = [p for p in keeper_processes(keeper)[2].children() if p.name() == "bwrap"]
        candidates = monitors if target == "bwrap" else [c for p in monitors for c in p.children()]
        return chance.choice(candidates) if candidates else None
    return None


def test_a_sweep_removes_what_is_left_when_even_the_one_who_cleans_up_was_killed(
    bystander: Bystander,
) -> None:
    worker = Worker()
    worker.wait_for("running")
    first, *_ = keeper_processes(until("a keeper", worker.keeper))
    worker.traces.watch(first.pid)
    for process in (first, psutil.Process(worker.pid)):
        process.kill()
    worker.end()
    worker.assert_gone()
    dead = [info.name for info in keepers(pool.store_directory()) if not info.alive]
    assert [name.startswith(f"{worker.pid}-") for name in dead] == [True]
    swept = sweep()
    assert swept.keepers == dead
    assert worker.traces.all() == []
    assert sweep().nothing
    assert bystander.says() == "all is well"


def test_a_keeper_ends_with_a_worker_that_ends_in_order(bystander: Bystander) -> None:
    worker = Worker()
    worker.wait_for("closing")
    os.kill(worker.pid, signal.SIGTERM)
    worker.end()
    worker.assert_gone()
    assert_nothing_left(worker.traces)


async def test_a_bwrap_that_is_killed_as_it_starts_leaves_nothing_and_the_keeper_goes_on(
    keeper: Keeper,
) -> None:
    third = keeper_processes(keeper.pid)[2]
    over = threading.Event()
    killer = threading.Thread(target=_kill_bwraps, args=(third.pid, over))
    killer.start()
    turn = refused = 0
    deadline = time.monotonic() + 100
    try:
        while turn < 40 or refused == 0:
            assert time.monotonic() < deadline, "none was killed as it started, so nothing was tested"
            turn += 1
            try:
                async with _box(keeper, f"{turn}-1"):
                    pass
            except SandboxError:
                refused += 1
    finally:
        over.set()
        killer.join()
    async with asyncio.timeout(SECONDS):
        while third.children(recursive=True):
            await asyncio.sleep(0.01)
    async with _box(keeper, "after") as box:
        assert (await box.run(["echo", "on"])).stdout == b"on\n"


def _kill_bwraps(keeper: int, over: threading.Event) -> None:
    """Kill the keeper's bwraps a moment after each appears."""
    chance = random.Random(7)
    while not over.is_set():
        for pid in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n":
                    time.sleep(chance.uniform(0, 0.004))
                    os.kill(int(pid), signal.SIGKILL)
