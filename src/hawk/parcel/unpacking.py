"""Unpacking an archive that somebody else has made: nothing leaves the directory, and nothing is larger than it may be."""

from __future__ import annotations

import os
import shutil
import tarfile
from io import RawIOBase
from pathlib import Path
from typing import IO, NamedTuple, cast

from hawk.core.zstd import Unpacker, ZstdError
from hawk.errors import ConfigError
from hawk.parcel import contents
from hawk.parcel.contents import leads_out

AT_ONCE = 512
"""Bytes that are unpacked at once: each four of them may become 128 KiB."""

HEADERS = 1 << 20
"""Bytes before a member that may say what it is: a name and a time."""

DEEPEST = 64
"""Directories in each other."""

LONGEST, LONGEST_PATH = 255, 2048
"""Bytes of a name, and characters of a path."""


class Unpacked(NamedTuple):
    """What an archive held: files, and their bytes together."""

    files: int
    bytes: int


def unpack(archive: Path, directory: Path) -> Unpacked:
    """Unpack an archive into a directory, which is made if it is missing.

    What is in it can be read by whoever may enter the directory itself, as where it came from.

    Raises:
        ConfigError: The archive is damaged, or holds what it should not.
        OSError: The archive can't be read, or the directory not be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with archive.open("rb") as packed:
            return _unpack(_Plain(packed), _Tree(directory.resolve()))
    except (tarfile.TarError, ZstdError, ValueError) as ex:
        raise ConfigError(f"The eval set's files can't be unpacked: {ex}.", problems=[]) from ex


def _unpack(plain: _Plain, tree: _Tree) -> Unpacked:
    members = files = total = 0
    plain.grant(HEADERS)
    with tarfile.open(fileobj=cast("IO[bytes]", plain), mode="r|") as tar:
        while (member := tar.next()) is not None:
            members += 1
            if member.isreg():
                files, total = files + 1, total + member.size
            if members > contents.MOST or total > contents.LARGEST or member.size < 0:
                raise tarfile.ReadError("they are more than may go along")
            plain.grant(HEADERS + (member.size if member.isreg() else 0))
            tree.put(tar, member)
            tar.members = []  # type: ignore[attr-defined]  # it would keep all that it has seen
            plain.grant(HEADERS)
    return Unpacked(files, total)


class _Tree:
    """A directory that members are put into. By hand: the library's own filters are younger than some Pythons.

    Args:
        base: The directory, without links in its path.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._directories = {base}

    def put(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Make what a member is.

        Raises:
            tarfile.ExtractError: It is none that may be here.
        """
        shown = repr(member.name[:200])
        target = self._base / _checked(member.name)
        self._enter(target.parent)
        if member.isdir():
            self._enter(target)
        elif target in self._directories or (target.is_dir() and not target.is_symlink()):
            raise tarfile.ExtractError(f"{shown} is there already, as a directory")
        elif member.issym():
            if leads_out(member.linkname, parent=target.parent, base=self._base):
                raise tarfile.ExtractError(f"{shown} leads out")
            target.unlink(missing_ok=True)
            target.symlink_to(member.linkname)
        elif member.isreg() and not member.issparse() and (content := tar.extractfile(member)) is not None:
            target.unlink(missing_ok=True)
            with target.open("xb") as file:
                shutil.copyfileobj(content, file)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)  # sandboxes may have users of their own
            _date(target, member.mtime)
        else:
            raise tarfile.ExtractError(f"{shown} is neither a file nor a directory")

    def _enter(self, path: Path) -> None:
        """Make a directory and those above it; none may be a link, whoever put it there."""
        if path in self._directories:
            return
        self._enter(path.parent)
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            name = str(path.relative_to(self._base))
            raise tarfile.ExtractError(f"{name[:200]!r} is a directory and something else")
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
        self._directories.add(path)


def _checked(name: str) -> str:
    """A member's name, where it can be that of a file in a directory."""
    parts = name.rstrip("/").split("/")
    possible = all(part not in ("", ".", "..") and len(os.fsencode(part)) <= LONGEST for part in parts)
    if not possible or "\0" in name or len(parts) > DEEPEST or len(name) > LONGEST_PATH:
        raise tarfile.ExtractError(f"{name[:200]!r} can't be the name of a file")
    return "/".join(parts)


def _date(path: Path, seconds: float) -> None:
    """Give a file its time; one that no file system knows is left as it is."""
    if 0 <= seconds < 1 << 33:
        os.utime(path, (seconds, seconds))


class _Plain(RawIOBase):
    """What a compressed file holds, to be read once from its beginning, and no more of it than is granted."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed, self._unpacker = packed, Unpacker()
        self._buffer = bytearray()
        self._left = 0

    def grant(self, count: int) -> None:
        """From here on so many bytes may be read: what claims to be a name can't be a gigabyte."""
        self._left = count

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._buffer) < size:
            data = self._packed.read(AT_ONCE)
            if not data:
                break
            self._buffer += self._unpacker.feed(data)
        count = len(self._buffer) if size < 0 else min(size, len(self._buffer))
        self._left -= count
        if self._left < 0:
            raise tarfile.ReadError("it is far larger than it may be")
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken
