"""A worker's trace as one file that only grows, though it lies in pieces.

`trace.jsonl` is written to. When it is large it becomes `trace-<offset>.jsonl`, and when the next one does,
`trace-<offset>.jsonl.zst`; the oldest are dropped. <offset> is where the piece begins in the whole (the *logical
offset*, 15 digits), which goes on over pieces and over the processes of a worker. Imports no Inspect.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO, FileIO
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

import msgspec

from hawk.core.recorder.trace import Beat, InFlight, Sidecar
from hawk.core.zstd import Unpacker, ZstdError

CURRENT = "trace.jsonl"
SIDECAR = "trace.open.json"
BLOCK = 1 << 20
_LEAST = 1 << 16
_PACKED_BLOCK = 1 << 14  # compressed: trace lines unpack to ten or twenty times that
_LONGEST = 1 << 26  # bytes looked back for the end of a line

B = TypeVar("B", bound=Beat)

_PIECE = re.compile(r"trace-(\d{15})\.jsonl(\.zst)?")


class Piece(NamedTuple):
    """An older part: where it begins, and whether it is compressed."""

    start: int
    packed: bool

    @property
    def name(self) -> str:
        return f"trace-{self.start:015}.jsonl" + (".zst" if self.packed else "")


class Pick(NamedTuple):
    """Which lines are wanted: all of them, without `wanted`.

    Attributes:
        wanted: Whether a line is.
        may_be_in: Whether such a line can be in a block of lines at all: cheaper than to look at each.
    """

    wanted: Callable[[bytes], bool] | None = None
    may_be_in: Callable[[bytes], bool] | None = None

    def lines(self, block: bytes) -> list[bytes]:
        """The wanted lines of a block of whole lines."""
        if self.may_be_in is not None and not self.may_be_in(block):
            return []
        return split(block) if self.wanted is None else [line for line in split(block) if self.wanted(line)]


class Tail(NamedTuple):
    """The last lines, oldest first, and whether there are earlier ones."""

    lines: list[bytes]
    truncated: bool


def pieces(home: Path) -> list[Piece]:
    """The older parts, oldest first. One that is just being compressed is there once, as it was."""
    found: dict[int, bool] = {}
    try:
        names = os.listdir(home)  # noqa: PTH208  # names are all that is needed
    except OSError:
        return []
    for name in names:
        match = _PIECE.fullmatch(name)
        if match:
            start = int(match[1])
            found[start] = found.get(start, True) and match[2] is not None
    return [Piece(start, packed) for start, packed in sorted(found.items())]


def read_sidecar(home: Path) -> Sidecar | None:
    """The sidecar; None where there is none that can be read."""
    try:
        return msgspec.json.decode((home / SIDECAR).read_bytes(), type=Sidecar)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_beat(home: Path, type_: type[B]) -> B | None:
    """A worker's last heartbeat, as much of it as is asked for; None where there is none that can be read."""
    try:
        return msgspec.json.decode((home / "heartbeat.json").read_bytes(), type=type_)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


