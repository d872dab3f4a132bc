"""Jobs of this machine's engine whose attempts have pods: seen, ended and cleaned up like any others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hawk.kube.api import Cluster
from tests.commandline import CommandLine
from tests.kubernetes.conftest import IMAGE, nothing_left

TASK = Path(__file__).with_name("sandbox_task.py")


@pytest.fixture
def hawk(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path_factory.mktemp("hk"), HAWK_KUBE_NAMESPACE=namespace)
    try:
        yield line
    finally:
        line.run("delete", line.snapshot()["job_id"], "-y")
        line.close()


def eval_set(tmp_path: Path, command: str = "cat given", task: str = "commands", **config: Any) -> Path:
    body = {
        "name": "pods",
        "tasks": [{"file": str(TASK), "items": [{"name": task, "args": {"command": command}}]}],
        "models": ["mockllm/model"],
        "runs": 2,
        "attempts": "parallel",
        "sandbox": {"type": "pod", "config": {"image": IMAGE, "pull_policy": "IfNotPresent", **config}},
    }
    path = tmp_path / "evals.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


async def pods(cluster: Cluster) -> list[dict[str, Any]]:
    return (await cluster.list("Pod", labels="app.kubernetes.io/component=sandbox"))[0]


async def run(line: CommandLine, *args: str | Path) -> str:
    return await asyncio.to_thread(line.ok, *args)


async def shown(line: CommandLine, text: str, patience: float) -> None:
    """Wait until `hawk watch` says it."""
    until = time.monotonic() + patience
    while text not in (said := json.dumps(await asyncio.to_thread(line.snapshot))):
        assert time.monotonic() < until, said[-3000:]
        await asyncio.sleep(0.3)


async def test_a_job_from_beginning_to_end(hawk: CommandLine, cluster: Cluster, tmp_path: Path) -> None:
    await run(hawk, "eval-set", eval_set(tmp_path, warm=1), "--wait")
    report = json.loads(await run(hawk, "report", "--json"))
    assert json.dumps(report).count('"passed"') >= 1
    await nothing_left(cluster)


async def test_what_agents_left_in_pods_is_scored_again_in_others(
    hawk: CommandLine, cluster: Cluster, tmp_path: Path
) -> None:
    work = "mkdir -p /srv/w && cd /srv/w && echo made >made; rm given"
    await run(hawk, "eval-set", eval_set(tmp_path, work, "works", working_dir="/srv/w"), "--wait")
    job = (await asyncio.to_thread(hawk.snapshot))["job_id"]
    await run(hawk, "rescore", job, "--wait")
    for name in (job, f"{job}-rescore-1"):
        report = json.loads(await run(hawk, "report", name, "--json"))
        rows = [row for pair in report["pairs"] for row in pair["attempts"]]
        assert [(row["outcome"], row["workspace"]) for row in rows] == [("pass", True)] * 2, rows
    await run(hawk, "delete", f"{job}-rescore-1", "-y")
    await nothing_left(cluster)


async def test_an_image_that_is_missing_is_seen_while_it_waits(
    hawk: CommandLine, cluster: Cluster, tmp_path: Path
) -> None:
    path = eval_set(tmp_path, image="hawk.test/nothing:1", image_grace=600)
    await run(hawk, "eval-set", path)
    await shown(hawk, "hawk.test/nothing:1", 60)
    await run(hawk, "delete", (await asyncio.to_thread(hawk.snapshot))["job_id"], "-y")
    await nothing_left(cluster)


async def test_a_killed_worker_leaves_no_pods(hawk: CommandLine, cluster: Cluster, tmp_path: Path) -> None:
    await run(hawk, "eval-set", eval_set(tmp_path, command="sleep 8; cat given"))
    async with asyncio.timeout(90):
        while len(await pods(cluster)) < 4:
            await asyncio.sleep(0.3)
    before = {pod["metadata"]["name"] for pod in await pods(cluster)}
    (process,) = {pod["metadata"]["annotations"]["hawk/runner-process"] for pod in await pods(cluster)}
    os.kill(int(process.split("/")[1]), signal.SIGKILL)
    async with asyncio.timeout(90):
        while before & {pod["metadata"]["name"] for pod in await pods(cluster)}:
            await asyncio.sleep(0.3)
    async with asyncio.timeout(120):
        while (await asyncio.to_thread(hawk.snapshot))["status"] not in ("complete", "failed"):
            await asyncio.sleep(0.5)
    await nothing_left(cluster)
