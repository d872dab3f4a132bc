"""What the parts of the sandbox benchmark share: a store of one's own, a keeper, a timed start, a look at processes."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import psutil

from hawk.sandbox import pool
from hawk.sandbox.box import Box
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.group import create, create_message
from hawk.sandbox.prepare import Lower

MEBI = 1 << 20
_numbers = itertools.count()


@contextmanager
def home() -> Iterator[Path]:
    """A directory for one part, with its `HAWK_HOME`; no Hawk of this machine is seen meanwhile."""
    base = Path(tempfile.mkdtemp(prefix="hawk-benchmark-"))
    before = dict(os.environ)
    for name in before:
        if name.startswith("HAWK_"):
            del os.environ[name]
    os.environ["HAWK_HOME"] = str(base / "home")
    try:
        yield base
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(base, ignore_errors=True)
        if base.exists():
            print(f"  {base} could not be removed whole", file=sys.stderr, flush=True)


@asynccontextmanager
async def keeping() -> AsyncIterator[Keeper]:
    """The keeper of this event loop, until the block's end."""
    try:
        yield await pool.keeper()
    finally:
        await pool.close()


async def start(keeper: Keeper, config: BubblewrapConfig, lower: Lower) -> tuple[Box, float]:
    """A sandbox whose first command is done, and the seconds that both took."""
    began = time.perf_counter()
    message = create_message(config, lower, f"s{next(_numbers)}", config.network)
    box = await create(keeper, message, config)
    await true_in(box)
    return box, time.perf_counter() - began


async def started(keeper: Keeper, config: BubblewrapConfig, lower: Lower) -> float:
    """Seconds that a sandbox and its first command take; its end does not count."""
    box, took = await start(keeper, config, lower)
    await box.close()
    return took


async def true_in(box: Box) -> float:
    """Seconds that `true` takes in a sandbox."""
    began = time.perf_counter()
    done = await box.run(["true"])
    took = time.perf_counter() - began
    if done.code != 0:
        raise RuntimeError(f"true ended with {done.code}: {done.stderr.decode(errors='replace')}")
    return took


def processes_of(keeper: Keeper) -> list[psutil.Process]:
    """The keeper's processes and its sandboxes': none of them can leave its tree while it lives."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(keeper.pid)
        return [first, *first.children(recursive=True)]
    return []


def cgroups_of(keeper: Keeper) -> list[Path]:
    """The keeper's cgroups that are there now, those of its sandboxes too."""
    delegation = keeper.facts["delegation"]
    tops = {Path(path) for path in delegation["directories"].values()} if delegation else set()
    return [Path(directory) for top in tops for directory, _, _ in os.walk(top)]


def files_below(directory: Path) -> int:
    """How many files and directories there are."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(directory))
