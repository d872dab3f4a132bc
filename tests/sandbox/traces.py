"""What a keeper and its sandboxes leave on the machine: processes, cgroups, mounts, files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hawk.sandbox import cgroups, pool
from tests.system import until

SECONDS = 60.0
"""For how long a process may still be there after what kept it has gone."""


@dataclass
class Traces:
    """What is there of the keepers whose names begin so, and of the processes that were watched.

    Args:
        store: The store that they use.
        names: What their names begin with: `<pid of the worker>-`, or a whole name.
    """

    store: Path
    names: str
    _watched: dict[int, psutil.Process] = field(default_factory=dict)

    def watch(self, *roots: int) -> set[int]:
        """Remember all that descends from these processes: it may not outlive them. Their pids."""
        found = set()
        for root in roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(root)
                for one in (process, *process.children(recursive=True)):
                    self._watched[one.pid] = one
                    found.add(one.pid)
        return found

    def watched(self) -> list[str]:
        """Those of the watched that live."""
        return [
            text for process in self._watched.values() if process.is_running() and (text := _alive(process))
        ]

    def processes(self) -> list[str]:
        """Living processes: of a keeper by its name in their environment, and those that were watched."""
        found = {process.pid: process for process in _named(self.names)}
        found |= {pid: process for pid, process in self._watched.items() if process.is_running()}
        return [text for process in found.values() if (text := _alive(process))]

    def cgroups(self) -> list[str]:
        return [str(path) for path in cgroups.leftovers() if path.name.startswith(f"hawk-{self.names}")]

    def files(self) -> list[str]:
        """Files of keepers, and what sandboxes kept on disk."""
        paths = [
            path
            for folder in ("keepers", "scratch")
            if (self.store / folder).is_dir()
            for path in (self.store / folder).iterdir()
            if path.name.startswith(self.names)
        ]
        return [str(path) for path in paths]

    def all(self) -> list[str]:
        return [*self.processes(), *self.cgroups(), *mounts(), *self.files()]


def mounts() -> list[str]:
    """Mounts of ours in the host's own namespace, where none belongs."""
    found = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in found if " hawk " in line or f"{line.split()[4]}/".startswith("/run/hawk/")]


def keeper_processes(pid: int) -> list[psutil.Process]:
    """A keeper's three: who cleans up behind the others, who holds the namespaces, who serves."""
    first = psutil.Process(pid)
    [second] = first.children()
    [third] = second.children()
    return [first, second, third]


def processes_of(keeper: int, label: str) -> tuple[psutil.Process, psutil.Process]:
    """A sandbox's bwrap outside, and its pid 1."""
    wanted = f"HAWK_SANDBOX={label}".encode()
    for monitor in keeper_processes(keeper)[2].children():
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{monitor.pid}/environ").read_bytes().split(b"\0"):
                [first] = monitor.children()
                return monitor, first
    raise AssertionError(f"there is no sandbox {label}")


def _named(names: str) -> Iterator[psutil.Process]:
    wanted = f"{pool.NAME}={names}".encode()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            environ = Path(f"/proc/{process.pid}/environ").read_bytes()
            if any(row.startswith(wanted) for row in environ.split(b"\0")):
                yield process


def _alive(process: psutil.Process) -> str:
    """A living process in words; empty when it has ended."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return f"pid {process.pid}: {' '.join(process.cmdline())[:200] or process.name()}"
    except psutil.NoSuchProcess:
        return ""


def of_this_process(store: Path | None = None) -> Traces:
    """Of every keeper that this process starts."""
    return Traces(store or pool.store_directory(), f"{os.getpid()}-")


def assert_nothing_left(traces: Traces, seconds: float = SECONDS) -> None:
    """Nothing is left of them, or soon will be."""
    with contextlib.suppress(AssertionError):
        until("nothing is left", lambda: not traces.all(), seconds, 0.02)
    left = traces.all()
    assert not left, "\n".join(left)
