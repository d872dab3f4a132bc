from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from hawk.kube.api import Cluster
from tests.kube.fake import Fake, fake_cluster


@pytest_asyncio.fixture
async def kube() -> AsyncIterator[tuple[Fake, Cluster]]:
    async with fake_cluster() as pair:
        yield pair
