"""A directory's content as one compressed archive: the same files are the same bytes."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from pathlib import Path
from typing import IO, NamedTuple, cast

from hawk.core.zstd import Packer
from hawk.errors import StorageError
from hawk.parcel.contents import Contents


class Packed(NamedTuple):
    """An archive: the SHA-256 of its bytes in hexadecimal, and how many there are."""

    digest: str
    size: int


class _Squeezed:
    """A file to write to that compresses, counts, and knows what the bytes are."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._packer = out, Packer()
        self._hash, self._size = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self._put(self._packer.feed(data))
        return len(data)

    def finish(self) -> Packed:
        self._put(self._packer.finish())
        return Packed(self._hash.hexdigest(), self._size)

    def _put(self, packed: bytes) -> None:
        self._out.write(packed)
        self._hash.update(packed)
        self._size += len(packed)


def pack(contents: Contents, out: IO[bytes]) -> Packed:
    """Write the archive of a directory.

    Raises:
        StorageError: A file can't be read.
        OSError: The archive can't be written.
    """
    squeezed = _Squeezed(out)
    with tarfile.open(fileobj=cast("IO[bytes]", squeezed), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path in contents.paths:
            _add(tar, contents.base, path)
    return squeezed.finish()


def _add(tar: tarfile.TarFile, base: Path, path: Path) -> None:
    """Add a file as it is now; one that has gone meanwhile is left out."""
    member = tarfile.TarInfo(path.relative_to(base).as_posix())
    try:
        status = path.lstat()
        member.mode = 0o755 if status.st_mode & 0o100 else 0o644
        if stat.S_ISDIR(status.st_mode):  # without its time, which changes with each cache in it
            member.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(status.st_mode):
            member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        if not member.isreg():
            tar.addfile(member)
            return
        member.mtime = status.st_mtime
        with path.open("rb") as file:
            member.size = os.fstat(file.fileno()).st_size
            tar.addfile(member, file)
    except FileNotFoundError:
        return
    except PermissionError as ex:
        raise StorageError(
            f"{path} can't be read.",
            remedy="Let it be read, or move it out of the eval set's directory.",
            path=str(path),
        ) from ex
