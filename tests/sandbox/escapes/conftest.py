"""A sandbox to break out of, what is to be had outside, and somebody else's sandbox; all of one module."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from hawk.sandbox.box import Box
from hawk.sandbox.client import Keeper
from tests.sandbox.conftest import MakeBox, boxes_of, new_home, new_keeper
from tests.sandbox.escapes.attacks import SECRET, THEIRS, Host


@pytest.fixture(scope="module")
def host(supported: None) -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch, new_home() as home:
        patch.setenv("HAWK_ACCESS_TOKEN", SECRET)
        patch.setenv("OPENAI_API_KEY", SECRET)
        home.mkdir(parents=True, exist_ok=True)
        (home / "token").write_text(SECRET)
        with tempfile.TemporaryDirectory(prefix="hk-public-") as place:
            public = Path(place)
            public.chmod(0o777)
            (public / "file").write_text(SECRET)
            (public / "file").chmod(0o666)
            yield Host(home, public)
            assert (public / "file").read_text() == SECRET
            assert (home / "token").read_text() == SECRET
            assert sorted(path.name for path in public.iterdir()) == ["file"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keeper(host: Host) -> AsyncIterator[Keeper]:
    async with new_keeper() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def make(keeper: Keeper) -> AsyncIterator[MakeBox]:
    async with boxes_of(keeper) as maker:
        yield maker


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["user", "root"])
async def box(request: pytest.FixtureRequest, make: MakeBox) -> Box:
    """Where attacks run: as an ordinary user of the sandbox, and as its root."""
    return await make(user=request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def other(make: MakeBox) -> Box:
    """Somebody else's sandbox, with something to be had and something that runs."""
    box = await make()
    await box.write("file", THEIRS.encode())
    await box.run(["sh", "-c", f"cd /tmp; OTHER={THEIRS} nohup sleep 7777 >/dev/null 2>&1 &"])
    return box
