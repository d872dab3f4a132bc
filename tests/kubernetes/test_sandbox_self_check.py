"""Inspect's own checks of a sandbox provider, every one of them, as root and as an ordinary user."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from tests.kubernetes.conftest import sandboxes
from tests.sandbox.test_self_check import EXPECTED

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["root", "user"])
async def shared(request: pytest.FixtureRequest, namespace: str) -> AsyncIterator[SandboxEnvironment]:
    """One sandbox for all checks."""
    user = {"root": {}, "user": {"user": "1000", "working_dir": "/tmp"}}[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAWK_KUBE_NAMESPACE", namespace)
        async with sandboxes(**user) as environments:
            yield environments["default"]


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_env(request: pytest.FixtureRequest, shared: SandboxEnvironment) -> SandboxEnvironment:
    """The sandbox, under the name that the checks know; those that can't hold are marked."""
    expected = EXPECTED[request.node.callspec.params["shared"]]
    reason = expected.get(request.node.originalname)
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    return shared


async def test_every_check_of_inspect_is_there() -> None:
    assert len(self_check.__all__) >= 30
