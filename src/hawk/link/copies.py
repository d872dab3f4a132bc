"""What one side has of a run directory, as it says to the other; and how a file's beginning is recognised again."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from hawk.link import rules
from hawk.link.changes import Stamp
from hawk.link.frames import Have, Known

_AT_ONCE = 500
BLOCK = 1 << 20
"""Bytes of which one digest is kept, of a large file that was sent."""


def have(root: Path, stamps: Iterable[tuple[str, Stamp]]) -> Iterator[Have]:
    """Frames that say which files are there; at least one."""
    known: list[Known] = []
    for path, stamp in stamps:
        match rules.kind(path):
            case rules.Kind.WHOLE:
                known.append(Known(path, stamp.size, stamp.mtime))
            case rules.Kind.TAIL:
                known.append(Known(path, stamp.size, stamp.mtime, check(root / path, stamp.size)))
            case rules.Kind.LINES:
                lines = tuple(digests(last_lines(root / path)))
                known.append(Known(path, stamp.size, stamp.mtime, lines=lines))
        if len(known) >= _AT_ONCE:
            yield Have(known, more=True)
            known = []
    yield Have(known)


def check(path: Path, size: int) -> int:
    """What tells whether two files that grow are the same up to a size; -1 where there is not so much."""
    length = min(size, rules.TAIL_CHECKED)
    try:
        with path.open("rb") as file:
            data = os.pread(file.fileno(), length, size - length)
    except OSError:
        return -1
    return zlib.crc32(data) if len(data) == length else -1


def last_lines(path: Path) -> list[bytes]:
    """The last whole lines of the journal, oldest first."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - rules.LINES_COMPARED * 4096)
            lines = os.pread(file.fileno(), size - start, start).splitlines(keepends=True)
    except OSError:
        return []
    if start:
        lines = lines[1:]
    return [line for line in lines if line.endswith(b"\n")][-rules.LINES_COMPARED :]


def digests(lines: Iterable[bytes]) -> Iterator[str]:
    """By which lines are told apart."""
    return (hashlib.blake2b(line, digest_size=8).hexdigest() for line in lines)


def lines_known(path: Path, known: Iterable[str]) -> int:
    """Offset behind the last line of a journal that the other side has as well; 0 where it has none."""
    wanted = set(known)
    found = offset = 0
    try:
        with path.open("rb") as file:
            for line in file:
                offset += len(line)
                if wanted and line.endswith(b"\n") and next(digests([line])) in wanted:
                    found = offset
    except OSError:
        return 0
    return found


class Blocks:
    """Digests of the blocks of one version of a large file, so that the next one is sent from its first difference."""

    def __init__(self, size: int, mtime: int) -> None:
        self.version = (size, mtime)
        self._digests: list[bytes] = []

    def add(self, block: bytes) -> None:
        """The next block of `BLOCK` bytes; the last one may be shorter and is left out."""
        if len(block) == BLOCK:
            self._digests.append(_digest(block))

    def take(self, other: Blocks, count: int) -> None:
        """Begin with the same blocks as another version."""
        self._digests = other._digests[:count]

    def common(self, fd: int) -> int:
        """How many blocks at the beginning an open file shares with this version."""
        for n, digest in enumerate(self._digests):
            if _digest(os.pread(fd, BLOCK, n * BLOCK)) != digest:
                return n
        return len(self._digests)


def _digest(block: bytes) -> bytes:
    return hashlib.blake2b(block, digest_size=12).digest()