class TraceFiles:
    """One worker's trace at one moment.

    Attributes:
        sidecar: As it was then.
        begin: Logical offset of the first byte that is still there.
        end: Logical offset after the last whole line.
    """

    def __init__(self, home: Path) -> None:
        """Raises: FileNotFoundError when the worker has no trace."""
        self._home = home
        self._file: FileIO | None = None  # one that is forgotten closes itself
        for _ in range(10):
            self._open()
            if self._settled():
                break
            self.close()
        if self._fd is None and not self._pieces:
            raise FileNotFoundError(home / CURRENT)
        self.begin = self._pieces[0].start if self._pieces else self._base
        self.end = self._base + self._last_line_end()

    def __enter__(self) -> TraceFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _fd(self) -> int | None:
        return None if self._file is None else self._file.fileno()

    @property
    def base(self) -> int:
        """Logical offset of the first byte of `trace.jsonl`."""
        return self._base

    @property
    def modified(self) -> float | None:
        """When `trace.jsonl` was last written to, seconds since the epoch."""
        return None if self._fd is None else os.fstat(self._fd).st_mtime

    def in_flight(self) -> InFlight:
        """The actions in flight at the end: the sidecar's, and what the lines after it say."""
        sidecar = self.sidecar
        if sidecar is None or sidecar.at > self.end:
            state, start = InFlight(), self.begin
        else:
            state, start = InFlight(bytes(raw) for raw in sidecar.actions), sidecar.at
        for line in self.lines(start):
            state.feed(line)
        return state

    def blocks(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """The bytes from a logical offset to another (or the end), a piece of at most a few MiB at a time."""
        stop = self.end if stop is None else min(stop, self.end)
        starts = [piece.start for piece in self._pieces]
        for piece, after in zip(self._pieces, [*starts, self._base][1:], strict=True):
            if after > start and piece.start < stop:
                yield from _cut(_read(self._home, piece), start - piece.start, stop - piece.start)
        if self._fd is not None and stop > self._base:
            position, last = max(start - self._base, 0), stop - self._base
            while position < last:
                data = os.pread(self._fd, min(BLOCK, last - position), position)
                if not data:
                    return
                yield data
                position += len(data)

    def lines(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """Whole lines from a logical offset to another (or the end), each with its line end."""
        return _lines(self.blocks(start, stop))

    def tail(self, count: int, pick: Pick | None = None, most: int = 1 << 25) -> Tail:
        """The last lines.

        Args:
            count: At most so many.
            pick: Which lines; None: all.
            most: At most so many bytes, and the last line whatever its length.
        """
        found: list[bytes] = []
        for source in self._backwards():
            if len(found) >= count:
                return _trimmed(found, most, more=True)
            part = source(count - len(found), pick or Pick())
            found = part.lines + found
            if part.truncated:
                return _trimmed(found, most, more=True)
        return _trimmed(found, most, more=False)

    def _open(self) -> None:
        try:
            self._file = FileIO(self._home / CURRENT)
        except FileNotFoundError:
            self._file = None
        self._pieces = pieces(self._home)
        self.sidecar = read_sidecar(self._home)

    def _settled(self) -> bool:
        """Whether nothing was moved while the parts were looked up."""
        try:
            self._base = base_of(self._home, self._pieces, self.sidecar)
        except FileNotFoundError:
            return False
        try:
            inode = (self._home / CURRENT).stat().st_ino
        except FileNotFoundError:
            return self._fd is None
        return self._fd is not None and os.fstat(self._fd).st_ino == inode

    def _last_line_end(self) -> int:
        """How much of `trace.jsonl` is whole lines: a process may be writing, or have died writing."""
        if self._fd is None:
            return 0
        position = os.fstat(self._fd).st_size
        floor = max(0, position - _LONGEST)
        while position > floor:
            begin = max(floor, position - _LEAST)
            found = os.pread(self._fd, position - begin, begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            position = begin
        return 0

    def _backwards(self) -> Iterator[Callable[[int, Pick], Tail]]:
        """What gives the last lines of each part, the newest part first."""
        if self._fd is not None and self.end > self._base:
            fd, size = self._fd, self.end - self._base
            yield lambda count, pick: _last_of_file(fd, size, count, pick)
        for piece in reversed(self._pieces):
            yield partial(_last_of_piece, self._home, piece)


def base_of(home: Path, found: list[Piece], sidecar: Sidecar | None) -> int:
    """Logical offset of the first byte of `trace.jsonl`.

    Raises:
        FileNotFoundError: The newest piece has just been compressed; look again.
    """
    if not found:
        return sidecar.base if sidecar is not None else 0
    newest = found[-1]
    if not newest.packed:
        return newest.start + (home / newest.name).stat().st_size
    if sidecar is not None and sidecar.base > newest.start:
        return sidecar.base
    return newest.start + sum(map(len, _read(home, newest)))


def _open(home: Path, piece: Piece) -> int | None:
    try:
        return os.open(home / piece.name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _read(home: Path, piece: Piece) -> Iterator[bytes]:
    """What a piece holds, compressed or not; nothing when it has been dropped, and up to its damage if it is damaged."""
    fd = _open(home, piece)
    if fd is None and not piece.packed:
        piece = Piece(piece.start, True)  # compressed since it was listed
        fd = _open(home, piece)
    if fd is None:
        return
    unpacker = Unpacker() if piece.packed else None
    try:
        while data := os.read(fd, _PACKED_BLOCK if piece.packed else BLOCK):
            yield data if unpacker is None else unpacker.feed(data)
    except ZstdError:
        return
    finally:
        os.close(fd)


def _cut(parts: Iterator[bytes], start: int, stop: int) -> Iterator[bytes]:
    """What lies between two offsets of a sequence of parts."""
    position = 0
    for part in parts:
        begin, end = max(start - position, 0), min(stop - position, len(part))
        if begin < end:
            yield part if end - begin == len(part) else part[begin:end]
        position += len(part)
        if position >= stop:
            return


def _last_of_piece(home: Path, piece: Piece, count: int, pick: Pick) -> Tail:
    fd = None if piece.packed else _open(home, piece)
    if fd is not None:
        try:
            return _last_of_file(fd, os.fstat(fd).st_size, count, pick)
        finally:
            os.close(fd)
    # Compressed data is read from its beginning: the whole piece, which is bounded.
    kept: deque[bytes] = deque(maxlen=count)
    seen = 0
    for block in _whole_lines(_read(home, piece)):
        lines = pick.lines(block)
        seen += len(lines)
        kept.extend(lines)
    return Tail(list(kept), seen > count)


def _last_of_file(fd: int, end: int, count: int, pick: Pick) -> Tail:
    found: list[bytes] = []
    for block in _backwards(fd, end, _LEAST if pick.wanted is None else BLOCK):
        found = pick.lines(block) + found
        if len(found) > count:
            return Tail(found[len(found) - count :], True)
    return Tail(found, False)


def _trimmed(lines: list[bytes], most: int, *, more: bool) -> Tail:
    size = 0
    for index in range(len(lines) - 1, -1, -1):
        size += len(lines[index])
        if size > most and index < len(lines) - 1:
            return Tail(lines[index + 1 :], True)
    return Tail(lines, more)


def split(block: bytes) -> list[bytes]:
    """Lines with their ends. Only a newline ends one: `splitlines` would also break at a carriage return."""
    return BytesIO(block).readlines()


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    for block in _whole_lines(parts):
        yield from split(block)


def _whole_lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, cut at line ends only."""
    rest: list[bytes] = []
    for part in parts:
        cut = part.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, part[:cut]])
            rest = [part[cut:]] if cut < len(part) else []
        else:
            rest.append(part)
    if rest:
        yield b"".join(rest)


def _backwards(fd: int, end: int, size: int) -> Iterator[bytes]:
    """Blocks of whole lines from the end of a file to its beginning, each larger than the one before."""
    rest = b""  # the end of a line whose beginning is further back
    while end > 0:
        begin = max(0, end - size)
        data = os.pread(fd, end - begin, begin) + rest
        cut = 0 if begin == 0 else data.find(b"\n") + 1
        if begin and not cut:
            rest = data
        else:
            rest = data[:cut]
            if cut < len(data):
                yield data[cut:]
        end, size = begin, min(size * 4, BLOCK)
    if rest:
        yield rest
