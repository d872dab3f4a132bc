"""What the recorder adds to the work of benchmarks.running: the same job with it and without, in turn.

Counted by the workers themselves, from their start to their end: imports that happen before are not of their work.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import yaml

from benchmarks import recorder_switch
from benchmarks.bars import Bar
from benchmarks.processes import Hawk, hawk, timed
from benchmarks.running import NAMES, TASKS
from hawk.bridge.tracesegments import CURRENT
from hawk.store import stacks
from hawk.store.rundir import RunDir

LIMIT = 1.01


class Costs(NamedTuple):
    """Seconds: the longest life of a worker; CPU time of all workers, and of their recorders; the whole command."""

    wall: float
    cpu: float
    recorder: float
    workers: int
    command: float


class Ways(NamedTuple):
    """The same with the recorder and without."""

    on: Costs
    off: Costs


def measure(rounds: int) -> list[Bar]:
    base = Path(tempfile.mkdtemp(prefix="hawk-benchmark-"))
    try:
        shutil.copy(recorder_switch.__file__, base / "sitecustomize.py")
        tasks = [{"file": str(TASKS), "items": [{"name": name} for name in NAMES]}]
        (base / "trivial.yaml").write_text(yaml.safe_dump({"tasks": tasks}))
        with ExitStack() as stack:
            ways = {way: stack.enter_context(_instance(base, way)) for way in ("on", "off")}
            for instance in ways.values():
                instance.start()
            return _bars([_pair(ways, base, number) for number in range(rounds)])
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _instance(base: Path, way: str) -> AbstractContextManager[Hawk]:
    costs = base / "costs" / way
    costs.mkdir(parents=True)
    return hawk(
        base / way,
        HAWK_MIDDLEMAN="0",
        HAWK_WARM="0",
        PYTHONPATH=str(base),
        BENCHMARK_COSTS=str(costs),
        BENCHMARK_RECORDER=way,
    )


def _pair(ways: dict[str, Hawk], base: Path, number: int) -> Ways:
    """One run each; every other time the other way round."""
    order = ("on", "off") if number % 2 == 0 else ("off", "on")
    found = {way: _run(ways[way], base, way) for way in order}
    pair = Ways(**found)
    print(
        f"  round {number + 1}: workers with {pair.on.wall:.2f} s, {pair.on.cpu:.2f} s of CPU; "
        f"without {pair.off.wall:.2f} s, {pair.off.cpu:.2f} s",
        file=sys.stderr,
        flush=True,
    )
    return pair


def _run(instance: Hawk, base: Path, way: str) -> Costs:
    """Run the job to its end, and delete it."""
    root = instance.settings.root
    command = timed([instance.command, "eval-set", base / "trivial.yaml", "--wait"], instance.env)
    (run,) = (RunDir(path) for path in root.glob("[!.]*"))
    for kept in (stacks.last_file(run.worker(0)), run.worker(0) / CURRENT):
        if kept.exists() != (way == "on"):
            raise RuntimeError(
                f"with the recorder {way}, {kept.name} {'is' if kept.exists() else 'is not'} there"
            )
    left = list((base / "costs" / way).glob("*.json"))  # of each of its workers
    taken = [json.loads(path.read_bytes()) for path in left]
    costs = Costs(
        wall=max(worker["wall"] for worker in taken),
        cpu=sum(worker["cpu"] for worker in taken),
        recorder=sum(worker["recorder"] for worker in taken),
        workers=len(taken),
        command=command,
    )
    for path in left:
        path.unlink()
    timed([instance.command, "delete", run.job_id, "-y"], instance.env)
    return costs


def _bars(pairs: list[Ways]) -> list[Bar]:
    own = median(pair.on.recorder / pair.on.cpu for pair in pairs)
    thread = (
        f"{1000 * median(pair.on.recorder for pair in pairs):.0f} ms a run, of {pairs[0].on.workers} workers"
    )
    return [
        _ratio("wall clock", "wall", pairs),
        _ratio("CPU time", "cpu", pairs),
        Bar("recorder's thread: share of the workers' CPU time", 100 * own, 1, "%", thread),
    ]


def _ratio(what: str, field: str, pairs: list[Ways]) -> Bar:
    on, off = [[getattr(costs, field) for costs in way] for way in zip(*pairs, strict=True)]
    ratios = sorted(a / b for a, b in zip(on, off, strict=True))
    commands = " against ".join(
        f"{median(costs.command for costs in way):.1f}" for way in zip(*pairs, strict=True)
    )
    note = (
        f"4 tasks x 250 samples, median of {len(pairs)} pairs ({ratios[0]:.3f} to {ratios[-1]:.3f}): "
        f"{median(on):.2f} s against {median(off):.2f} s; best {min(on):.2f} s against {min(off):.2f} s"
    )
    if field == "wall":
        note += f"; the whole commands {commands} s"
    return Bar(f"workers' {what}, with the recorder / without", median(ratios), LIMIT, "x", note)
