"""The files of a directory, in memory: bytes as they are, links as links, nothing from outside.

They are read once, when a task is made: every attempt begins with the same bytes and is scored by the same tests,
whatever happens to the directory while it runs.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hawk.config.problems import Problem

MAX_FILE = 10 << 20
"""Bytes of one file. What is larger belongs into the sandbox's `setup.files`, which attempts share."""
MAX_BYTES = 50 << 20
MAX_FILES = 2000

_LEFT_OUT = frozenset({"__pycache__", ".DS_Store"})
"""What tools leave behind by themselves, and nobody means."""


class File(msgspec.Struct, frozen=True):
    """One file. `executable`: its owner may run it."""

    content: bytes
    executable: bool = False


class Tree(msgspec.Struct, frozen=True):
    """Files and symbolic links by their path below the directory, `/` between parts, in order."""

    files: dict[str, File] = {}
    links: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.files or self.links)

    @property
    def executables(self) -> list[str]:
        return [name for name, file in self.files.items() if file.executable]

    def digest(self) -> str:
        """SHA-256 of all that is in it."""
        parts = hashlib.sha256()
        for name, file in self.files.items():
            head = f"{len(name)} {name} {len(file.content)} {file.executable:d} "
            parts.update(head.encode())
            parts.update(file.content)
        for name, target in self.links.items():
            parts.update(f"{len(name)} {name} -> {len(target)} {target}".encode())
        return parts.hexdigest()


def read_tree(directory: Path, shown: str) -> tuple[Tree, list[Problem]]:
    """Read a directory; one that is not there is empty.

    Args:
        directory: The directory.
        shown: How messages call it.
    """
    reading = _Reading(shown)
    if directory.is_symlink():
        reading.complain("", "is a symbolic link; copy the directory itself here")
    elif directory.is_dir():
        reading.walk(directory, "")
    elif directory.exists():
        reading.complain("", "is not a directory")
    return Tree(dict(sorted(reading.files.items())), dict(sorted(reading.links.items()))), reading.problems


class _Reading:
    """One pass over a directory."""

    def __init__(self, shown: str) -> None:
        self.files: dict[str, File] = {}
        self.links: dict[str, str] = {}
        self.problems: list[Problem] = []
        self._shown = shown
        self._bytes = 0
        self._full = False

    def walk(self, directory: Path, prefix: str) -> None:
        for entry in self._entries(directory, prefix):
            name = f"{prefix}{entry.name}"
            if (wrong := _wrong_name(entry.name)) is not None:
                self.complain(prefix + ascii(entry.name)[1:-1], wrong)
            elif len(self.files) + len(self.links) >= MAX_FILES:
                self._too_much(f"holds more than {MAX_FILES:,} files")
            elif entry.is_symlink():
                self._link(name, str(Path(entry.path).readlink()))
            elif entry.is_dir(follow_symlinks=False):
                self.walk(Path(entry.path), f"{name}/")
            else:
                self._file(Path(entry.path), name)
            if self._full:
                return

    def _entries(self, directory: Path, prefix: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                yield from sorted((e for e in entries if e.name not in _LEFT_OUT), key=lambda e: e.name)
        except OSError as ex:
            self.complain(prefix.rstrip("/"), f"can't be read: {ex.strerror}")

    def _file(self, path: Path, name: str) -> None:
        try:
            # not a pipe that has taken a file's place since it was listed: opening one would wait for its writer
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as ex:
            self.complain(name, f"can't be read: {ex.strerror}")
            return
        with os.fdopen(fd, "rb") as f:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                self.complain(name, "is neither a file, a directory nor a symbolic link")
                return
            content = f.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            self.complain(
                name,
                f"is larger than {MAX_FILE >> 20} MiB; put it into the sandbox with `sandbox: {{setup: {{files: …}}}}`",
            )
            return
        self._bytes += len(content)
        if self._bytes > MAX_BYTES:
            self._too_much(
                f"holds more than {MAX_BYTES >> 20} MiB; `sandbox: {{setup: {{files: …}}}}` takes more"
            )
            return
        self.files[name] = File(content, bool(mode & stat.S_IXUSR))

    def _link(self, name: str, target: str) -> None:
        end = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        if _wrong_name(target) is not None:
            self.complain(name, "is a link with a strange target")
        elif target.startswith("/") or end == ".." or end.startswith("../"):
            self.complain(
                name, f"is a link that leads outside of {self._shown} (to {target}); copy the file itself"
            )
        else:
            self.links[name] = target

    def _too_much(self, message: str) -> None:
        self._full = True
        self.complain("", message)

    def complain(self, name: str, message: str) -> None:
        where = f"{self._shown}/{name}" if name else self._shown
        self.problems.append(Problem(message, where))


def _wrong_name(name: str) -> str | None:
    """Why a name can't be carried into a sandbox and through a log, or None."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if any(ord(c) < 32 or ord(c) == 127 for c in name):
        return "has control characters in its name"
    return None
