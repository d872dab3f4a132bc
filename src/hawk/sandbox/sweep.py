"""Removing what keepers left that were killed together with the process that cleans up behind them.

A keeper's end is the end of its sandboxes: the kernel kills their processes, and takes back their mounts and what they
kept in memory. What can remain are empty cgroups, files of sandboxes with `storage: disk`, and the keeper's own
three small files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hawk.sandbox import cgroups, pool
from hawk.sandbox.presence import FOLDER


@dataclass(frozen=True)
class KeeperInfo:
    """A keeper as its file tells of it.

    Attributes:
        alive: Whether one of its processes holds its lock.
        about: Its labels: `HAWK_JOB_ID`, `HAWK_WORKER`, and `pid`.
    """

    name: str
    alive: bool
    about: dict[str, Any]


def keepers(store: Path) -> list[KeeperInfo]:
    """All keepers that have a file, the living and the dead."""
    return [_look(path) for path in sorted((store / FOLDER).glob("*.json"))]


def _look(path: Path) -> KeeperInfo:
    about: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        about = json.loads(path.read_text() or "{}")
    with _locked(path) as free:
        return KeeperInfo(path.stem, not free, about)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether nobody holds the file's lock; while inside, nobody else does."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(fd)


@dataclass
class Swept:
    """What was removed: keepers' names, processes that were still there, cgroups, scratch directories."""

    keepers: list[str]
    processes: int = 0
    cgroups: int = 0
    directories: int = 0

    @property
    def nothing(self) -> bool:
        return not (self.keepers or self.processes or self.cgroups or self.directories)


def sweep(store: Path | None = None) -> Swept:
    """Remove what dead keepers of this store left; the living are not touched."""
    store = pool.store_directory() if store is None else store
    swept = Swept([])
    for keeper in keepers(store):
        path = store / FOLDER / f"{keeper.name}.json"
        with _locked(path) as free:
            if free:
                _remove(store, keeper.name, swept)
    return swept


def _remove(store: Path, name: str, swept: Swept) -> None:
    swept.keepers.append(name)
    swept.processes += _kill(name)
    for cgroup in cgroups.leftovers():
        if cgroup.name == f"hawk-{name}" and cgroups.remove_tree(cgroup):
            swept.cgroups += 1
    scratch = store / "scratch" / name
    if scratch.exists():
        shutil.rmtree(scratch, ignore_errors=True)
        swept.directories += 1
    for kind in ("sock", "json"):
        (store / FOLDER / f"{name}.{kind}").unlink(missing_ok=True)


def _kill(name: str) -> int:
    """Kill processes that carry a dead keeper's label."""
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(pool.NAME) == name:
                process.kill()
                left.append(process)
    psutil.wait_procs(left, timeout=5)
    return len(left)
