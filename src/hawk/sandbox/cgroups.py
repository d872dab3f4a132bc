"""Limits and accounts for sandboxes: the part of the cgroup tree that Hawk was given, and the cgroups in it.

A privileged process asks for a `Delegation`, which belongs to the keeper's user; the keeper makes one
`Cgroup` a sandbox in it. Used inside the keeper: the standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hawk.sandbox import cgroupfs
from hawk.sandbox.cgroupfs import Hierarchy, Unavailable, remove_tree
from hawk.sandbox.cgroupleaf import Cgroup, Usage

__all__ = [
    "Cgroup",
    "Delegation",
    "Unavailable",
    "Usage",
    "delegate",
    "delegate_in",
    "leftovers",
    "remove_tree",
]

REQUIRED = ("memory", "pids")
OPTIONAL = {1: ("cpu", "cpuacct"), 2: ("cpu",)}
"""Not every user session is given processor time to divide."""
KEEPER = "keeper"
DELEGATED_FILES = ("cgroup.procs", "tasks", "cgroup.subtree_control", "cgroup.threads")
NAME = re.compile(r"[A-Za-z0-9_-]+")
"""Of a delegation. Without dots it can't be one of systemd's units, such as `hawk-server.service`."""
LABEL = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Delegation:
    """The cgroups that belong to one keeper."""

    version: int
    """Of the cgroup file system, 1 or 2."""
    directories: dict[str, Path]
    """Controller to directory. `memory` and `pids` are always there."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"version": self.version, "directories": {k: str(v) for k, v in self.directories.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Delegation:
        """The reverse of `to_dict`."""
        return cls(data["version"], {k: Path(v) for k, v in data["directories"].items()})

    def create(self, label: str, *, memory: int | None, processes: int | None, cpus: float | None) -> Cgroup:
        """Make a cgroup.

        Args:
            label: Its name.
            memory: Bytes that it may use, swap included. None: no limit, here and below.
            processes: Processes and threads in it.
            cpus: Processors' worth of time.

        Raises:
            FileExistsError: There is one of this label.
            Unavailable: `cpus` is given and `directories` has no `cpu`.
            OSError: The kernel refuses. Nothing is left behind then.
        """
        if not LABEL.fullmatch(label) or label == KEEPER:
            raise ValueError(f"not a label for a cgroup: {label!r}")
        cgroup = self._below(label)
        made: list[Path] = []
        try:
            for path in dict.fromkeys(cgroup.directories.values()):
                cgroupfs.make(path)
                made.append(path)
            cgroup.limit(memory=memory, processes=processes, cpus=cpus)
        except BaseException:
            _undo(made)
            raise
        return cgroup

    def adopt_keeper(self, pid: int) -> None:
        """Move a process into the delegation, as root or as the owner of both.

        In version 2 a process may be moved only by who can write to `cgroup.procs` of a cgroup above both
        places: inside the delegation the keeper can. In both versions the process marks the delegation as in
        use, see `leftovers`.
        """
        keeper = self._below(KEEPER)
        for path in dict.fromkeys(keeper.directories.values()):
            with contextlib.suppress(FileExistsError):
                cgroupfs.make(path)
        keeper.enter(pid)

    def remove(self) -> bool:
        """Remove everything, by who made the delegation, unless a process is in it.

        Returns:
            Whether it is gone.
        """
        places = [path for path in dict.fromkeys(self.directories.values()) if path.exists()]
        if any(cgroupfs.occupied(path) for path in places):
            return False
        for path in places:
            remove_tree(path)
        return not any(path.exists() for path in places)

    def _below(self, label: str) -> Cgroup:
        return Cgroup(self.version, {k: path / label for k, path in self.directories.items()})


def delegate(name: str, uid: int, gid: int, *, mount: Path | None = None) -> Delegation:
    """Make cgroups `hawk-<name>` in which a user may make more.

    Version 1 is used where it has the memory controller or the one for processes, else version 2. As near to
    the cgroup of this process as may be, so that limits on this process hold for the sandboxes too.

    Args:
        name: Letters, digits, `_` and `-`. An abandoned delegation of this name is replaced.
        uid: The user.
        gid: Their group.
        mount: Use only what is mounted at or below this directory; see `cgroupfs.find`.

    Raises:
        Unavailable: No cgroups can be made.
    """
    return delegate_in(cgroupfs.find(mount), name, uid, gid)


def delegate_in(found: Iterable[Hierarchy], name: str, uid: int, gid: int) -> Delegation:
    """As `delegate`, in given hierarchies."""
    if not NAME.fullmatch(name):
        raise ValueError(f"not a name for a cgroup: {name!r}")
    first, second = ([item for item in found if item.version == version] for version in (1, 2))
    mounted = {controller for item in first for controller in item.controllers}
    if mounted.intersection(REQUIRED) or not second:
        if missing := [controller for controller in REQUIRED if controller not in mounted]:
            raise Unavailable(f"controllers missing: {', '.join(missing)}")
        return Delegation(1, _delegate_v1(first, f"hawk-{name}", uid, gid))
    place, controllers = _delegate_v2(second, f"hawk-{name}", uid, gid)
    return Delegation(2, dict.fromkeys(controllers, place))


