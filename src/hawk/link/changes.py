"""What has changed in a tree since the last look, without the kernel's help: a run directory may be on any file system.

A directory's own time says that something was made, renamed or removed in it. So most files need no look at all: only
those that grow or are written in place are asked for their size. Directories where nothing has happened for a while are
looked at less often.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hawk.link import rules

RACY = 50_000_000
"""Nanoseconds: a time this young may not be the last one, since clocks of file systems tick slowly."""

COLDEST = 2.0
"""Seconds between looks at a directory where nothing happens, at most."""

COOLING = 20.0
"""A directory is looked at again after this part of the time for which nothing has happened in it."""


class Stamp(NamedTuple):
    """A file as it was at a look: times in nanoseconds."""

    size: int
    mtime: int
    inode: int


@dataclass
class _Directory:
    mtime: int = -1
    racy: bool = False
    files: dict[str, Stamp] = field(default_factory=dict)
    children: set[str] = field(default_factory=set)
    hot: list[str] = field(default_factory=list)
    changed: float = 0.0
    due: float = 0.0


class Scanner:
    """Follows the files of a tree that are wanted.

    Args:
        root: The tree.
        wanted: Whether a file is, by its path below the root.
        enters: Whether there may be such files in a directory.

    Attributes:
        doubtful: Files that were written so lately that they are reported once more.
    """

    def __init__(
        self, root: Path, wanted: Callable[[str], bool], enters: Callable[[str], bool] = rules.enters
    ) -> None:
        self._root = str(root)
        self._wanted, self._enters = wanted, enters
        self._directories: dict[str, _Directory] = {"": _Directory()}
        self.doubtful: set[str] = set()

    def stamps(self) -> dict[str, Stamp]:
        """Every file as it was at the last look."""
        return {
            _join(name, file): stamp
            for name, directory in self._directories.items()
            for file, stamp in directory.files.items()
        }

    def look(self, *, everything: bool = False) -> tuple[dict[str, Stamp], set[str]]:
        """What is new or has changed, and what is gone.

        Args:
            everything: Look into every directory, however quiet, and at every file.

        Raises:
            FileNotFoundError: The tree itself is gone.
        """
        Path(self._root).stat()
        now = time.monotonic()
        changed: dict[str, Stamp] = {}
        removed: set[str] = set()
        doubtful, self.doubtful = self.doubtful, set[str]()
        for name in doubtful:
            self._doubt(name, changed)
        for name in list(self._directories):
            directory = self._directories.get(name)
            if directory is not None and (everything or directory.due <= now):
                self._look_at(name, directory, now, changed, removed, everything=everything)
        gone = {path for path in removed if not self._has(path)}
        for path in gone:
            changed.pop(path, None)  # it was doubtful, and is not there any more
        return changed, gone

    def _has(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        directory = self._directories.get(folder)
        return directory is not None and name in directory.files

    def _doubt(self, path: str, changed: dict[str, Stamp]) -> None:
        """Report a file again whose time was too young to trust."""
        if self._has(path):
            folder, _, name = path.rpartition("/")
            changed[path] = self._directories[folder].files[name]

    def _look_at(
        self,
        name: str,
        directory: _Directory,
        now: float,
        changed: dict[str, Stamp],
        removed: set[str],
        *,
        everything: bool,
    ) -> None:
        where = f"{self._root}/{name}" if name else self._root
        try:
            status = os.lstat(where)
        except OSError:
            status = None
        if status is None or not stat.S_ISDIR(status.st_mode):
            self._forget(name, removed)
            return
        before = len(changed) + len(removed)
        if everything or directory.racy or status.st_mtime_ns != directory.mtime:
            self._list(name, where, directory, status, now, changed, removed)
        else:
            for file in directory.hot:
                self._look_at_file(name, where, directory, file, changed, removed)
        if len(changed) + len(removed) != before:
            directory.changed = now
        directory.due = now + min((now - directory.changed) / COOLING, COLDEST) if name else 0.0

    def _list(
        self,
        name: str,
        where: str,
        directory: _Directory,
        status: os.stat_result,
        now: float,
        changed: dict[str, Stamp],
        removed: set[str],
    ) -> None:
        directory.mtime = status.st_mtime_ns
        directory.racy = time.time_ns() - status.st_mtime_ns < RACY
        files: list[str] = []
        children: set[str] = set()
        try:
            with os.scandir(where) as entries:
                for entry in entries:
                    path = _join(name, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if self._enters(path):
                            children.add(path)
                    elif entry.is_file(follow_symlinks=False) and self._wanted(path):
                        files.append(entry.name)
        except OSError:
            directory.racy = True
            return
        for gone in directory.files.keys() - set(files):
            del directory.files[gone]
            removed.add(_join(name, gone))
        for child in directory.children - children:
            self._forget(child, removed)
        directory.children = children
        directory.hot = [] if rules.renamed_only(name) else [f for f in files if rules.in_place(f)]
        for file in files:
            self._look_at_file(name, where, directory, file, changed, removed)
        for child in children:
            if child not in self._directories:
                fresh = self._directories[child] = _Directory(changed=now)
                self._look_at(child, fresh, now, changed, removed, everything=False)

    def _look_at_file(
        self,
        name: str,
        where: str,
        directory: _Directory,
        file: str,
        changed: dict[str, Stamp],
        removed: set[str],
    ) -> None:
        path = _join(name, file)
        try:
            status = os.lstat(f"{where}/{file}")
        except OSError:
            if directory.files.pop(file, None) is not None:
                removed.add(path)
            directory.racy = True
            return
        if not stat.S_ISREG(status.st_mode):
            return
        stamp = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
        if directory.files.get(file) != stamp:
            directory.files[file] = changed[path] = stamp
            if rules.kind(path) is rules.Kind.WHOLE and time.time_ns() - stamp.mtime < RACY:
                self.doubtful.add(path)

    def _forget(self, name: str, removed: set[str]) -> None:
        directory = self._directories.pop(name, None)
        if directory is None:
            return
        removed.update(_join(name, file) for file in directory.files)
        for child in directory.children:
            self._forget(child, removed)
        if not name:
            self._directories[""] = _Directory()


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
