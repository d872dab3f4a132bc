"""Inspect's own checks of a sandbox provider, every one of them, as each user that a sandbox may be configured for.

As root this is with many users in a sandbox; `test_as_ordinary_user.py` runs the same with one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
import pytest_asyncio
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from hawk.sandbox.client import Keeper
from hawk.sandbox.provider import BubblewrapSandbox
from tests.sandbox.conftest import boxes_of, new_home, new_keeper

pytestmark = pytest.mark.asyncio(loop_scope="module")

_BYPASS = "root may read and write files whatever their permissions: `test_root_bypasses_permissions`"
_ONE_USER = "only one user exists in a sandbox that no root has made, so that there is none to change to"
EXPECTED = {
    "root": {
        "test_read_file_not_allowed": _BYPASS,
        "test_write_text_file_without_permissions": _BYPASS,
        "test_write_binary_file_without_permissions": _BYPASS,
    },
    "user": {},
}
"""User to the checks that can't hold, and why."""
EXPECTED_WITH_ONE_USER = {"test_exec_as_user": _ONE_USER}
"""The same for every sandbox that an ordinary user makes."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_keeper(supported: None) -> AsyncIterator[Keeper]:
    with new_home():
        async with new_keeper() as keeper:
            yield keeper


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["user", "root"])
async def shared(request: pytest.FixtureRequest, module_keeper: Keeper) -> AsyncIterator[BubblewrapSandbox]:
    """One sandbox for all checks, with what is in the user's name."""
    async with boxes_of(module_keeper) as make:
        yield BubblewrapSandbox(await make(user=request.param))


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_env(
    request: pytest.FixtureRequest, shared: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> SandboxEnvironment:
    """The sandbox, under the name that the checks know; those that can't hold are marked."""
    expected = EXPECTED[request.node.callspec.params["shared"]]
    if shared.box.keeper.facts["single_id"]:
        expected = expected | EXPECTED_WITH_ONE_USER
    reason = expected.get(request.node.originalname)
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    # After a timeout the checks give the killed five seconds to go. Ours have gone when it is told.
    monkeypatch.setattr(self_check, "anyio", SimpleNamespace(sleep=_no_pause))
    return shared


async def _no_pause(_: float) -> None:
    pass


async def test_every_check_of_inspect_is_collected(request: pytest.FixtureRequest) -> None:
    collected = {getattr(item, "originalname", "") for item in request.session.items}
    if len(request.config.args) == 1 and "::" in request.config.args[0]:
        pytest.skip("a selection was asked for")
    assert set(self_check.__all__) <= collected
    assert len(self_check.__all__) >= 30


async def test_root_bypasses_permissions(shared: BubblewrapSandbox) -> None:
    """As Linux has it, without any code of ours: a program of the sandbox opens what nobody may read or write."""
    result = await shared.exec(
        ["sh", "-c", "umask 777; echo one > x; echo two > x; cat x; stat -c %a x; rm -f x"]
    )
    is_root = (await shared.exec(["id", "-u"])).stdout == "0\n"
    assert (result.stdout == "two\n0\n") is is_root
