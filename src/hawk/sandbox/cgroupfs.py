"""Cgroups as the kernel shows them: where the hierarchies are mounted, and what their files say.

Used inside the keeper: the standard library only. `make`, `unmake` and `write` are the only ways by which
the package changes a cgroup file system.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PATIENCE = 0.1
"""Seconds for which a directory that was just emptied may stay busy."""


class Unavailable(OSError):  # noqa: N818 - a property of the machine, not a fault of ours
    """No cgroups can be made here; the text says why in one line."""

    @property
    def reason(self) -> str:
        """Why, in one line."""
        return str(self)


class Hierarchy(NamedTuple):
    """One mounted hierarchy, as this process sees it."""

    version: int
    """1 or 2."""
    controllers: frozenset[str]
    """Version 1: those mounted here, more than one when they are mounted together. Version 2: empty, because
    what it offers differs from directory to directory (`cgroup.controllers`)."""
    root: Path
    """Where it is mounted."""
    own: Path
    """The cgroup of this process; `root` when that cannot be seen from here."""


def hierarchies(mountinfo: str, cgroup: str) -> list[Hierarchy]:
    """The hierarchies in the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`."""
    own = {
        controller: path.removesuffix(" (deleted)")
        for _, controllers, path in (line.split(":", 2) for line in cgroup.splitlines())
        for controller in controllers.split(",")
    }
    found: dict[Path, Hierarchy] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        top, point = (_unescape(field) for field in left.split()[3:5])
        kind, _, options = right.split(maxsplit=2)
        controllers = own.keys() & {""} if kind == "cgroup2" else own.keys() & set(options.split(","))
        if kind in ("cgroup", "cgroup2") and controllers:
            # Of two mounts on one directory only the later can be reached.
            found[Path(point)] = Hierarchy(
                2 if kind == "cgroup2" else 1,
                frozenset(controllers - {""}),
                Path(point),
                _below(Path(point), top, own[min(controllers)]),
            )
    return list(found.values())


def find(mount: Path | None = None) -> list[Hierarchy]:
    """The hierarchies that this process can reach.

    Args:
        mount: Take only those mounted at or below it. When none is, it is taken for the root of a version 2
            hierarchy, with this process in it.

    Raises:
        Unavailable: There is no `/proc`.
    """
    try:
        seen = [os.fsdecode(read(f"/proc/self/{name}")) for name in ("mountinfo", "cgroup")]
    except OSError as error:
        raise Unavailable(f"{error.filename} cannot be read: {error.strerror}") from error
    found = [
        item if item.own.is_dir() else item._replace(own=item.root)
        for item in hierarchies(*seen)
        if (item.root / "cgroup.procs").exists()
    ]
    if mount is None:
        return found
    return [item for item in found if item.root.is_relative_to(mount)] or [
        Hierarchy(2, frozenset(), mount, mount)
    ]


def _below(point: Path, top: str, path: str) -> Path:
    """Where the cgroup `path` is when the directory `top` of its hierarchy is mounted at `point`."""
    prefix = top.rstrip("/") + "/"
    if ".." in path.split("/") or not f"{path}/".startswith(prefix):
        return point
    return point / path[len(prefix) :].strip("/")


def _unescape(field: str) -> str:
    """A field of mountinfo, where blanks and backslashes are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def make(path: Path) -> None:
    """Make a cgroup."""
    os.mkdir(path)


def unmake(path: Path, patience: float = PATIENCE) -> None:
    """Remove a cgroup without children; one that is gone already is no error.

    Args:
        path: Its directory.
        patience: Seconds for which to try again while it is busy: a process leaves its cgroup a moment after
            it was killed.

    Raises:
        OSError: It is still busy, or may not be removed.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return os.rmdir(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= deadline:
                raise
        time.sleep(0.001)


def write(path: str | Path, text: str) -> None:
    """Write to a file of a cgroup, in one call as the kernel wants it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def read(path: str | Path) -> bytes:
    """All of a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    finally:
        os.close(descriptor)


def words(path: str | Path) -> list[str]:
    """What a file lists."""
    return read(path).decode().split()


def number(path: str | Path) -> int:
    """The number that a file holds."""
    return int(read(path))


def field(path: str | Path, name: str) -> int:
    """The number behind `name` in a file of `name number` lines.

    0 when file or line is missing, as in kernels that do not count this yet.
    """
    try:
        listed = words(path)
        return int(listed[listed.index(name) + 1])
    except (FileNotFoundError, ValueError):
        return 0


def processes(directory: str | Path) -> set[int]:
    """The processes in a cgroup, its children's not counted. 0 stands for those of another pid namespace."""
    return {int(word) for word in words(f"{directory}/cgroup.procs")}


def children(directory: Path) -> list[str]:
    """The names of the cgroups right below one."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def subtree(path: Path) -> Iterator[Path]:
    """A cgroup and all below it, the deepest first."""
    for directory, _, _ in os.walk(path, topdown=False):
        yield Path(directory)


def occupied(path: Path) -> bool:
    """Whether a process is in a cgroup or anywhere below it."""
    try:
        events = words(path / "cgroup.events")
    except FileNotFoundError:  # version 1
        return any(processes(directory) for directory in subtree(path))
    return events[events.index("populated") + 1] != "0"


def remove_tree(path: Path) -> bool:
    """Remove a cgroup and all below it. Kills nothing, and touches nothing while a process is in any of them.

    Returns:
        Whether it is gone.
    """
    try:
        if occupied(path):
            return False
        for directory in subtree(path):
            unmake(directory)
    except OSError:
        pass
    return not path.exists()
