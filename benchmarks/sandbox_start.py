"""How soon a sandbox is there and how soon a command in it is done, against a bare bwrap and Docker."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from statistics import median, quantiles

from benchmarks import bwrap, docker
from benchmarks.bars import Bar, missing
from benchmarks.sandboxes import keeping, start, started, true_in
from hawk.sandbox.client import Keeper
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.prepare import Lower, describe_keeper, prepare

PER_ROUND = 10
CREATE, EXEC = "create + first command", "exec of true"


def measure(base: Path, rounds: int) -> list[Bar]:
    return asyncio.run(_measure(base, rounds))


async def _measure(base: Path, rounds: int) -> list[Bar]:
    async with keeping() as keeper:
        return [
            *await _against_bwrap(keeper, base, rounds * PER_ROUND),
            *await _against_docker(keeper, base, rounds),
        ]


async def _against_bwrap(keeper: Keeper, base: Path, count: int) -> list[Bar]:
    config = BubblewrapConfig()
    bare = bwrap.bare(base, config, single_id=keeper.facts["single_id"])
    box, _ = await start(keeper, config, Lower())
    ours, theirs, execs = [], [], []
    for i in range(count + 3):  # the first only warm up
        figures = await started(keeper, config, Lower()), bare(), await true_in(box)
        if i >= 3:
            for times, figure in zip((ours, theirs, execs), figures, strict=True):
                times.append(figure)
    await box.close()
    p50, p99, bwraps = median(ours), _p99(ours), median(theirs)
    note = f"{p50 * 1000:.1f} ms against {bwraps * 1000:.1f} ms, same mounts, {count} of each in turn"
    return [
        Bar(f"{CREATE} / bare bwrap", p50 / bwraps, 3.5, "x", f"{note}; {describe_keeper(keeper)}"),
        Bar(f"{CREATE}, p99 / p50", p99 / p50, 4, "x", f"{p99 * 1000:.1f} ms against {p50 * 1000:.1f} ms"),
        Bar(
            f"{EXEC}, p50",
            median(execs) * 1000,
            5,
            "ms",
            f"p99 {_p99(execs) * 1000:.1f} ms, {count} of them",
        ),
    ]


async def _against_docker(keeper: Keeper, base: Path, rounds: int) -> list[Bar]:
    against = (f"{CREATE} / docker run", 1 / 15), (f"{EXEC} / docker exec", 1 / 10)
    root = docker.root_filesystem(base)
    config = BubblewrapConfig(rootfs=str(root), inspect_tools=False)
    lower = (await prepare(config))["default"]
    box, _ = await start(keeper, config, lower)
    ours, runs, execs, their_execs = [], [], [], []
    try:
        with docker.daemon(base, root) as rival:
            for i in range(rounds + 1):  # the first only warms up
                figures = await started(keeper, config, lower), rival.run(), await true_in(box), rival.exec()
                if i:
                    for times, figure in zip((ours, runs, execs, their_execs), figures, strict=True):
                        times.append(figure)
    except docker.AbsentError as ex:
        print(f"  DOCKER IS NOT MEASURED: {ex}", file=sys.stderr, flush=True)
        return [missing(name, limit, "x", str(ex), needed=False) for name, limit in against]
    finally:
        await box.close()
    pairs = (ours, runs), (execs, their_execs)
    return [
        Bar(
            name,
            median(mine) / median(theirs),
            limit,
            "x",
            f"{median(mine) * 1000:.1f} ms against {median(theirs) * 1000:.0f} ms of {rival.about}, "
            f"same root file system, {rounds} of each in turn",
        )
        for (name, limit), (mine, theirs) in zip(against, pairs, strict=True)
    ]


def _p99(times: list[float]) -> float:
    return quantiles(times, n=100, method="inclusive")[98]
