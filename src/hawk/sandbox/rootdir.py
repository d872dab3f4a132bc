"""Making things inside a directory as if it were the root, whatever symlinks are in it.

Keeper side: standard library only. Every path is walked component by component, as the kernel does in a chroot: `..`
stops at the root, an absolute symlink begins there. In a chroot this is a second fence; without one it is the fence.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TypeVar

from hawk.sandbox.descent import OPEN_DIRECTORY, remove_tree
from hawk.sandbox.tarinput import ArchiveError, printable

Path = tuple[str, ...]

_Made = TypeVar("_Made")

_MOST_LINKS = 40
"""Symlinks on one path: as many as the kernel follows."""


def inside(name: str) -> Path:
    """The components of a path, taken as one below the root whatever it says."""
    path: list[str] = []
    for part in name.split("/"):
        if part == "..":
            del path[-1:]
        elif part not in ("", "."):
            path.append(part)
    return tuple(path)


@dataclass(frozen=True)
class Place:
    """An open directory: its descriptor, its inode, and its path, in which nothing is a symlink."""

    fd: int
    inode: int
    path: Path


class RootDirectory:
    """A directory in which things are made.

    Args:
        fd: Its descriptor. It stays the caller's.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._last: tuple[Path, Place] | None = None

    def directory(self, path: Path) -> Place:
        """Open a directory, and make it where it is missing; it stays open until another is asked for."""
        if self._last is None or self._last[0] != path:
            place = self.walk(path, create=True)
            self.forget()
            self._last = path, place
        return self._last[1]

    def forget(self) -> None:
        """Close what `directory` left open: what its path leads to may have changed."""
        if self._last is not None:
            os.close(self._last[1].fd)
            self._last = None

    def walk(self, path: Path, *, create: bool) -> Place:
        """Open a directory; the descriptor is the caller's.

        Raises:
            FileNotFoundError: It, or what a symlink on the way leads to, is not there, and `create` is not set.
            ArchiveError: Something on the way is neither directory nor symlink, or the symlinks have no end.
        """
        found: list[str] = []
        left = list(reversed(path))
        links = 0
        fd = self._top()
        try:
            while left:
                name = left.pop()
                if name == "..":
                    left.extend(reversed(found[:-1]))
                    found.clear()
                    fd = _instead(fd, self._top())
                    continue
                below = _enter(fd, name, create=create)
                if isinstance(below, int):
                    fd = _instead(fd, below)
                    found.append(name)
                    continue
                links += 1
                if links > _MOST_LINKS:
                    raise ArchiveError(
                        f"too many symlinks on the path {printable('/'.join(path))}", errno.ELOOP
                    )
                left.extend(part for part in reversed(below.split("/")) if part not in ("", "."))
                if below.startswith("/"):
                    found.clear()
                    fd = _instead(fd, self._top())
        except BaseException:
            os.close(fd)
            raise
        return Place(fd, os.fstat(fd).st_ino, tuple(found))

    def _top(self) -> int:
        return os.open(".", OPEN_DIRECTORY, dir_fd=self._fd)

    def make(
        self, place: Place, name: str, make: Callable[[], _Made], *, directory: bool = False
    ) -> _Made | None:
        """Make a new thing; what has its name gives way.

        Args:
            directory: It is a directory, and one that exists may stay. None is the result then.
        """
        try:
            return make()
        except FileExistsError:
            there = os.stat(name, dir_fd=place.fd, follow_symlinks=False)
            if directory and stat.S_ISDIR(there.st_mode):
                return None
        self.remove(place, name)
        return make()

    def remove(self, place: Place, name: str, keep: Set[tuple[int, str]] = frozenset()) -> None:
        """Remove whatever has that name; see `remove_tree`. `place` stays usable even when it goes with it."""
        remove_tree(name, dir_fd=place.fd, keep=keep)
        if self._last is not None and self._last[1] is not place:
            self.forget()
        elif self._last is not None:
            # Other paths may have led here through what is gone; this one does not.
            self._last = place.path, place


def _instead(old: int, new: int) -> int:
    os.close(old)
    return new


def _enter(fd: int, name: str, *, create: bool) -> int | str:
    """The descriptor of a directory in this one, or where the symlink of that name leads."""
    try:
        return os.open(name, OPEN_DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        if not create:
            raise
        os.mkdir(name, 0o755, dir_fd=fd)
        return os.open(name, OPEN_DIRECTORY, dir_fd=fd)
    except NotADirectoryError:
        try:
            return os.readlink(name, dir_fd=fd)
        except OSError as ex:
            raise ArchiveError(f"{printable(name)} on its path is not a directory", errno.ENOTDIR) from ex
