"""Which processes of this machine belong to which sandbox, kept from look to look.

A sandbox has a pid namespace of its own, which no process in it can leave or forge: the link `/proc/<pid>/ns/pid` tells it.
Whose namespace it is says the one outside that started its first process: bwrap, with the sandbox's label in
its environment.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

LABEL = b"HAWK_SANDBOX="
"""Variable of bwrap, in which the keeper notes the sandbox's label."""

MOST = 20_000
"""Processes of the machine that are remembered."""


@dataclass(slots=True)
class Stat:
    """Of `/proc/<pid>/stat`. Times in ticks; `start` since boot; `used` with what children used that have ended."""

    state: str
    parent: int
    own: int
    used: int
    start: int


class ProcessTable:
    """Remembers of each process in which pid namespace it is. For one thread.

    Attributes:
        closed: Processes that may not be looked at, at the last look.
    """

    def __init__(self) -> None:
        self._namespaces: dict[int, str] = {}  # by pid; "": nobody's, or closed
        self._labels: dict[str, str] = {}  # by namespace; "": no sandbox's
        self._own = _namespace(os.getpid())
        self.closed = 0

    def look(self) -> dict[str, list[int]]:
        """Pids by sandbox label. Only processes that were not there before cost more than their name."""
        present = [int(name) for name in os.listdir("/proc") if name.isdecimal()][:MOST]  # noqa: PTH208
        there = set(present)
        for gone in self._namespaces.keys() - there:
            del self._namespaces[gone]
        self.closed = 0
        for pid in present:
            if pid not in self._namespaces:
                namespace = _namespace(pid)
                if namespace is None:
                    self.closed += 1
                    continue
                self._namespaces[pid] = "" if namespace == self._own else namespace
        unknown = set(self._namespaces.values()) - self._labels.keys() - {""}
        if unknown:
            self._learn(unknown)
        found: dict[str, list[int]] = {}
        for pid, namespace in self._namespaces.items():
            label = self._labels.get(namespace)
            if label:
                found.setdefault(label, []).append(pid)
        self._forget()
        return found

    def outside(self) -> list[int]:
        """Pids of this process's own namespace."""
        return [pid for pid, namespace in self._namespaces.items() if not namespace]

    def _learn(self, unknown: set[str]) -> None:
        """Whose namespaces these are."""
        for pid, namespace in self._namespaces.items():
            if namespace not in unknown or not is_first(pid):
                continue
            stat = read_stat(pid)
            self._labels[namespace] = _label(stat.parent) if stat is not None else ""
            unknown.discard(namespace)

    def _forget(self) -> None:
        if len(self._labels) > MOST:
            present = set(self._namespaces.values())
            self._labels = {name: label for name, label in self._labels.items() if name in present}


def read_stat(pid: int) -> Stat | None:
    """None when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:  # noqa: PTH123  # thousands a minute
            fields = f.read(1024).rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None
    own = int(fields[11]) + int(fields[12])
    used = own + int(fields[13]) + int(fields[14])
    return Stat(fields[0].decode("ascii", "replace"), int(fields[1]), own, used, int(fields[19]))


def read_io(pid: int) -> int:
    """Bytes that it has read and written, through files and pipes; 0 where that may not be seen."""
    total = 0
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/io", "rb") as f:  # noqa: PTH123
        for line in f.read(512).splitlines()[:2]:
            total += int(line.split()[1])
    return total


def read_command(pid: int, most: int = 4096) -> list[str]:
    """Its arguments; empty for one that has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:  # noqa: PTH123
            data = f.read(most)
    except OSError:
        return []
    return [part.decode("utf-8", "replace") for part in data.rstrip(b"\0").split(b"\0")] if data else []


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def is_first(pid: int) -> bool:
    """Whether it is the first process of its pid namespace."""
    try:
        with open(f"/proc/{pid}/status", "rb") as f:  # noqa: PTH123
            for line in f.read(4096).splitlines():
                if line.startswith(b"NSpid:"):
                    return line.split()[-1] == b"1"
    except OSError:
        pass
    return False


def _label(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as f:  # noqa: PTH123
        for variable in f.read(1 << 17).split(b"\0"):
            if variable.startswith(LABEL):
                return variable[len(LABEL) :].decode("ascii", "replace")
    return ""
