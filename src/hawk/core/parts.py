"""Bytes that come in parts of any length, to be taken in other lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

PIECE = 1 << 20


class Parts:
    """A stream of bytes.

    Args:
        parts: Where they come from.
        ended: Makes the error for a stream that ends before what was asked for.
    """

    def __init__(self, parts: Iterable[bytes], ended: Callable[[], Exception]) -> None:
        self._parts = iter(parts)
        self._ended = ended
        self._rest = memoryview(b"")

    def take(self, count: int) -> bytes:
        """The next so many bytes, at once."""
        return b"".join(self.pieces(count))

    def skip(self, count: int) -> None:
        for _ in self.pieces(count):
            pass

    def pieces(self, count: int) -> Iterator[bytes]:
        """The next so many bytes, at most `PIECE` at a time."""
        while count > 0:
            if not self._rest:
                part = next(self._parts, None)
                if part is None:
                    raise self._ended()
                self._rest = memoryview(part)
                continue
            piece = self._rest[: min(count, PIECE)]
            self._rest = self._rest[len(piece) :]
            count -= len(piece)
            yield bytes(piece)
