"""Removing what keepers left that were killed together with the process that cleans up behind them.

A keeper's end is the end of its sandboxes: the kernel kills their processes, and takes back their mounts and what they
kept in memory. What can remain are empty cgroups, files of sandboxes with `storage: disk`, and the keeper's own
three small files. The supervisor imports this: nothing heavy here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hawk.sandbox import cgroups
from hawk.sandbox.names import NAME, store_path
from hawk.sandbox.pod import leftovers
from hawk.sandbox.presence import FOLDER, remove_scratch

_SILENT = 60.0
"""Seconds after which a keeper that has not said whose it is was killed at its start; till then it may be starting."""


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
    found = []
    for path in _files(store):
        about: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            about = json.loads(path.read_text() or "{}")
        lock = _take(path)
        found.append(KeeperInfo(path.stem, lock is None, about))
        if lock is not None:
            os.close(lock)
    return found


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
    """Remove what dead keepers of this store left; the living are not touched.

    What can't be removed now keeps its keeper's file, by which the next sweep finds it.
    """
    store = store_path() if store is None else store
    swept = Swept([])
    with contextlib.ExitStack() as locks:
        dead = []
        for path in _files(store):
            lock = _take(path)
            if lock is not None:
                locks.callback(os.close, lock)
                if not _starting(lock):
                    dead.append(path.stem)
        if dead:
            _remove(store, dead, swept)
    leftovers.sweep(store)
    return swept


def _files(store: Path) -> list[Path]:
    return sorted((store / FOLDER).glob("*.json"))


def _take(path: Path) -> int | None:
    """The lock of a dead keeper's file; None when it is held, or the file is gone."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _starting(lock: int) -> bool:
    status = os.fstat(lock)
    return status.st_size == 0 and time.time() - status.st_mtime < _SILENT


def _remove(store: Path, names: list[str], swept: Swept) -> None:
    swept.processes = _kill(names)
    left = _remove_cgroups(names, swept)
    for name in names:
        with contextlib.suppress(OSError):
            swept.directories += remove_scratch(str(store), name)
            if name in left or (store / "scratch" / name).exists():
                continue
            for kind in ("sock", "json"):
                (store / FOLDER / f"{name}.{kind}").unlink(missing_ok=True)
            swept.keepers.append(name)


def _remove_cgroups(names: list[str], swept: Swept) -> set[str]:
    """Returns the names of which some are left."""
    wanted = {f"hawk-{name}": name for name in names}
    try:
        found = [path for path in cgroups.leftovers() if path.name in wanted]
    except cgroups.Unavailable:
        return set()
    left = set()
    for path in found:
        if cgroups.remove_tree(path):
            swept.cgroups += 1
        else:
            left.add(wanted[path.name])
    return left


def _kill(names: Collection[str]) -> int:
    """Kill processes that carry a dead keeper's label."""
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(NAME) in names:
                process.kill()
                left.append(process)
    psutil.wait_procs(left, timeout=5)
    return len(left)
