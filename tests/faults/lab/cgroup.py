"""A cgroup with little memory, for workers."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from tests.faults.lab.bench import Bench
from tests.faults.lab.run import Run

_PLACES = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


def cgroup_missing() -> str | None:
    """Why none can be made here."""
    for parent, file in _PLACES:
        made = parent / f"hawk-lab-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        there = (made / file).exists()
        made.rmdir()
        if there:
            return None
    return "this machine lets no memory cgroup be made"


def memory_cgroup(bench: Bench, mib: int) -> Path:
    """One with so many MiB; taken away with the bench."""
    for parent, file in _PLACES:
        made = parent / f"hawk-lab-{os.getpid()}-{bench.word()}"
        with contextlib.suppress(OSError):
            made.mkdir()
            if (made / file).exists():
                (made / file).write_text(f"{mib}M")
                bench.closing.callback(_remove, made)
                return made
            made.rmdir()
    raise RuntimeError("no memory cgroup can be made")


def usage(group: Path) -> str:
    """The file that says how many bytes are in use."""
    names = ("memory.usage_in_bytes", "memory.current")
    return next(str(group / name) for name in names if (group / name).exists())


def move_workers(run: Run, group: Path) -> None:
    """Put every worker of the job into it."""
    there = (group / "cgroup.procs").read_text().split()
    for pid in run.workers():
        if str(pid) not in there:
            with contextlib.suppress(OSError):
                (group / "cgroup.procs").write_text(str(pid))


def _remove(group: Path) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
