"""Sandboxes for tests, in a store of their own, after which nothing may be left."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hawk.sandbox import pool
from hawk.sandbox.box import Box
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.errors import SandboxUnsupportedError
from hawk.sandbox.group import create, create_message
from hawk.sandbox.prepare import prepare
from tests.sandbox.traces import assert_nothing_left, of_this_process

MakeBox = Callable[..., Awaitable[Box]]


@contextlib.contextmanager
def new_home() -> Iterator[Path]:
    """A `HAWK_HOME`, and a place for what Inspect keeps; nothing of a sandbox may be left in the end."""
    path = Path(tempfile.mkdtemp(prefix="hk-"))  # short: sockets will be below
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAWK_HOME", str(path / "hawk"))
        patch.setenv("XDG_DATA_HOME", str(path / "data"))
        patch.setenv("INSPECT_LOG_DIR", str(path / "logs"))
        for label in pool.LABELS:
            patch.delenv(label, raising=False)
        try:
            yield path / "hawk"
            assert_nothing_left(of_this_process())
        finally:
            shutil.rmtree(path, ignore_errors=True)


@contextlib.asynccontextmanager
async def new_keeper() -> AsyncIterator[Keeper]:
    """The started keeper of this loop."""
    keeper = await pool.keeper()
    traces = of_this_process()
    try:
        yield keeper
        traces.watch(keeper.pid)
    finally:
        await pool.close()
    assert_nothing_left(traces)


@contextlib.asynccontextmanager
async def boxes_of(keeper: Keeper) -> AsyncIterator[MakeBox]:
    """Makes sandboxes with the fields of a configuration; all are closed in the end."""
    made: list[Box] = []

    async def make(**fields: Any) -> Box:
        config = BubblewrapConfig.model_validate({"inspect_tools": False, **fields})
        lower = (await prepare(config))["default"]
        message = create_message(config, lower, f"box{len(made)}", config.network)
        made.append(await create(keeper, message, config))
        return made[-1]

    yield make
    for box in made:
        await box.close()
    if not keeper.gone:
        assert (await keeper.ask({"op": "list"}))["sandboxes"] == []


@pytest.fixture(scope="session")
def supported() -> None:
    """Skips what needs sandboxes where the machine allows none."""

    async def start() -> None:
        (await pool.start()).close()

    with new_home():
        try:
            asyncio.run(start())
        except SandboxUnsupportedError as ex:
            pytest.skip(f"NOT TESTED: {ex}")


@pytest.fixture
def home(supported: None) -> Iterator[Path]:
    """`HAWK_HOME`, in a directory of its own."""
    with new_home() as path:
        yield path


@pytest.fixture
async def keeper(home: Path) -> AsyncIterator[Keeper]:
    """A started keeper."""
    async with new_keeper() as started:
        yield started


@pytest.fixture
async def box(keeper: Keeper) -> AsyncIterator[MakeBox]:
    """Makes sandboxes: `await box(limits={"memory": "64m"})`."""
    async with boxes_of(keeper) as make:
        yield make
