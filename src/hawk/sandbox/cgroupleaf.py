"""One cgroup of a sandbox: who is in it, what it uses, and how it ends.

Used inside the keeper: the standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hawk.sandbox import cgroupfs

PERIOD = 100_000
"""Microseconds in which a share of the processors is used up; the kernel's default."""
LEAST_QUOTA = 1_000
"""Microseconds; the kernel refuses less."""


class Usage(NamedTuple):
    """What the processes of a cgroup use."""

    memory: int
    """Bytes, file cache included."""
    memory_peak: int
    """The most bytes so far; the bytes now where the kernel keeps no peak (version 2 before Linux 5.19)."""
    oom_kills: int
    """Processes killed because the memory limit was reached."""
    processes: int
    """Processes and threads, those not yet waited for included."""
    fork_failures: int
    """Starts of a process or thread that the limit refused."""
    cpu_seconds: float
    """Processor time; 0 where no hierarchy counts it."""


class Events(NamedTuple):
    """How often limits were hit."""

    oom_kills: int
    """Processes killed because the memory limit was reached."""
    fork_failures: int
    """Starts of a process or thread that the limit refused."""


class Cgroup:
    """One cgroup, in version 1 one directory a hierarchy.

    Args:
        version: Of the cgroup file system, 1 or 2.
        directories: Controller to directory.
    """

    def __init__(self, version: int, directories: dict[str, Path]) -> None:
        self.version = version
        self.directories = directories
        self._places = tuple(dict.fromkeys(directories.values()))

    def enter(self, pid: int) -> None:
        """Move a process, with all its threads, into this cgroup.

        Takes 5 to 20 ms when nothing was moved on this machine just before: the kernel first waits for every
        processor to pass a quiet point. In version 1 a process that moves itself by `join` need not wait.

        Raises:
            ProcessLookupError: There is no such process any more.
            PermissionError: It belongs to somebody else. In version 1 it must run as the user who moves it,
                whatever capabilities that user has: move it before it changes its user id.
        """
        for path in self.procs_files():
            cgroupfs.write(path, str(pid))

    def join(self) -> None:
        """Move the calling process, which must have one thread only (as after a fork), into this cgroup."""
        for path in self.join_files():
            cgroupfs.write(path, "0")

    def procs_files(self) -> list[str]:
        """The files into each of which a pid is written to move that process here."""
        return [f"{place}/cgroup.procs" for place in self._places]

    def join_files(self) -> list[str]:
        """The files into each of which a process with one thread writes `0` to move itself here."""
        if self.version == 1:
            return [f"{place}/tasks" for place in self._places]
        return self.procs_files()

    def processes(self) -> set[int]:
        """The processes in this cgroup."""
        return set().union(*(cgroupfs.processes(place) for place in self._places))

    def usage(self) -> Usage:
        """What is used now and was used so far.

        Raises:
            FileNotFoundError: The cgroup was removed.
        """
        memory, pids = self.directories["memory"], self.directories["pids"]
        if self.version == 1:
            now = cgroupfs.number(f"{memory}/memory.usage_in_bytes")
            peak = cgroupfs.number(f"{memory}/memory.max_usage_in_bytes")
            clock = self.directories.get("cpuacct")
            seconds = cgroupfs.number(f"{clock}/cpuacct.usage") / 1e9 if clock else 0.0
        else:
            now = peak = cgroupfs.number(f"{memory}/memory.current")
            with contextlib.suppress(FileNotFoundError):
                peak = cgroupfs.number(f"{memory}/memory.peak")
            seconds = cgroupfs.field(f"{memory}/cpu.stat", "usage_usec") / 1e6
        events = self.events()
        return Usage(
            memory=now,
            memory_peak=peak,
            oom_kills=events.oom_kills,
            processes=cgroupfs.number(f"{pids}/pids.current"),
            fork_failures=events.fork_failures,
            cpu_seconds=seconds,
        )

    def events(self) -> Events:
        """The part of `usage` that says which limits were hit."""
        memory, pids = self.directories["memory"], self.directories["pids"]
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return Events(
            oom_kills=cgroupfs.field(f"{memory}/{name}", "oom_kill"),
            fork_failures=cgroupfs.field(f"{pids}/pids.events", "max"),
        )

    def kill(self, patience: float = 2.0) -> bool:
        """Kill every process in this cgroup, and wait until they have left it.

        Args:
            patience: Seconds to wait at most. Every process gets its signal even when it is 0.

        Returns:
            Whether they have.
        """
        deadline = time.monotonic() + patience
        if self._kill_at_once():
            return self._empty_by(deadline, kill=False)
        with self._no_forks():
            return self._empty_by(deadline, kill=True)

    def _kill_at_once(self) -> bool:
        """Whether the kernel did it (`cgroup.kill`, version 2 since Linux 5.14)."""
        if self.version == 1:
            return False
        try:
            for place in self._places:
                cgroupfs.write(f"{place}/cgroup.kill", "1")
        except FileNotFoundError:
            return False
        return True

    def _empty_by(self, deadline: float, *, kill: bool) -> bool:
        pause = 0.0005
        while found := self.processes():
            for pid in found - {0} if kill else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
        return True

    @contextlib.contextmanager
    def _no_forks(self) -> Iterator[None]:
        """Keep a fork bomb from outrunning its killer."""
        try:
            limit = f"{self.directories['pids']}/pids.max"
            before = cgroupfs.read(limit).decode().strip()
        except (KeyError, FileNotFoundError):
            yield
            return
        cgroupfs.write(limit, "0")
        try:
            yield
        finally:
            cgroupfs.write(limit, before)

    def remove(self, patience: float = cgroupfs.PATIENCE) -> None:
        """Remove this cgroup, which must be empty. One that is gone already is no error.

        Args:
            patience: Seconds for which to try again while it is busy.

        Raises:
            OSError: It can't be removed; the text names what is still in it.
        """
        for place in self._places:
            try:
                cgroupfs.unmake(place, patience)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                raise OSError(
                    errno.EBUSY, f"cgroup still in use by {_inhabitants(place)}", str(place)
                ) from error

    def limit(self, *, memory: int | None, processes: int | None, cpus: float | None) -> None:
        """Set the limits of this cgroup. None sets none.

        Args:
            memory: Bytes, swap included.
            processes: Processes and threads.
            cpus: Processors' worth of time.

        Raises:
            OSError: The kernel refuses a limit.
        """
        if memory is not None:
            self._limit_memory(memory)
        if processes is not None:
            cgroupfs.write(f"{self.directories['pids']}/pids.max", str(processes))
        if cpus is not None:
            self._limit_cpus(max(LEAST_QUOTA, round(cpus * PERIOD)))

    def _limit_memory(self, limit: int) -> None:
        place = self.directories["memory"]
        if self.version == 1:
            cgroupfs.write(f"{place}/memory.limit_in_bytes", str(limit))
            extras = {"memory.memsw.limit_in_bytes": limit}  # of memory and swap together
        else:
            cgroupfs.write(f"{place}/memory.max", str(limit))
            extras = {"memory.swap.max": 0, "memory.oom.group": 0}
        for name, value in extras.items():
            with contextlib.suppress(FileNotFoundError):  # without swap accounting, or an old kernel
                cgroupfs.write(f"{place}/{name}", str(value))

    def _limit_cpus(self, quota: int) -> None:
        if "cpu" not in self.directories:
            raise cgroupfs.Unavailable("controllers missing: cpu, so processor time can't be limited")
        place = self.directories["cpu"]
        if self.version == 2:
            return cgroupfs.write(f"{place}/cpu.max", f"{quota} {PERIOD}")
        try:
            cgroupfs.write(f"{place}/cpu.cfs_quota_us", str(quota))
        except OSError as error:
            # Version 1 refuses more than an ancestor's quota. Without one of its own that quota holds.
            if error.errno != errno.EINVAL:
                raise
        return None


def _inhabitants(place: Path) -> str:
    """What is in a cgroup, for people."""
    found = [f"{_command(pid)} ({pid})" for pid in sorted(cgroupfs.processes(place) - {0})]
    found += [f"the cgroup {name}" for name in cgroupfs.children(place)]
    return ", ".join(found) or "something that can't be seen from here"


def _command(pid: int) -> str:
    try:
        return os.fsdecode(cgroupfs.read(f"/proc/{pid}/comm")).strip()
    except OSError:
        return "a process"
