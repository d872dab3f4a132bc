from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from inspect_ai.util import SandboxEnvironment

from hawk.kube.api import Cluster
from hawk.sandbox.pod import site as sites
from hawk.sandbox.pod.options import PodConfig
from hawk.sandbox.pod.provider import PodSandbox
from tests.kube.fake import Fake, fake_cluster

Make = Callable[..., contextlib.AbstractAsyncContextManager[dict[str, SandboxEnvironment]]]


@pytest_asyncio.fixture
async def kube(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Fake]:
    """A cluster to which the provider connects; after the test nothing of ours may be left in it."""
    for name in ("HAWK_JOB_ID", "HAWK_KUBE_OWNER", "HAWK_KUBE_OWNER_UID", "HAWK_POD_NAME"):
        monkeypatch.delenv(name, raising=False)
    async with fake_cluster() as (fake, cluster):
        fake.home = str(tmp_path)

        async def connect() -> Cluster:
            return cluster

        monkeypatch.setattr(sites, "connecting", connect)
        yield fake
        await sites.close()
        left = {kind: list(items) for kind, items in fake.objects.items() if items and kind != "Event"}
        assert left == {}


@pytest.fixture
def make(kube: Fake) -> Make:
    """Makes the sandboxes of one attempt with a configuration's fields."""

    @contextlib.asynccontextmanager
    async def made(**fields: object) -> AsyncIterator[dict[str, SandboxEnvironment]]:
        config = PodConfig.model_validate(fields)
        await PodSandbox.task_init("task", config)
        environments: dict[str, SandboxEnvironment] = {}
        try:
            environments = await PodSandbox.sample_init("task", config, {})
            yield environments
        finally:
            await PodSandbox.sample_cleanup("task", config, environments, False)
            await PodSandbox.task_cleanup("task", config, True)

    return made
