"""A namespace of a real cluster for the session, in which nothing of ours may be left in the end.

KUBECONFIG names the cluster; without it every test below is skipped, and one line says so. HAWK_TEST_IMAGE is an image
that its nodes have or can pull: a Debian with a shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio
from inspect_ai.util import SandboxEnvironment

from hawk.kube.api import Cluster, connect
from hawk.sandbox.pod import site as sites
from hawk.sandbox.pod.options import PodConfig
from hawk.sandbox.pod.provider import PodSandbox

IMAGE = os.environ.get("HAWK_TEST_IMAGE", "hawk.test/debian:12")
WITHOUT = "tests/kubernetes is SKIPPED: KUBECONFIG names no cluster"
ENDING = 60.0
"""Seconds after which nothing may be left."""

Make = Callable[..., contextlib.AbstractAsyncContextManager[dict[str, SandboxEnvironment]]]


def has_cluster() -> bool:
    return bool(os.environ.get("KUBECONFIG"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if has_cluster():
        return
    mark = pytest.mark.skip(reason=WITHOUT)
    for item in items:
        if item.path.parent.name == "kubernetes" and item.path.name != "test_api_shapes.py":
            item.add_marker(mark)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not has_cluster() and any(
        "tests/kubernetes" in report.nodeid for report in terminalreporter.stats.get("skipped", ())
    ):
        terminalreporter.write_line(f"!!! {WITHOUT} !!!", yellow=True, bold=True)


@pytest.fixture(scope="session")
def namespace() -> Iterator[str]:
    """A namespace of its own: HAWK_TEST_NAMESPACE as a prefix, when given; deleted in the end."""
    name = f"{os.environ.get('HAWK_TEST_NAMESPACE', 'hawk-test')}-{secrets.token_hex(3)}"

    async def make() -> None:
        async with await connect(namespace=name) as cluster:
            await cluster.create(
                {"kind": "Namespace", "metadata": {"name": name, "labels": {"hawk/test": "true"}}}
            )
            # a pod before the account is there would be refused
            while await cluster.get("ServiceAccount", "default") is None:
                await asyncio.sleep(0.1)

    async def remove() -> None:
        async with await connect(namespace=name) as cluster:
            await cluster.delete("Namespace", name)
            until = time.monotonic() + ENDING
            while await cluster.get("Namespace", name) is not None and time.monotonic() < until:
                await asyncio.sleep(0.5)

    asyncio.run(make())
    try:
        yield name
    finally:
        asyncio.run(remove())


@pytest_asyncio.fixture(loop_scope="function")
async def cluster(namespace: str) -> AsyncIterator[Cluster]:
    """A connection, and the check that nothing was left."""
    async with await connect(namespace=namespace) as cluster:
        yield cluster
        await nothing_left(cluster)


async def nothing_left(cluster: Cluster) -> None:
    until = time.monotonic() + ENDING
    while True:
        left = {
            kind: [
                item["metadata"]["name"]
                for item in (await cluster.list(kind, labels="app.kubernetes.io/name=hawk"))[0]
            ]
            for kind in ("Pod", "Service", "NetworkPolicy", "Secret", "ConfigMap", "Job")
        }
        if not any(left.values()):
            return
        assert time.monotonic() < until, left
        await asyncio.sleep(0.3)


@pytest.fixture
def make(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes the sandboxes of one attempt with a configuration's fields."""
    monkeypatch.setenv("HAWK_KUBE_NAMESPACE", namespace)
    for name in ("HAWK_JOB_ID", "HAWK_KUBE_OWNER", "HAWK_KUBE_OWNER_UID", "HAWK_POD_NAME"):
        monkeypatch.delenv(name, raising=False)
    return sandboxes


@contextlib.asynccontextmanager
async def sandboxes(**fields: object) -> AsyncIterator[dict[str, SandboxEnvironment]]:
    config = PodConfig.model_validate({"image": IMAGE, "pull_policy": "IfNotPresent", **fields})
    await PodSandbox.task_init("task", config)
    environments: dict[str, SandboxEnvironment] = {}
    try:
        environments = await PodSandbox.sample_init("task", config, {})
        yield environments
    finally:
        await PodSandbox.sample_cleanup("task", config, environments, False)
        await PodSandbox.task_cleanup("task", config, True)
        await sites.close()
