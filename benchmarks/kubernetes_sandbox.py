"""How soon a sandbox pod is there, against `kubectl run` and `kubectl exec` on the same cluster; many of them at once.

    KUBECONFIG=… python -m benchmarks.kubernetes_sandbox [ROUNDS]

HAWK_TEST_IMAGE is an image that the nodes have: a Debian with a shell. Everything happens in a namespace that is made for
it and deleted in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator
from statistics import median

from inspect_ai.util import SandboxEnvironment

from benchmarks.bars import Bar, missing, text, write_results
from hawk.kube.api import Cluster, connect
from hawk.sandbox.pod import site as sites
from hawk.sandbox.pod.options import PodConfig
from hawk.sandbox.pod.provider import PodSandbox

IMAGE = os.environ.get("HAWK_TEST_IMAGE", "hawk.test/debian:12")
CROWD = int(os.environ.get("HAWK_BENCH_CROWD", "50"))
SMALL = {"memory": "64Mi", "request_memory": "4Mi", "request_cpu": 0.001}


def config_of(**fields: object) -> PodConfig:
    return PodConfig.model_validate(
        {"image": IMAGE, "pull_policy": "IfNotPresent", "resources": SMALL, **fields}
    )


@contextlib.asynccontextmanager
async def task(config: PodConfig) -> AsyncIterator[sites.Site]:
    await PodSandbox.task_init("bench", config)
    try:
        yield await sites.current()
    finally:
        await PodSandbox.task_cleanup("bench", config, True)


async def begin(config: PodConfig) -> dict[str, SandboxEnvironment]:
    return await PodSandbox.sample_init("bench", config, {})


async def end(config: PodConfig, made: dict[str, SandboxEnvironment]) -> None:
    await PodSandbox.sample_cleanup("bench", config, made, False)


async def ours(config: PodConfig) -> float:
    """Seconds until the first command in a new pod is done."""
    began = time.perf_counter()
    made = await begin(config)
    assert (await made["default"].exec(["true"])).success
    took = time.perf_counter() - began
    await end(config, made)
    return took


async def kubectl(*words: str) -> None:
    process = await asyncio.create_subprocess_exec("kubectl", *words, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0, words


async def theirs(namespace: str) -> float:
    """The same by kubectl, as one would type it: run, wait until it is ready, exec."""
    name = f"bench-{secrets.token_hex(4)}"
    place = ("-n", namespace)
    began = time.perf_counter()
    run = ("run", name, "--image", IMAGE, "--restart=Never", "--image-pull-policy=IfNotPresent")
    await kubectl(*place, *run, "--", "sleep", "infinity")
    await kubectl(*place, "wait", "--for=condition=Ready", "--timeout=60s", f"pod/{name}")
    await kubectl(*place, "exec", name, "--", "true")
    took = time.perf_counter() - began
    await kubectl(*place, "delete", "pod", name, "--grace-period=1", "--wait=true")
    return took


async def cold(namespace: str, rounds: int) -> list[Bar]:
    config = config_of()
    starts, commands = [], []
    async with task(config):
        kept = await begin(config)
        for number in range(rounds + 1):  # the first only warms up
            start = await ours(config), await theirs(namespace)
            command = await commanded(kept["default"], namespace)
            if number:
                starts.append(start)
                commands.append(command)
        await end(config, kept)
    return [
        against("pod created → first command / kubectl run + exec", starts),
        against("a command in a pod / kubectl exec", commands),
    ]


async def commanded(sandbox: SandboxEnvironment, namespace: str) -> tuple[float, float]:
    """Seconds of `true` in a pod that is there, by us and by kubectl."""
    name = sandbox.as_type(PodSandbox).box.tracked.name
    began = time.perf_counter()
    await sandbox.exec(["true"])
    between = time.perf_counter()
    await kubectl("-n", namespace, "exec", name, "--", "true")
    return between - began, time.perf_counter() - between


def against(name: str, pairs: list[tuple[float, float]]) -> Bar:
    mine, rival = median(p[0] for p in pairs), median(p[1] for p in pairs)
    return Bar(
        name, mine / rival, 1.3, "x", f"{mine:.2f} s against {rival:.2f} s, {len(pairs)} of each in turn"
    )


async def warm(rounds: int) -> list[Bar]:
    config = config_of(warm=2)
    claims = []
    async with task(config) as site:
        pool = site.pools[config]
        for _ in range(rounds):
            while not pool.ready:  # noqa: ASYNC110  # a figure, not a race
                await asyncio.sleep(0.05)
            began = time.perf_counter()
            made = await begin(config)
            claims.append(time.perf_counter() - began)
            await end(config, made)
    return [
        Bar("claimed from the warm pool, p50", median(claims) * 1000, 150, "ms", f"{rounds} of them"),
        Bar("claimed, worst", max(claims) * 1000, 150, "ms"),
    ]


async def crowd(cluster: Cluster, count: int) -> list[Bar]:
    config = config_of(start_timeout=600)
    async with task(config) as site:
        before, cpu, began = dict(site.cluster.requests.sent), time.process_time(), time.perf_counter()
        there = 0
        everybody = asyncio.Event()

        async def one() -> bool:
            nonlocal there
            made = await begin(config)
            try:
                there += 1
                if there == count:
                    everybody.set()
                fine = (await made["default"].exec(["true"])).success
                async with asyncio.timeout(600):
                    await everybody.wait()
                return fine and (await made["default"].exec(["true"])).success
            finally:
                await end(config, made)

        done = await asyncio.gather(*(one() for _ in range(count)), return_exceptions=True)
        took, used = time.perf_counter() - began, time.process_time() - cpu
        sent = {key: value - before.get(key, 0) for key, value in site.cluster.requests.sent.items()}
    lost = [result for result in done if result is not True]
    for result in lost[:3]:
        print(f"  lost: {result!r}", file=sys.stderr)
    requests = sum(value for key, value in sent.items() if not key.startswith(("EXEC", "WATCH")))
    note = f"{count} at once, {took:.1f} s, {used / took:.2f} of a core"
    return [
        Bar(f"{count} sandboxes at once: lost", len(lost), 0, "", note),
        Bar(f"{count} at once: left after the end", await leaked(cluster), 0, ""),
        Bar("requests per sandbox beyond its commands", requests / count, 4, "", str(sent)),
        Bar("memory of the process", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 300, "MiB"),
    ]


async def leaked(cluster: Cluster) -> int:
    until = time.monotonic() + 60
    while True:
        left = 0
        for kind in ("Pod", "Service", "NetworkPolicy"):
            left += len((await cluster.list(kind, labels="app.kubernetes.io/name=hawk"))[0])
        if not left or time.monotonic() > until:
            return left
        await asyncio.sleep(0.5)


async def measure(rounds: int) -> list[Bar]:
    if not os.environ.get("KUBECONFIG"):
        why = "KUBECONFIG names no cluster"
        print(f"NOT MEASURED: {why}", file=sys.stderr)
        return [missing("pod created → first command / kubectl run + exec", 1.3, "x", why, needed=False)]
    name = f"hawk-bench-{secrets.token_hex(3)}"
    os.environ["HAWK_KUBE_NAMESPACE"] = name
    async with await connect() as cluster:
        await cluster.create({"kind": "Namespace", "metadata": {"name": name}})
        while await cluster.get("ServiceAccount", "default") is None:  # noqa: ASYNC110  # the cluster makes it
            await asyncio.sleep(0.1)
        try:
            bars = await cold(name, rounds) if shutil.which("kubectl") else []
            return [*bars, *await warm(rounds), *await crowd(cluster, CROWD)]
        finally:
            await cluster.delete("Namespace", name)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    bars = asyncio.run(measure(rounds))
    print(text(bars))
    print(write_results("kubernetes_sandbox", bars))
    return int(any(bar.verdict == "MISS" for bar in bars))


if __name__ == "__main__":
    sys.exit(main())
