"""Going down directory trees by descriptors, however deep they are and whatever they hold.

Used inside the keeper too: standard library only. A path can be too long for the kernel, and a symlink in it may
lead anywhere; a descriptor and a name can do neither. Nothing here follows a symlink.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Set
from pathlib import Path
from types import TracebackType

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_KEPT = 16
"""Descriptors that stay open at either end of the way; between them the way back is `..`, which is checked."""


class Descent:
    """A way down a tree and back up, with a bounded number of descriptors.

    Args:
        fd: The top. It stays the caller's.
    """

    def __init__(self, fd: int) -> None:
        top = os.open(".", OPEN_DIRECTORY, dir_fd=fd)
        self._fds = [top]
        self._identities = [_identity(os.fstat(top))]

    def __enter__(self) -> Descent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def fd(self) -> int:
        """The directory where we are."""
        return self._fds[-1]

    @property
    def depth(self) -> int:
        """Levels below the top."""
        return len(self._fds) - 1

    def down(self, name: str) -> os.stat_result:
        """Enter a directory of this one.

        Raises:
            OSError: It is no directory (any more), or may not be entered; we stay where we are.
        """
        fd = os.open(name, OPEN_DIRECTORY, dir_fd=self.fd)
        status = os.fstat(fd)
        self._fds.append(fd)
        self._identities.append(_identity(status))
        between = len(self._fds) - 1 - _KEPT
        if between >= _KEPT and self._fds[between] >= 0:
            os.close(self._fds[between])
            self._fds[between] = -1
        return status

    def up(self) -> int:
        """Go back.

        Returns:
            Levels gone up. More than one when somebody moved directories meanwhile: what is below the nearest
            one that we still hold is out of reach.
        """
        child = self._fds.pop()
        self._identities.pop()
        levels = 1
        if self._fds[-1] < 0:
            self._fds[-1] = self._parent_of(child)
        os.close(child)
        while self._fds[-1] < 0:
            self._fds.pop()
            self._identities.pop()
            levels += 1
        return levels

    def _parent_of(self, child: int) -> int:
        try:
            fd = os.open("..", OPEN_DIRECTORY, dir_fd=child)
        except OSError:
            return -1
        if _identity(os.fstat(fd)) == self._identities[-1]:
            return fd
        os.close(fd)
        return -1

    def close(self) -> None:
        for fd in self._fds:
            if fd >= 0:
                os.close(fd)
        self._fds.clear()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def usage(fd: int) -> int:
    """Bytes on disk of all that is below an open directory; what goes away meanwhile is not counted."""
    total = 0
    with Descent(fd) as way:
        pending = [_sizes(way.fd)]
        while pending:
            size, directories = pending[-1]
            if directories:
                try:
                    way.down(directories.pop())
                except OSError:
                    continue
                pending.append(_sizes(way.fd))
                continue
            total += size
            pending.pop()
            if pending:
                for _ in range(way.up() - 1):  # directories that we were in were moved
                    total += pending.pop()[0]
    return total


def _sizes(fd: int) -> tuple[int, list[str]]:
    """Bytes of the files in a directory, and the names of its directories."""
    total, directories = 0, []
    for name in entries(fd):
        with contextlib.suppress(OSError):
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            total += status.st_blocks * 512
            if stat.S_ISDIR(status.st_mode):
                directories.append(name)
    return total, directories


def entries(fd: int) -> list[str]:
    """The names in an open directory."""
    return os.listdir(fd)


def remove_tree(name: str, *, dir_fd: int, keep: Set[tuple[int, str]] = frozenset()) -> None:
    """Remove a file, or a directory with all that is in it, also what its owner may not read. Gone already is fine.

    Args:
        name: In the directory `dir_fd`; not a path.
        keep: What stays, as (inode of its directory, name); directories that hold such things stay too.

    Raises:
        OSError: Something can't be removed, or others are changing the tree.
    """
    if (os.fstat(dir_fd).st_ino, name) not in keep and _unlinked(name, dir_fd):
        return
    with Descent(dir_fd) as way:
        if not _enter(way, name):
            return
        pending = [(name, _remove_files(way.fd, keep))]
        while pending:
            current, directories = pending[-1]
            if directories:
                child = directories.pop()
                if _enter(way, child):
                    pending.append((child, _remove_files(way.fd, keep)))
                continue
            pending.pop()
            if way.up() != 1:
                raise OSError(errno.ESTALE, "directories were moved while they were removed", name)
            if (os.fstat(way.fd).st_ino, current) not in keep:
                _remove_directory(current, way.fd, keep)


def _unlinked(name: str, dir_fd: int) -> bool:
    """Whether it is gone; a directory is not."""
    try:
        os.unlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        return False
    return True


def _remove_directory(name: str, dir_fd: int, keep: Set[tuple[int, str]]) -> None:
    try:
        os.rmdir(name, dir_fd=dir_fd)
    except FileNotFoundError:
        pass
    except OSError as ex:
        if not (keep and ex.errno == errno.ENOTEMPTY):
            raise


def _remove_files(fd: int, keep: Set[tuple[int, str]]) -> list[str]:
    """Remove all but directories. Returns the directories' names."""
    inode = os.fstat(fd).st_ino
    directories = []
    for name in entries(fd):
        if (inode, name) in keep:
            if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                directories.append(name)
        elif not _unlinked(name, fd):
            directories.append(name)
    return directories


def _enter(way: Descent, name: str) -> bool:
    """Enter a directory that is to be emptied; False when it is gone, or is a file that stays."""
    try:
        status = way.down(name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        _make_accessible(name, way.fd)
        status = way.down(name)
    if status.st_mode & 0o700 != 0o700:
        with contextlib.suppress(PermissionError):  # not ours: whether we may remove what is in it will show
            os.fchmod(way.fd, 0o700)
    return True


def _make_accessible(name: str, dir_fd: int) -> None:
    # A descriptor that allows nothing but to name the file: chmod by name would follow a symlink.
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        Path(f"/proc/self/fd/{fd}").chmod(0o700)
    finally:
        os.close(fd)
