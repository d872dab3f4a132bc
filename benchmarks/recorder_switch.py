"""Becomes `sitecustomize.py` of a Hawk whose recorder is weighed: every process of it runs this at its start.

A worker leaves what it took in the directory `BENCHMARK_COSTS`, a file a process. With `BENCHMARK_RECORDER=off` no
stacks are recorded, nobody watches for stalls, and the trace is Inspect's own; the heartbeat stays.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

COSTS = os.environ.get("BENCHMARK_COSTS")
TICKS = os.sysconf("SC_CLK_TCK")
OWN = "hawk-recorder"


def leave_costs() -> None:
    """Of a worker; last of all that is done at its end."""
    mine = next((thread for thread in threading.enumerate() if thread.name == OWN), None)
    if mine is None or COSTS is None:
        return
    times = os.times()
    begun = int(_fields("/proc/self/stat")[19]) / TICKS
    costs = {
        "cpu": times.user + times.system,
        "wall": time.clock_gettime(time.CLOCK_BOOTTIME) - begun,
        "recorder": sum(map(int, _fields(f"/proc/self/task/{mine.native_id}/stat")[11:13])) / TICKS,
    }
    Path(COSTS, f"{os.getpid()}.json").write_text(json.dumps(costs))


def _fields(path: str) -> list[str]:
    """What follows the name; the first is the state."""
    return Path(path).read_text().rpartition(")")[2].split()


def _no_records(recorder: Any) -> None:
    make = recorder.Recorder.__init__

    @wraps(make)
    def made(self: Any, *args: Any) -> None:
        make(self, *args)
        self._next_look = math.inf

    recorder.Recorder.__init__ = made


def _no_trace(tracefile: Any) -> None:
    tracefile.install = tracefile.checkpoint = lambda *_: None


def _no_watch(stalls: Any) -> None:
    stalls.StallWatch.start = lambda _: None


CHANGES: dict[str, Callable[[Any], None]] = {
    "hawk.runner.recorder": _no_records,
    "hawk.bridge.tracefile": _no_trace,
    "hawk.runner.stalls": _no_watch,
}


class Changing(MetaPathFinder):
    """Changes modules as they are imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        change = CHANGES.get(fullname)
        if change is None:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def changed(module: ModuleType) -> None:
                execute(module)
                change(module)

            spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


if __name__ == "sitecustomize":
    atexit.register(leave_costs)
    if os.environ.get("BENCHMARK_RECORDER") == "off":
        sys.meta_path.insert(0, Changing())
