"""Children that see a directory as their root, or live in namespaces of their own: where the code under test runs."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hawk.sandbox import syscalls
from tests.sandbox.forked import answered, drop

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: chroot and mount need root here")

SOMEBODY = 54321
"""An ordinary user."""

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where thousands of files cost no time; None: wherever temporary files go."""

FIRST_ID = 700_000
"""What a user namespace's ids begin at outside."""


@pytest.fixture
def room() -> Iterator[Path]:
    """A directory for large trees, and for trees so deep that pytest's own way of removing them recurses too far."""
    path = Path(tempfile.mkdtemp(dir=MEMORY))
    yield path
    subprocess.run(["rm", "-rf", str(path)], check=True)


def told(work: Callable[[], Any]) -> dict[str, Any]:
    """The fields of a result, or the error's number and text."""
    try:
        result = work()
    except OSError as ex:
        return {"errno": ex.errno, "error": str(ex)}
    return dataclasses.asdict(result) if dataclasses.is_dataclass(result) else {"result": result}  # type: ignore[arg-type]


def rooted(target: Path, work: Callable[[], Any]) -> dict[str, Any]:
    """What this returns when a child does it with the target as its root, where nothing can be imported."""

    def child() -> dict[str, Any]:
        if os.geteuid() != 0:
            in_own_namespace()
        os.chroot(target)
        os.chdir("/")
        return told(work)

    answer: dict[str, Any] = answered(child)
    return answer


def as_somebody(work: Callable[[], Any]) -> Any:
    """The same in a child of an ordinary user."""

    def child() -> Any:
        drop(SOMEBODY)
        syscalls.set_dumpable(True)  # else /proc/self stays root's
        return work()

    return answered(child)


def in_own_namespace() -> None:
    """Become root of a user namespace in which only this user exists."""
    uid = os.geteuid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {uid} 1")


def with_many_ids(work: Callable[[], Any]) -> Any:
    """What this returns in a child that is root of a user namespace with the ids 0 to 65535."""
    ready, tell_ready = os.pipe()
    go, tell_go = os.pipe()

    def child() -> Any:
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        os.write(tell_ready, f"{os.getpid()}\n".encode())
        os.read(go, 1)
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        return work()

    mapper = os.fork()
    if mapper == 0:
        pid = int(os.read(ready, 32))
        for kind in ("uid", "gid"):
            Path(f"/proc/{pid}/{kind}_map").write_text(f"0 {FIRST_ID} 65536")
        os.write(tell_go, b"1")
        os._exit(0)
    try:
        return answered(child)
    finally:
        os.waitpid(mapper, 0)
        for fd in (ready, tell_ready, go, tell_go):
            os.close(fd)


def _can_chroot() -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() != 0:
                in_own_namespace()
            os.chroot(".")
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


needs_chroot = pytest.mark.skipif(
    not _can_chroot(), reason="NOT TESTED: neither root nor user namespaces here"
)


def own_mounts() -> None:
    """Make this child's mounts invisible to others; they go with it."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def picture(root: Path, *, times: bool = True, owners: bool = True) -> dict[str, tuple[Any, ...]]:
    """Everything below a directory: path to kind, mode, owner, time, and content or target; hard links by number."""
    found: dict[str, tuple[Any, ...]] = {}
    inodes: dict[int, int] = {}
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(directory, name)
            status = path.lstat()
            content: Any = ""
            if stat.S_ISLNK(status.st_mode):
                content = str(path.readlink())
            elif stat.S_ISREG(status.st_mode):
                content = path.read_bytes()
            link = 0
            if status.st_nlink > 1 and not path.is_dir():
                link = inodes.setdefault(status.st_ino, len(inodes) + 1)
            found[str(path.relative_to(root))] = (
                oct(status.st_mode),
                content,
                link > 0,
                (status.st_uid, status.st_gid) if owners else None,
                status.st_mtime_ns // 10**9 if times else None,
            )
    return found


def names_in(directory: int | str | Path) -> list[str]:
    """Sorted."""
    return sorted(os.fsdecode(name) for name in os.listdir(directory))


def open_descriptors() -> int:
    return len(names_in("/proc/self/fd"))
