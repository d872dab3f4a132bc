"""Zstandard: in the standard library from Python 3.14 on, before that in a package that Inspect brings as well."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError, compress

    def _frame() -> ZstdDecompressor:
        return ZstdDecompressor()

    def pack(data: bytes) -> bytes:
        """One frame, at the level that costs least."""
        return compress(data, level=1)

else:
    from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

    if TYPE_CHECKING:
        from zstandard import ZstdDecompressionObj

    def _frame() -> ZstdDecompressionObj:
        return ZstdDecompressor().decompressobj()

    def pack(data: bytes) -> bytes:
        """One frame, at the level that costs least."""
        return ZstdCompressor(level=1).compress(data)


__all__ = ["Unpacker", "ZstdError", "pack", "unpack"]


class Unpacker:
    """Unpacks frames that follow one another, however they arrive."""

    def __init__(self) -> None:
        self._current = _frame()

    def feed(self, data: bytes) -> bytes:
        """What can be said so far. Raises: ZstdError when it is damaged."""
        parts = []
        while data:
            if self._current.eof:
                self._current = _frame()
            parts.append(self._current.decompress(data))
            data = self._current.unused_data
        return parts[0] if len(parts) == 1 else b"".join(parts)


def unpack(data: bytes) -> bytes:
    """The content of whole frames. Raises: ZstdError when they are damaged."""
    return Unpacker().feed(data)
