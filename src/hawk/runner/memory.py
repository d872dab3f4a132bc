"""How much memory a process may have, how much it has, and whether the kernel killed for it. Linux.

Limits are those of its memory cgroup and of all above it (versions 1 and 2), and RLIMIT_AS.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from hawk.sandbox.cgroupfs import hierarchies

_ENDLESS = 1 << 60
"""Bytes from which on a limit is none: version 1 says so by a number of this size."""


class Memory(NamedTuple):
    """Bytes in use and allowed, and what sets the limit; `kills` counts what the kernel killed there for memory,
    as the file `events` says."""

    used: int
    limit: int
    where: str
    kills: int = 0
    events: Path | None = None

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit else 0.0


def look(pid: int) -> Memory | None:
    """The tightest limit of a process; None when it has none, or has gone."""
    try:
        found = [*_cgroups(pid), *_address_space(pid)]
    except (OSError, ValueError, psutil.Error):
        return None
    return max(found, key=lambda memory: memory.share, default=None)


def kills(last: Memory) -> int:
    """How many processes the kernel has killed by now where a limit was; the process itself may have gone."""
    return _field(last.events, "oom_kill") if last.events is not None else 0


def _cgroups(pid: int) -> Iterator[Memory]:
    proc = Path("/proc") / str(pid)
    for hierarchy in hierarchies((proc / "mountinfo").read_text(), (proc / "cgroup").read_text()):
        names = _V2 if hierarchy.version == 2 else _V1 if "memory" in hierarchy.controllers else None
        place = hierarchy.own
        while names is not None and place.is_relative_to(hierarchy.root):
            limit = _number(place / names.limit)
            if limit is not None and 0 < limit < _ENDLESS:
                used = _used(place, names)
                events = place / names.events
                yield Memory(used, limit, f"cgroup {place}", _field(events, "oom_kill"), events)
            if place == hierarchy.root:
                break
            place = place.parent


class _Names(NamedTuple):
    limit: str
    used: str
    events: str
    cache: str


_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "total_inactive_file")
_V2 = _Names("memory.max", "memory.current", "memory.events", "inactive_file")


def _used(place: Path, names: _Names) -> int:
    """Without files in memory that the kernel drops before it kills."""
    used = _number(place / names.used) or 0
    return max(0, used - _field(place / "memory.stat", names.cache))


def _address_space(pid: int) -> Iterator[Memory]:
    process = psutil.Process(pid)
    soft, _ = process.rlimit(resource.RLIMIT_AS)
    if 0 < soft < _ENDLESS:
        yield Memory(process.memory_info().vms, soft, "RLIMIT_AS")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max"
        return None


def _field(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)
