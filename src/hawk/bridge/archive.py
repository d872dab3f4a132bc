"""Reads members of a zip archive by name, quickly, without an object for each of its entries.

A log of 10,000 attempts has 10,000 members that a status reader never opens. `zipfile` builds them all (115 ms
and several megabytes at each look, and a running log is looked at every second); walking the central directory
and keeping what was asked for takes a tenth of that. Also, `zipfile` before Python 3.14 does not know
method 93 (Zstandard), which every log uses.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hawk.core import zstd

_TAIL = 65_557  # the end record and the longest comment it may have
_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_FULL = 0xFFFFFFFF


class ArchiveError(Exception):
    """Not a whole zip archive."""


class Member(NamedTuple):
    """Where one member lies; equal for two looks exactly when its content is."""

    method: int
    crc: int
    packed: int
    size: int
    offset: int


class Archive:
    """An archive opened for reading; a context manager.

    Attributes:
        stamp: Modification time (ns), size and inode of the file that was opened.

    Raises:
        OSError: It can't be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        stat = os.fstat(self._file.fileno())
        self.stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def members(self, wanted: Callable[[bytes], bool]) -> dict[str, Member]:
        """The members whose name is wanted; of two with one name the later, as every writer means it.

        Raises:
            ArchiveError: The file is empty, cut short or no zip archive.
        """
        directory = self._directory()
        found: dict[str, Member] = {}
        at, end = 0, len(directory)
        try:
            while at < end:
                entry = _ENTRY.unpack_from(directory, at)
                if entry[0] != b"PK\x01\x02":
                    raise ArchiveError("its directory is damaged")
                start = at + _ENTRY.size
                name_end = start + entry[10]
                at = name_end + entry[11] + entry[12]
                name = directory[start:name_end]
                if wanted(name):
                    extra = directory[name_end : name_end + entry[11]]
                    found[name.decode("utf-8", "replace")] = _member(entry, extra)
        except struct.error as ex:
            raise ArchiveError("its directory is cut short") from ex
        return found

    def read(self, member: Member) -> bytes:
        """The content of a member.

        Raises:
            ArchiveError: It is cut short or damaged.
        """
        head = self._at(member.offset, _LOCAL.size)
        fields = _LOCAL.unpack(head)
        if fields[0] != b"PK\x03\x04":
            raise ArchiveError("a member is not where its directory says")
        data = self._at(member.offset + _LOCAL.size + fields[9] + fields[10], member.packed)
        try:
            content = _unpack(member.method, data)
        except (zlib.error, ValueError, zstd.ZstdError) as ex:
            raise ArchiveError(f"a member is damaged ({ex})") from ex
        if zlib.crc32(content) != member.crc:
            raise ArchiveError("a member is damaged (checksum)")
        return content

    def _directory(self) -> bytes:
        size = self.stamp[1]
        if size == 0:
            raise ArchiveError("it is empty")
        base = max(0, size - _TAIL)
        tail = self._at(base, size - base)
        at = tail.rfind(b"PK\x05\x06", 0, len(tail) - _END.size + 4)
        if at < 0:
            raise ArchiveError("it is cut short or no zip archive")
        end = _END.unpack_from(tail, at)
        length, offset = end[5], end[6]
        if at >= _END64_LOCATOR.size and (_FULL in (length, offset) or end[4] == 0xFFFF):
            locator = _END64_LOCATOR.unpack_from(tail, at - _END64_LOCATOR.size)
            if locator[0] == b"PK\x06\x07":
                length, offset = _END64.unpack(self._at(locator[2], _END64.size))[8:10]
        return self._at(offset, length)

    def _at(self, offset: int, length: int) -> bytes:
        if offset + length > self.stamp[1]:
            raise ArchiveError("it is cut short")
        self._file.seek(offset)
        data = self._file.read(length)
        if len(data) != length:
            raise ArchiveError("it is cut short")
        return data


def _unpack(method: int, data: bytes) -> bytes:
    match method:
        case 93:
            return zstd.unpack(data)
        case 8:
            return zlib.decompress(data, -zlib.MAX_WBITS)
        case 0:
            return data
    raise ValueError(f"unknown compression method {method}")


def _member(entry: tuple[Any, ...], extra: bytes) -> Member:
    packed, size, offset = entry[8], entry[9], entry[16]
    if _FULL in (packed, size, offset):
        wide = _zip64(extra)
        size = next(wide, 0) if size == _FULL else size
        packed = next(wide, 0) if packed == _FULL else packed
        offset = next(wide, 0) if offset == _FULL else offset
    return Member(entry[4], entry[7], packed, size, offset)


def _zip64(extra: bytes) -> Iterator[int]:
    """The 64-bit values that stand in for those which don't fit their field."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            yield from struct.unpack_from(f"<{length // 8}Q", extra, at + 4)
            return
        at += 4 + length
