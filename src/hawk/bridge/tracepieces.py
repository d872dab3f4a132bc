"""Appends to a worker's trace, and keeps it bounded: `tracesegments` says how it lies on disk. Imports no Inspect."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from hawk.bridge.tracesegments import CURRENT, Piece, base_of, pieces, read_sidecar
from hawk.core.zstd import Packer

SIZE = 64 << 20  # bytes of a piece: one is read whole when its last lines are asked for
MOST = 256 << 20  # bytes of all compressed pieces
COUNT = 16
_READ = 1 << 18
_DRAFT = ".trace-draft.zst"


class Pieces:
    """The parts of one worker's trace, for the one process that writes it. Not for use by several threads at once.

    Args:
        home: The worker's directory.
        moved: Called from a thread of its own after `trace.jsonl` has begun anew.

    Raises:
        OSError: `trace.jsonl` can't be opened.
    """

    def __init__(
        self,
        home: Path,
        *,
        size: int | None = None,
        most: int | None = None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._home = home
        self._limit = size or SIZE
        self._most = most or MOST
        self._moved = moved
        self._tidying = threading.Lock()
        self.base = base_of(home, pieces(home), read_sidecar(home))
        self._fd = self._opened()
        self._size = os.fstat(self._fd).st_size
        self._turn_at = self._limit
        if self._size and not self._ends_well():
            self.append(b"\n")  # what a process was writing when it died

    @property
    def offset(self) -> int:
        """Logical offset of the end."""
        return self.base + self._size

    def append(self, line: bytes) -> str | None:
        """Append a whole line. Returns: why it could not be written, else None."""
        try:
            if os.write(self._fd, line) < len(line):
                os.ftruncate(self._fd, self._size)  # half a line: readers have not taken it
                return "the disk is full"
        except OSError as ex:
            return ex.strerror or str(ex)
        self._size += len(line)
        if self._size >= self._turn_at:
            self._turn()
        return None

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._home / CURRENT, flags, 0o600)

    def _ends_well(self) -> bool:
        with (self._home / CURRENT).open("rb") as f:
            f.seek(-1, os.SEEK_END)
            return f.read(1) == b"\n"

    def _turn(self) -> None:
        """Begin a new `trace.jsonl`. Where that fails, the old one grows on."""
        piece = self._home / Piece(self.base, packed=False).name
        try:
            (self._home / CURRENT).rename(piece)
        except OSError:
            self._turn_at = self._size + self._limit
            return
        try:
            fd = self._opened()
        except OSError:
            self._turn_at = self._size + self._limit
            with contextlib.suppress(OSError):
                piece.rename(self._home / CURRENT)
            return
        os.close(self._fd)
        self.base += self._size
        self._fd, self._size, self._turn_at = fd, 0, self._limit
        self.tidy(self._moved)

    def tidy(self, first: Callable[[], None] = lambda: None) -> None:
        """Compress all parts but the newest, and drop the oldest, in a thread of its own, after `first`.

        The newest stays as it is: the last lines are in it when `trace.jsonl` has just begun, and compressed data
        can only be read from its beginning.
        """
        threading.Thread(target=self._tidy, args=(first,), name="hawk-trace", daemon=True).start()

    def _tidy(self, first: Callable[[], None]) -> None:
        with self._tidying, contextlib.suppress(OSError):
            first()
            for piece in pieces(self._home)[:-1]:
                if not piece.packed:
                    self._compress(piece)
            # A part that came meanwhile is as large as it is plain, for a moment only: that drops nothing.
            packed = [piece for piece in pieces(self._home) if piece.packed]
            sizes = [(self._home / piece.name).stat().st_size for piece in packed]
            while packed and (len(packed) > COUNT or sum(sizes) > self._most):
                (self._home / packed.pop(0).name).unlink()
                sizes.pop(0)

    def _compress(self, piece: Piece) -> None:
        source, draft = self._home / piece.name, self._home / _DRAFT
        packer = Packer()
        private = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(private, "wb") as packed, source.open("rb") as plain:
            while data := plain.read(_READ):
                packed.write(packer.feed(data))
            packed.write(packer.finish())
        draft.rename(self._home / piece._replace(packed=True).name)
        source.unlink()
