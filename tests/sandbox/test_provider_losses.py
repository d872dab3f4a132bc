"""What an eval sees when its sandboxes are taken away under it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from inspect_ai.dataset import Sample
from inspect_ai.util import SandboxEnvironment, SandboxUnavailableError

from hawk.sandbox.provider import BubblewrapSandbox
from hawk.sandbox.sweep import sweep
from tests.sandbox.evals import doing, in_samples, run_eval
from tests.sandbox.traces import keeper_processes, of_this_process, processes_of
from tests.system import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home"), pytest.mark.timeout(240)]


async def sleeping(box: SandboxEnvironment) -> asyncio.Task[Any]:
    """A command that runs."""
    running = asyncio.create_task(box.exec(["sleep", "3600"]))
    while not (await box.exec(["sh", "-c", "cat /proc/[0-9]*/comm | grep sleep"])).success:
        pass
    return running


@pytest.mark.parametrize("which", [0, 1, 2], ids=["the first process", "the second", "the third"])
def test_a_killed_keeper_is_told_at_once_and_the_next_attempt_has_a_new_one(which: int) -> None:
    async def work(box: SandboxEnvironment) -> Any:
        if os.environ.get("KILLED"):
            return (await box.exec(["echo", "works"])).stdout, box.as_type(BubblewrapSandbox).box.keeper.pid
        os.environ["KILLED"] = "1"
        running = await sleeping(box)
        pid = box.as_type(BubblewrapSandbox).box.keeper.pid
        keeper_processes(pid)[which].kill()
        said = []
        with pytest.raises(SandboxUnavailableError) as caught:
            await running
        said.append(str(caught.value))
        for again in (box.exec(["true"]), box.read_file("x"), box.write_file("x", "y")):
            with pytest.raises(SandboxUnavailableError) as caught:
                await again
            said.append(str(caught.value))
        return said, pid

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KILLED", raising=False)
        (said, pid), (works, other) = in_samples(work, [Sample("?"), Sample("?")], max_samples=1)
        del os.environ["KILLED"]
    until("all processes have gone", lambda: not of_this_process().processes())
    left = sweep()  # by the first process, had it lived
    assert len(left.keepers) == (which == 0)
    assert left.processes == 0
    assert all("the process that keeps the sandboxes has ended" in text for text in said)
    assert works == "works\n"
    assert other != pid


def test_a_sandbox_whose_first_process_is_killed_is_lost_alone() -> None:
    lost = asyncio.Event()

    async def work(box: SandboxEnvironment) -> str:
        if (await box.exec(["sh", "-c", "echo x > mine"])).success and not lost.is_set():
            lost.set()
            inner = box.as_type(BubblewrapSandbox).box
            running = await sleeping(box)
            _, first = processes_of(inner.keeper.pid, inner.label)
            first.kill()
            for command in (running, box.exec(["true"])):
                with pytest.raises(SandboxUnavailableError, match="its first process was killed"):
                    await command
            return "lost"
        await lost.wait()
        return await box.read_file("mine")

    assert sorted(in_samples(work, [Sample("?"), Sample("?")])) == ["lost", "x\n"]


def test_an_attempt_that_is_cut_off_ends_its_sandbox() -> None:
    async def work(box: SandboxEnvironment) -> None:
        await box.exec(["sh", "-c", "setsid sleep 60 & sleep 60"])

    log = run_eval(doing(work, {}), [Sample("?") for _ in range(3)], time_limit=1)
    assert [sample.limit.type for sample in log.samples or [] if sample.limit] == ["time"] * 3
