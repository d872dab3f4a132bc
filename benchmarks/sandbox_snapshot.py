"""What a gibibyte that setup prepared costs each attempt: nothing, for it is never copied."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import time
from pathlib import Path
from statistics import median

from benchmarks.bars import Bar
from benchmarks.sandboxes import MEBI, keeping, true_in
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.group import Group, open_group

PER_ROUND = 10
ATTEMPTS = 20
MARK = b"hawk"
SIZE = 1024  # MiB
NOISE = 1.05
"""By how much medians of the same may differ."""

_names = (f"g{i}" for i in itertools.count())


def measure(base: Path, rounds: int) -> list[Bar]:
    return asyncio.run(_measure(base, rounds))


async def _measure(base: Path, rounds: int) -> list[Bar]:
    empty = _config(": > /workspace/data")
    filled = _config(
        f"dd if=/dev/urandom of=/workspace/data bs=1M count={SIZE} status=none\n"
        f"printf {MARK.decode()} >> /workspace/data"
    )
    async with keeping():
        with_it, without = await _boots(empty, filled, rounds * PER_ROUND)
        taken = await _taken(base, filled)
    return [
        Bar(
            "warm start with 1 GiB prepared / with an empty file",
            median(with_it) / median(without),
            NOISE,
            "x",
            f"{median(with_it) * 1000:.1f} ms against {median(without) * 1000:.1f} ms, {len(with_it)} of each in "
            f"turn; {NOISE - 1:.0%} for noise",
        ),
        Bar(
            f"1 GiB prepared: taken by {ATTEMPTS} attempts",
            max(taken.values()) / MEBI,
            SIZE / 16,
            "MiB",
            f"one copy would be {SIZE} MiB; "
            + ", ".join(f"{what} {size / MEBI:.2f} MiB" for what, size in taken.items())
            + "; its end was read in each",
        ),
    ]


def _config(script: str) -> BubblewrapConfig:
    return BubblewrapConfig.model_validate(
        {"setup": {"script": script}, "limits": {"workspace": f"{2 * SIZE}m"}, "inspect_tools": False}
    )


async def _boots(
    empty: BubblewrapConfig, filled: BubblewrapConfig, count: int
) -> tuple[list[float], list[float]]:
    """Seconds from an attempt's start until its first command is done, with and without the gibibyte, in turn."""
    with_it, without = [], []
    for i in range(count + 2):  # the first builds the layers, the second warms up
        for config, times in ((empty, without), (filled, with_it)):
            began = time.perf_counter()
            group = await open_group(config, name=next(_names))
            await true_in(group.boxes["default"])
            if i >= 2:
                times.append(time.perf_counter() - began)
            await group.close()
    return with_it, without


async def _taken(base: Path, filled: BubblewrapConfig) -> dict[str, int]:
    """Bytes that the living attempts have taken, by where one would see a copy."""
    home = base / "home"
    os.sync()
    free, stored = shutil.disk_usage(base).free, _stored(home)
    groups: list[Group] = []
    try:
        written = 0
        for _ in range(ATTEMPTS):
            groups.append(await open_group(filled, name=next(_names)))
            box = groups[-1].boxes["default"]
            done = await box.run(["tail", "-c", str(len(MARK)), "data"])
            if done.stdout != MARK:
                raise RuntimeError(f"the prepared file ends with {done.stdout!r}, not {MARK!r}")
            written += (await box.usage())["workspace"]
        os.sync()
        return {
            "their workspaces": written,
            "HAWK_HOME": _stored(home) - stored,
            "the disk": free - shutil.disk_usage(base).free,
        }
    finally:
        for group in groups:
            await group.close()


def _stored(directory: Path) -> int:
    """Bytes on disk of all below a directory."""
    return sum(
        os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118
        for folder, folders, files in os.walk(directory)
        for name in (*folders, *files)
    )
