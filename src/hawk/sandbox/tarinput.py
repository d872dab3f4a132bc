"""Reading tar files that may be damaged or hostile, from files, parts of files and pipes.

Keeper side: standard library only, everything imported at the top. `tarfile` parses the headers; it is kept from
reading much at once, from going backwards, and from taking a cut archive for a whole one.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import struct
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

try:
    import bz2
except ImportError:  # a Python that was built without it
    bz2 = None  # type: ignore[assignment]
try:
    import lzma
except ImportError:
    lzma = None  # type: ignore[assignment]

CHUNK = 1 << 20

_LONGEST_HEADER = 1 << 20
"""For one member. A path takes 4 KiB, extended attributes 64 KiB at most: what claims more is there to fill memory."""

_DAMAGE: tuple[type[Exception], ...] = (
    tarfile.TarError,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    OverflowError,
    LookupError,
    RecursionError,
)
if lzma is not None:
    _DAMAGE += (lzma.LZMAError,)


class ArchiveError(OSError):
    """An archive or directory can't be unpacked: damaged, hostile, or of a kind that we don't read."""

    def __init__(self, message: str, number: int = errno.EBADMSG) -> None:
        super().__init__(number, message)
        self.message = message

    def __str__(self) -> str:
        return self.message


def printable(path: str) -> str:
    """A path for people: odd bytes and control characters escaped, cut when it is long."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if len(text) <= 200 else f"{text[:100]}…{text[-99:]}"


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write until everything is written."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Part(io.RawIOBase):
    """Part of a file, read by position: several can be read by one descriptor, and the file's own offset stays.

    Args:
        length: In bytes; None: to the end.
    """

    def __init__(self, fd: int, start: int, length: int | None = None) -> None:
        self._fd, self._start, self._length, self._at = fd, start, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            length = self._length if self._length is not None else os.fstat(self._fd).st_size - self._start
            offset += length
        self._at = offset
        return offset

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if self._length is not None:
            view = view[: max(0, self._length - self._at)]
        count = os.preadv(self._fd, [view], self._start + self._at) if view else 0
        self._at += count
        return count


class Pipe(io.RawIOBase):
    """A file that can't seek. Reads until the buffer is full: the first bytes tell how it is compressed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        total = 0
        while total < len(view) and (count := os.readv(self._fd, [view[total:]])):
            total += count
        return total


def decompressed(raw: io.RawIOBase) -> tuple[IO[bytes], bool]:
    """Read a file that may be compressed with gzip, xz or bzip2, which its first bytes tell.

    Returns:
        The plain bytes, and whether it was compressed.

    Raises:
        ArchiveError: It is compressed in a way that we can't read.
    """
    plain = io.BufferedReader(raw, CHUNK)
    head = plain.peek(8)[:8]
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=plain, mode="rb")), True
    if head.startswith(b"\xfd7zXZ\0"):
        if lzma is None:
            raise ArchiveError("it is compressed with xz, which this Python can't read; decompress it first")
        return cast("IO[bytes]", lzma.LZMAFile(plain)), True
    if head.startswith(b"BZh"):
        if bz2 is None:
            raise ArchiveError(
                "it is compressed with bzip2, which this Python can't read; decompress it first"
            )
        return bz2.BZ2File(plain), True
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        raise ArchiveError("it is compressed with zstd, which we don't read; decompress it first (zstd -d)")
    return plain, False


class TarInput:
    """What `tarfile` reads from: forward only, in bounded pieces, and it remembers what came last.

    Args:
        reader: The plain bytes.
        jumps: Whether seeking is cheap.
    """

    def __init__(self, reader: IO[bytes], *, jumps: bool) -> None:
        self._reader = reader
        self._jumps = jumps
        self._at = 0
        self._header = 0
        self.last = b""

    def tell(self) -> int:
        return self._at

    def begin_header(self) -> None:
        """What is read from now on is the header of another member."""
        self._header = 0

    def read(self, size: int) -> bytes:
        """Up to so many bytes of a header; fewer only at the end.

        Raises:
            ArchiveError: The compressed data are damaged or end too early, or the header is too long.
        """
        self._header += size
        if size < 0 or self._header > _LONGEST_HEADER:
            raise ArchiveError(f"a header claims to be {self._header} bytes long")
        return self._take(size)

    def _take(self, size: int) -> bytes:
        try:
            self.last = self._reader.read(size)
        except _DAMAGE as ex:
            raise ArchiveError(f"the compressed data are damaged or cut short: {ex}") from ex
        except OSError as ex:
            if ex.errno is not None:
                raise
            raise ArchiveError(f"the compressed data are damaged: {ex}") from ex
        self._at += len(self.last)
        return self.last

    def seek(self, position: int) -> None:
        """Go forward.

        Raises:
            ArchiveError: It would be backward, as sizes that are wrong on purpose make it.
        """
        if position < self._at:
            raise ArchiveError("a header claims a negative size")
        if self._jumps:
            self._reader.seek(position)
            self._at = position
        while self._at < position and self._take(min(CHUNK, position - self._at)):
            pass

    def drain(self) -> None:
        """Read what follows the archive: compressed data have their checksum there, and a pipe its writer."""
        while not self._jumps and self._take(CHUNK):
            pass

    def pieces(self, size: int) -> Iterator[bytes]:
        """The next bytes.

        Raises:
            ArchiveError: The archive ends before.
        """
        while size:
            data = self._take(min(CHUNK, size)) if size > 0 else b""
            if not data:
                raise ArchiveError("the archive is cut short")
            size -= len(data)
            yield data

    def write_to(self, fd: int, size: int) -> None:
        """Copy the next bytes to a file.

        Raises:
            ArchiveError: The archive ends before.
        """
        for data in self.pieces(size):
            write_all(fd, data)

    def write_rest(self, fd: int) -> None:
        """Copy all that follows to a file."""
        while data := self._take(CHUNK):
            write_all(fd, data)


def members(source: TarInput) -> Iterator[tarfile.TarInfo]:
    """The members of an archive in order; `source` stands at a member's data when it comes.

    Raises:
        ArchiveError: It is no tar file, is damaged, or ends without its end mark.
    """
    try:
        tar: Any = tarfile.TarFile(fileobj=cast("Any", source), encoding="utf-8", errors="surrogateescape")
        while (member := tar.next()) is not None:
            tar.members.clear()  # it would keep them all
            yield member
            source.begin_header()
    except _DAMAGE as ex:
        what = (
            "this is no tar archive"
            if source.tell() <= tarfile.BLOCKSIZE
            else "the archive is damaged or cut short"
        )
        raise ArchiveError(f"{what}: {ex}") from ex
    # To tarfile every header that it can't read is the end.
    if not source.last:
        raise ArchiveError("the archive is cut short: it has no end mark")
    if len(source.last) < tarfile.BLOCKSIZE or source.last.count(0) != len(source.last):
        raise ArchiveError(f"the archive is damaged or cut short after {source.tell()} bytes")
    source.drain()


def data_of(member: tarfile.TarInfo) -> list[tuple[int, int]]:
    """Where a file's data, which follow one another in the archive, belong: (offset, size). Holes are left out."""
    pieces = cast("list[tuple[int, int]] | None", getattr(member, "sparse", None))
    return [(0, member.size)] if pieces is None else pieces
