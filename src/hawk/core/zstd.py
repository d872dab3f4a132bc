"""Zstandard: in the standard library from Python 3.14 on, before that in a package that Inspect brings as well."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

_LEVEL = 1

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdCompressor, ZstdDecompressor, ZstdError, compress

    def _frame() -> ZstdDecompressor:
        return ZstdDecompressor()

    def _packer() -> ZstdCompressor:
        return ZstdCompressor(level=_LEVEL)

    def pack(data: bytes) -> bytes:
        """One frame, at the level that costs least."""
        return compress(data, level=_LEVEL)

else:
    from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

    if TYPE_CHECKING:
        from zstandard import ZstdCompressionObj, ZstdDecompressionObj

    def _frame() -> ZstdDecompressionObj:
        return ZstdDecompressor().decompressobj()

    def _packer() -> ZstdCompressionObj:
        return ZstdCompressor(level=_LEVEL).compressobj()

    def pack(data: bytes) -> bytes:
        """One frame, at the level that costs least."""
        return ZstdCompressor(level=_LEVEL).compress(data)


__all__ = ["Packer", "Unpacker", "ZstdError", "pack", "unpack"]


class Packer:
    """Makes one frame of data that comes bit by bit, at the level that costs least."""

    def __init__(self) -> None:
        self._current = _packer()

    def feed(self, data: bytes) -> bytes:
        """What can be said so far."""
        return self._current.compress(data)

    def finish(self) -> bytes:
        """The rest."""
        return self._current.flush()


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
