"""Reading what goes into a bundle: part by part, never through links, and never more than is asked for."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from hawk.core.zstd import Unpacker, ZstdError

CHUNK = 1 << 18
LONGEST_LINE = 1 << 22
"""Bytes above which a line is taken in parts."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Redact = Callable[[Iterable[bytes]], Iterator[bytes]]
Cut = Callable[[bytes], bytes | None]
"""What is kept of a line, or None."""


class Item(msgspec.Struct):
    """A file for the bundle.

    Attributes:
        name: Relative to the bundle's directory, as it was called.
        parts: Its content, read as it is taken; may raise OSError.
        note: What of it is missing.
        written: When it was written last, seconds since the epoch; None: now.
        redacted: Nothing secret is left in `parts`.
        size: Bytes that went into the bundle, once they have; None: it did not get in.
    """

    name: str
    parts: Iterator[bytes]
    note: str = ""
    written: float | None = None
    redacted: bool = False
    size: int | None = None


class Gone(NamedTuple):
    """Something that should be in the bundle and is not."""

    name: str
    why: str


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A file's descriptor; neither a link nor a pipe may stand in its place. Raises: OSError."""
    fd = os.open(path, _READ)
    try:
        yield fd
    finally:
        os.close(fd)


def read_whole(fd: int, size: int) -> bytes:
    """At most so many bytes."""
    parts: list[bytes] = []
    while size > 0 and (part := os.read(fd, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_lines(path: Path, most: int) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of the last `most` bytes of what is there now; the first whole line is the first.

    Raises:
        OSError: It can't be read.
    """
    with opened(path) as fd, os.fdopen(os.dup(fd), "rb") as file:
        end = os.fstat(fd).st_size
        offset = max(0, end - most)
        file.seek(offset)
        if offset:
            offset += len(file.readline(most))
        while offset < end:
            line = file.readline(min(LONGEST_LINE, end - offset))
            if not line:
                return
            yield offset, line
            offset += len(line)


def plain_or_zipped(path: Path, most: int) -> Iterator[bytes]:
    """The parts of a file's first `most` bytes, unpacked where its name ends in `.gz`."""
    unpacker = zlib.decompressobj(wbits=31) if path.suffix == ".gz" else None
    with opened(path) as fd:
        while most > 0 and (part := os.read(fd, CHUNK)):
            try:
                part = unpacker.decompress(part, most) if unpacker else part[:most]
            except zlib.error:
                return  # torn: what came so far is good
            most -= len(part)
            yield part


def unpacked(path: Path) -> Iterator[bytes]:
    """The parts of a file that is packed with Zstandard, up to where it is torn."""
    unpacker = Unpacker()
    with opened(path) as fd:
        while part := os.read(fd, CHUNK):
            try:
                yield unpacker.feed(part)
            except ZstdError:
                return


class Count:
    """Counts bytes as they are taken."""

    def __init__(self) -> None:
        self.total = 0

    def count(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """The same parts."""
        for part in parts:
            self.total += len(part)
            yield part


def cut_lines(parts: Iterable[bytes], cut: Cut) -> Iterator[bytes]:
    """What is kept of each line of a text that comes in parts."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        for line in lines:
            if (kept := cut(line + b"\n")) is not None:
                yield kept
    if rest and (kept := cut(rest)) is not None:
        yield kept


def joined(parts: Iterable[bytes], size: int = 1 << 20) -> Iterator[bytes]:
    """The same in larger parts."""
    held: list[bytes] = []
    total = 0
    for part in parts:
        held.append(part)
        total += len(part)
        if total >= size:
            yield b"".join(held)
            held, total = [], 0
    if held:
        yield b"".join(held)


def names(directory: Path) -> list[str]:
    """What is in a directory, in the order of the names, but for links; nothing where there is none."""
    try:
        found = [entry.name for entry in os.scandir(directory) if not entry.is_symlink()]
    except OSError:
        return []
    return sorted(name for name in found if not name.startswith("."))


def newest_first(directory: Path) -> list[str]:
    """The same, what was written last first."""
    return sorted(names(directory), key=lambda name: written(directory / name) or 0.0, reverse=True)


def written(path: Path) -> float | None:
    """When a file was written last, seconds since the epoch; None where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