def _delegate_v1(found: list[Hierarchy], name: str, uid: int, gid: int) -> dict[str, Path]:
    """Controller to the directory made for it."""
    made: dict[str, Path] = {}
    for controller in (*REQUIRED, *OPTIONAL[1]):
        refusal = None
        for item in (item for item in found if controller in item.controllers):
            for parent in dict.fromkeys((item.own, item.root)):
                if controller in made:
                    break
                try:
                    path = _make_delegated(parent / name, uid, gid)
                except Unavailable as error:
                    refusal = refusal or error
                else:
                    together = item.controllers.intersection(REQUIRED + OPTIONAL[1])
                    made.update(dict.fromkeys(together, path))
        if controller in REQUIRED and controller not in made and refusal:
            _undo(made.values())
            raise refusal
    return made


def _delegate_v2(found: list[Hierarchy], name: str, uid: int, gid: int) -> tuple[Path, list[str]]:
    """The directory made, and the controllers that its children can have."""
    refusal = None
    for item in found:
        for parent in (path for path in (item.own, *item.own.parents) if path.is_relative_to(item.root)):
            try:
                return _delegate_below(parent, name, uid, gid)
            except Unavailable as error:
                refusal = refusal or error
    raise refusal or Unavailable("no cgroup file system is mounted")


def _delegate_below(parent: Path, name: str, uid: int, gid: int) -> tuple[Path, list[str]]:
    with _explained(parent):
        # The kernel lets an ordinary user move a process here from `parent` only if this can be opened.
        os.close(os.open(parent / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        _hand_down(parent)
    path = _make_delegated(parent / name, uid, gid)
    try:
        with _explained(path):
            return path, _hand_down(path)
    except Unavailable:
        _undo([path])
        raise


def _hand_down(path: Path) -> list[str]:
    """Let the children of a cgroup (version 2) have its controllers; returns those that they have.

    Raises:
        Unavailable: It lacks some, or has processes of its own.
    """
    offered = cgroupfs.words(path / "cgroup.controllers")
    if missing := [controller for controller in REQUIRED if controller not in offered]:
        raise Unavailable(f"controllers missing in {path}: {', '.join(missing)}")
    enabled = cgroupfs.words(path / "cgroup.subtree_control")
    lacking = [controller for controller in REQUIRED if controller not in enabled]
    # Only the root may have both processes and controllers for its children, and only the root has no type.
    if lacking and (path / "cgroup.type").exists() and cgroupfs.processes(path):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    for controller in lacking:
        cgroupfs.write(path / "cgroup.subtree_control", f"+{controller}")
    for controller in OPTIONAL[2]:
        if controller in offered and controller not in enabled:
            with contextlib.suppress(OSError):
                cgroupfs.write(path / "cgroup.subtree_control", f"+{controller}")
    enabled = cgroupfs.words(path / "cgroup.subtree_control")
    return [controller for controller in REQUIRED + OPTIONAL[2] if controller in enabled]


def _make_delegated(path: Path, uid: int, gid: int) -> Path:
    """Make a cgroup and give it to a user."""
    with _explained(path.parent):
        try:
            cgroupfs.make(path)
        except FileExistsError:
            if not remove_tree(path):
                raise Unavailable(f"{path} exists and is in use") from None
            cgroupfs.make(path)
    try:
        with _explained(path):
            for target in (path, *(path / name for name in DELEGATED_FILES)):
                with contextlib.suppress(FileNotFoundError):
                    os.chown(target, uid, gid)
    except Unavailable:
        _undo([path])
        raise
    return path


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what the kernel says about a cgroup into words."""
    try:
        yield
    except Unavailable:
        raise
    except OSError as error:
        if error.errno == errno.EROFS:
            why = f"the cgroup file system is read-only: {path}"
        elif error.errno in (errno.EACCES, errno.EPERM):
            why = f"no permission to make cgroups in {path} as uid {os.geteuid()}"
        elif error.errno == errno.EBUSY:
            why = f"{path} has processes of its own, so its children can't have controllers"
        else:
            why = f"{path}: {error.strerror}"
        raise Unavailable(why) from error


def _undo(made: Iterable[Path]) -> None:
    for path in dict.fromkeys(made):
        with contextlib.suppress(OSError):
            cgroupfs.unmake(path)


def leftovers(mount: Path | None = None) -> list[Path]:
    """The delegations that this process could remove, those in use too: `remove_tree` leaves them alone.

    A delegation without a keeper looks abandoned. Who sweeps must hold the lock under which one is made and
    its keeper adopted.

    Args:
        mount: Look only below this directory.
    """
    found: set[Path] = set()
    for item in cgroupfs.find(mount):
        if item.version == 2 or item.controllers.intersection(REQUIRED + OPTIONAL[1]):
            found.update(_delegations_below(item.root))
    return sorted(found)


def _delegations_below(root: Path) -> Iterator[Path]:
    for directory, names, _ in os.walk(root):
        ours = [name for name in names if name.startswith("hawk-") and NAME.fullmatch(name)]
        if ours and os.access(directory, os.W_OK):
            yield from (Path(directory, name) for name in ours)
        names[:] = [name for name in names if name not in ours]
