"""Sandbox pods on a real cluster: files, input, users, services, the warm pool, many at once."""

from __future__ import annotations

import asyncio
import time

import pytest

from hawk.kube.api import Cluster
from hawk.sandbox.pod import site as sites
from hawk.sandbox.pod.options import PodConfig
from hawk.sandbox.pod.provider import PodSandbox
from tests.kubernetes.conftest import IMAGE, Make


async def test_large_files_and_input(make: Make) -> None:
    content = bytes(range(256)) * (50 << 12)  # 50 MiB
    async with make() as environments:
        sandbox = environments["default"]
        await sandbox.write_file("/tmp/deep/er/file", content)
        assert await sandbox.read_file("/tmp/deep/er/file", text=False) == content
        assert (await sandbox.exec(["wc", "-c"], input=content)).stdout.split() == [str(len(content))]


async def test_what_a_sandbox_is(make: Make) -> None:
    async with make(environment={"A": "b"}, working_dir="/srv/here") as environments:
        sandbox = environments["default"]
        result = await sandbox.exec(["sh", "-c", "pwd; echo $A; id -u; cat /proc/self/status"])
        directory, variable, user, *status = result.stdout.splitlines()
        assert (directory, variable, user) == ("/srv/here", "b", "0")
        lines = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        assert lines["NoNewPrivs"] == "1"
        assert lines["Seccomp"] == "2"
        assert not int(lines["CapEff"], 16) & (1 << 21)  # CAP_SYS_ADMIN
        assert not (await sandbox.exec(["ls", "/var/run/secrets/kubernetes.io"])).success


async def test_as_an_ordinary_user(make: Make) -> None:
    async with make(security={"run_as_user": 1000}) as environments:
        sandbox = environments["default"]
        assert (await sandbox.exec(["id", "-u"])).stdout == "1000\n"
        await sandbox.write_file("/tmp/x", "mine")
        with pytest.raises(PermissionError):
            await sandbox.write_file("/etc/x", "theirs")


async def test_few_requests(make: Make) -> None:
    async with make() as environments:
        site = await sites.current()
        before = dict(site.cluster.requests.sent)
        config = PodConfig(image=IMAGE, pull_policy="IfNotPresent")
        for _ in range(3):
            more = await PodSandbox.sample_init("task", config, {})
            await more["default"].exec(["true"])
            await PodSandbox.sample_cleanup("task", config, more, False)
        sent = {key: count - before.get(key, 0) for key, count in site.cluster.requests.sent.items()}
        others = sum(count for key, count in sent.items() if not key.startswith(("EXEC", "WATCH")))
        assert others <= 3 * 4
        assert environments


async def test_services_beside_it(make: Make) -> None:
    service = {
        "image": IMAGE,
        "pull_policy": "IfNotPresent",
        "command": "sleep 1; echo up >/tmp/up; exec sleep 1000",
        "ready": "test -e /tmp/up",
    }
    async with make(services={"db": service}) as environments:
        assert (await environments["db"].exec(["cat", "/tmp/up"])).stdout == "up\n"
        hosts = (await environments["default"].exec(["getent", "hosts", "db"])).stdout
        assert hosts.split()[0] in ("127.0.0.1", "::1")


async def test_services_in_pods_of_their_own(make: Make) -> None:
    service = {"image": IMAGE, "pull_policy": "IfNotPresent", "separate": True, "command": "exec sleep 1000"}
    async with make(services={"db": service}) as environments:
        addresses = []
        for name in ("default", "db"):
            found = await environments[name].exec(["getent", "hosts", "db"])
            addresses.append(found.stdout.split()[0])
        assert addresses[0] == addresses[1]
        assert (
            await environments["default"].exec(["cat", "/proc/sys/kernel/hostname"])
        ).stdout == "default\n"


async def test_a_warm_pod_is_claimed(make: Make) -> None:
    config = PodConfig(image=IMAGE, pull_policy="IfNotPresent", warm=2)
    await PodSandbox.task_init("task", config)
    try:
        pool = (await sites.current()).pools[config]
        async with asyncio.timeout(60):
            while len(pool.ready) < 2:
                await asyncio.sleep(0.05)
        began = time.monotonic()
        environments = await PodSandbox.sample_init("task", config, {})
        took = time.monotonic() - began
        assert (await environments["default"].exec(["echo", "warm"])).stdout == "warm\n"
        print(f"claimed in {took * 1000:.1f} ms")
        await PodSandbox.sample_cleanup("task", config, environments, False)
    finally:
        await PodSandbox.task_cleanup("task", config, True)


async def test_many_at_once(make: Make, cluster: Cluster) -> None:
    async with make():
        config = PodConfig(
            image=IMAGE,
            pull_policy="IfNotPresent",
            resources={"memory": "64Mi", "request_memory": "8Mi", "request_cpu": 0.005},
        )  # type: ignore[arg-type]

        async def one(number: int) -> str:
            environments = await PodSandbox.sample_init("task", config, {})
            try:
                return (await environments["default"].exec(["echo", str(number)])).stdout
            finally:
                await PodSandbox.sample_cleanup("task", config, environments, False)

        results = await asyncio.gather(*(one(number) for number in range(20)))
        assert results == [f"{number}\n" for number in range(20)]
