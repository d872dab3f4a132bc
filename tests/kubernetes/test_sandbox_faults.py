"""What goes wrong with sandbox pods on a real cluster, and what is said of it."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from inspect_ai.util import SandboxEnvironment, SandboxUnavailableError

from hawk.kube.api import Cluster
from hawk.sandbox.pod import site as sites
from hawk.sandbox.pod.group import PodError
from hawk.sandbox.pod.provider import PodSandbox
from hawk.sandbox.registry import registry
from tests.kubernetes.conftest import Make


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(registry, "attempt", lambda: "sample/1@eval")
    return "sample/1@eval"


def box_of(sandbox: SandboxEnvironment) -> PodSandbox:
    return sandbox.as_type(PodSandbox)


async def starting(make: Make, **fields: object) -> tuple[asyncio.Task[object], contextlib.AsyncExitStack]:
    stack = contextlib.AsyncExitStack()
    return asyncio.ensure_future(stack.enter_async_context(make(**fields))), stack


async def said(text: str, patience: float = 15) -> float:
    """Wait until an attempt's wait is shown with these words; how long that took."""
    began = time.monotonic()
    async with asyncio.timeout(patience):
        while not any(text in shown for shown in registry.waits().values()):
            await asyncio.sleep(0.05)
    return time.monotonic() - began


async def test_a_command_past_its_deadline_is_killed(make: Make) -> None:
    async with make() as environments:
        sandbox = environments["default"]
        began = time.monotonic()
        with pytest.raises(TimeoutError) as caught:
            await sandbox.exec(["sh", "-c", "echo began; setsid sleep 333 & sleep 333; :"], timeout=2)
        assert time.monotonic() - began < 12
        assert getattr(caught.value, "truncated_output", "") == "began\n"
        left = await sandbox.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
        assert "sleep 333" not in left.stdout


async def test_a_background_process_does_not_hold_the_result_back(make: Make) -> None:
    async with make() as environments:
        began = time.monotonic()
        result = await environments["default"].exec(["sh", "-c", "sleep 60 & echo out"])
        assert result.stdout == "out\n"
        assert time.monotonic() - began < 10


async def test_orphans_are_buried(make: Make) -> None:
    async with make() as environments:
        sandbox = environments["default"]
        for _ in range(3):
            await sandbox.exec(["sh", "-c", "(sleep 0.1 &) ; (sleep 0.1 &)"])
        async with asyncio.timeout(20):
            while True:
                states = await sandbox.exec(["sh", "-c", "cat /proc/[0-9]*/stat"])
                if ") Z " not in states.stdout:
                    break
                await asyncio.sleep(0.2)


async def test_more_memory_than_it_may_have(make: Make, attempt: str) -> None:
    async with make(resources={"memory": "64Mi"}) as environments:
        # a command's death alone, or the whole container's: a cluster does one or the other
        eat = ["sh", "-c", "head -c 400m /dev/zero | tail -c 399m >/dev/null"]
        said = ""
        try:
            result = await environments["default"].exec(eat, timeout=60)
            assert not result.success
        except SandboxUnavailableError as ex:
            said = str(ex)
        assert said == "" or "it ran out of memory" in said
        assert registry.facts()[attempt].troubles.get("oom_killed")


async def test_a_pod_deleted_under_a_command(make: Make, cluster: Cluster, attempt: str) -> None:
    async with make() as environments:
        sandbox = environments["default"]
        running = asyncio.ensure_future(sandbox.exec(["sh", "-c", "touch /tmp/begun; sleep 300"]))
        async with asyncio.timeout(20):
            while not (await sandbox.exec(["test", "-e", "/tmp/begun"])).success:
                await asyncio.sleep(0.1)
        began = time.monotonic()
        await cluster.delete("Pod", box_of(environments["default"]).box.tracked.name)
        with pytest.raises(SandboxUnavailableError, match="it was deleted by somebody"):
            await running
        assert time.monotonic() - began < 10


async def test_a_sandbox_whose_first_process_is_killed(make: Make) -> None:
    async with make() as environments:
        sandbox = environments["default"]
        with contextlib.suppress(SandboxUnavailableError):
            await sandbox.exec(["sh", "-c", "kill -TERM 1; sleep 5"])
        box = box_of(sandbox).box
        async with asyncio.timeout(15):
            while box.lost is None:
                await asyncio.sleep(0.1)
        with pytest.raises(SandboxUnavailableError, match="it exited with code"):
            await sandbox.exec(["true"])


async def test_an_image_that_is_nowhere(make: Make, attempt: str) -> None:
    task, _ = await starting(make, image="hawk.test/nothing:1", image_grace=3)
    assert await said("Image") < 10
    with pytest.raises(PodError, match=r"hawk\.test/nothing:1 can't be had"):
        await asyncio.wait_for(task, 60)


async def test_an_image_that_may_not_be_pulled(make: Make) -> None:
    with pytest.raises(PodError, match="ErrImageNeverPull"):
        async with make(image="hawk.test/nothing:1", pull_policy="Never"):
            pass


async def test_a_program_that_is_not_in_the_image(make: Make) -> None:
    with pytest.raises(PodError, match="no-such-program"):
        async with make(command=["/no-such-program"]):
            pass


async def test_a_pod_that_fits_on_no_node(make: Make, attempt: str) -> None:
    task, _ = await starting(make, resources={"cpu": 5000, "request_cpu": 5000}, start_timeout=8)
    assert await said("Insufficient cpu") < 5
    with pytest.raises(PodError, match="Insufficient cpu"):
        await asyncio.wait_for(task, 60)


async def test_a_quota_is_waited_for(make: Make, cluster: Cluster, attempt: str) -> None:
    quota = {"kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    await cluster.create(quota)
    try:
        while not ((await cluster.get("ResourceQuota", "q")) or {}).get("status", {}).get("hard"):
            await asyncio.sleep(0.1)
        task, stack = await starting(make, start_timeout=60)
        await said("exceeded quota")
    finally:
        await cluster.delete("ResourceQuota", "q")
    await asyncio.wait_for(task, 60)
    await stack.aclose()


async def test_a_lifetime(make: Make) -> None:
    async with make(lifetime=3) as environments:
        with pytest.raises(SandboxUnavailableError, match="lifetime"):
            await environments["default"].exec(["sleep", "60"])


async def test_a_canceled_start_leaves_nothing(make: Make, cluster: Cluster, attempt: str) -> None:
    task, _ = await starting(make, resources={"cpu": 5000, "request_cpu": 5000})
    await said("Insufficient cpu")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await sites.close()
