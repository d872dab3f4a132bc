"""Sealing a layer: what is in its tree, counted and hashed, so that damage shows later.

The stamp costs a walk, the digest costs reading everything. Both say the same to root and to an ordinary user: what
its owner may not read counts by what is seen of it from outside.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

import msgspec

from hawk.sandbox.descent import OPEN_DIRECTORY, Descent, entries, remove_tree

SEAL = "layer.json"
FORMAT = 1
"""Counts up when a tree's stamp is computed in another way: all layers are built again."""

PARTS = ("root", "usr")
_CHUNK = 1 << 20


class Survey(NamedTuple):
    """What is in a tree.

    Attributes:
        files: Everything but directories.
        bytes: Content, each file once however many names it has.
        stamp: SHA-256 of names, types, modes, sizes, times and link targets.
        digest: The same with contents; empty when they were not read.
    """

    files: int
    bytes: int
    stamp: str
    digest: str


class Seal(msgspec.Struct, frozen=True):
    """The content of `layer.json`.

    Attributes:
        created: Seconds since 1970.
    """

    format: int
    key: str
    description: str
    created: float
    files: int
    bytes: int
    stamp: str
    digest: str


def survey(directory: Path, *, content: bool) -> Survey:
    """Look through a layer's tree.

    Args:
        content: Read the files too.

    Raises:
        OSError: Something can't be read, or changes meanwhile.
    """
    fd = os.open(directory, OPEN_DIRECTORY)
    try:
        with Descent(fd) as way:
            return _Surveyor(way, content).run()
    finally:
        os.close(fd)


def seal(directory: Path, key: str, description: str, created: float) -> Seal:
    """Take away what is no part of a layer, look through the rest, and write `layer.json`, whole.

    Raises:
        OSError: The tree can't be read or the file not be written.
    """
    fd = os.open(directory, OPEN_DIRECTORY)
    try:
        for name in entries(fd):
            if name not in PARTS:
                remove_tree(name, dir_fd=fd)
        found = survey(directory, content=True)
        description = description.encode("utf-8", "backslashreplace").decode()  # odd file names are not JSON
        made = Seal(FORMAT, key, description, created, found.files, found.bytes, found.stamp, found.digest)
        new = directory / f".{SEAL}"
        with new.open("wb") as f:
            f.write(msgspec.json.encode(made))
            f.flush()
            os.fsync(f.fileno())
        new.rename(directory / SEAL)
        os.fsync(fd)
    finally:
        os.close(fd)
    return made


def read_seal(directory: Path) -> Seal:
    """Raises: FileNotFoundError when there is none; ValueError when it is not one of ours; OSError."""
    data = (directory / SEAL).read_bytes()
    found = msgspec.json.decode(data, type=Seal)
    if found.format != FORMAT:
        raise ValueError(f"{SEAL} is of format {found.format}, not {FORMAT}")
    if found.key != directory.name:
        raise ValueError(f"{SEAL} is of another layer: {found.key}")
    return found


def differences(directory: Path, expected: Seal, *, content: bool) -> list[str]:
    """What is wrong with a layer's tree, in words; nothing when it is as it was sealed."""
    try:
        found = survey(directory, content=content)
    except OSError as ex:
        return [f"it can't be read: {ex.strerror or ex} {ex.filename or ''}".rstrip()]
    if found.stamp != expected.stamp:
        counts = [
            f"{now} {what} instead of {then}"
            for what, now, then in (
                ("files", found.files, expected.files),
                ("bytes", found.bytes, expected.bytes),
            )
            if now != then
        ]
        return counts or ["names, types, modes, sizes or times are others"]
    if content and found.digest != expected.digest:
        return ["contents are others, with the same sizes and times"]
    return []


class _Surveyor:
    """One walk, in an order that depends on names alone."""

    def __init__(self, way: Descent, content: bool) -> None:
        self._way = way
        self._content = content
        self._stamp = hashlib.sha256()
        self._digest = hashlib.sha256()
        self._files = 0
        self._bytes = 0
        self._seen: set[tuple[int, int]] = set()

    def run(self) -> Survey:
        pending = [[name for name in self._names() if name in PARTS]]
        while pending:
            if pending[-1]:
                if self._visit(pending[-1].pop()):
                    pending.append(self._names())
                continue
            pending.pop()
            if pending and self._way.up() != 1:
                raise OSError(errno.ESTALE, "directories were moved while they were read")
        digest = self._digest.hexdigest() if self._content else ""
        return Survey(self._files, self._bytes, self._stamp.hexdigest(), digest)

    def _names(self) -> list[str]:
        return sorted(entries(self._way.fd), key=os.fsencode, reverse=True)

    def _visit(self, name: str) -> bool:
        """Count it. True when it is a directory, and we are in it."""
        status = os.stat(name, dir_fd=self._way.fd, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return self._visit_directory(name, status)
        self._files += 1
        target = b""
        content = b""
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=self._way.fd))
        elif stat.S_ISREG(status.st_mode):
            identity = status.st_dev, status.st_ino
            if status.st_nlink == 1 or identity not in self._seen:
                self._bytes += status.st_size
            if status.st_nlink > 1:
                self._seen.add(identity)
            if self._content and status.st_mode & stat.S_IRUSR:
                content = self._hash(name)
        self._note(name, status, status.st_size, target, content)
        return False

    def _visit_directory(self, name: str, status: os.stat_result) -> bool:
        if status.st_mode & 0o500 != 0o500:
            self._note(name, status, 0, b"closed", b"")
            return False
        depth = self._way.depth
        self._way.down(name)
        self._note(name, status, 0, b"opaque" if _is_opaque(self._way.fd) else b"", b"", depth)
        return True

    def _note(
        self,
        name: str,
        status: os.stat_result,
        size: int,
        extra: bytes,
        content: bytes,
        depth: int | None = None,
    ) -> None:
        # Depth and name, in this order of visits, say as much as the path, and a name can't hold a zero byte.
        level = self._way.depth if depth is None else depth
        numbers = f"{level} {status.st_mode:o} {size} {status.st_mtime_ns} {status.st_rdev}"
        record = b"\0".join((numbers.encode(), os.fsencode(name), extra, b""))
        self._stamp.update(record)
        self._digest.update(record)
        self._digest.update(content)

    def _hash(self, name: str) -> bytes:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._way.fd)
        try:
            content = hashlib.sha256()
            while data := os.read(fd, _CHUNK):
                content.update(data)
            return content.digest()
        finally:
            os.close(fd)


def _is_opaque(fd: int) -> bool:
    """Whether a directory hides those of its name in lower layers: a layer may be an overlay's upper directory."""
    try:
        return os.getxattr(fd, "user.overlay.opaque") == b"y"
    except OSError:
        return False
