"""What a growing file of lines has gained: journals, spans and notes are read again and again by who follows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Tail:
    """Whole lines that came since the last reading; a torn one is read once it is whole.

    A file that became shorter is read again from its beginning.

    Args:
        most: Bytes of one reading: of more, only the newest count. None: all count.
    """

    def __init__(self, path: Path, *, most: int | None = None) -> None:
        self._path = path
        self._most = most
        self._offset = 0

    def lines(self) -> Iterator[bytes]:
        """Each with its newline.

        Raises:
            OSError: The file can't be read.
        """
        with self._path.open("rb") as file:
            size = file.seek(0, 2)
            if size < self._offset:
                self._offset = 0
            if self._most is not None and size - self._offset > self._most:
                file.seek(size - self._most - 1)
                file.readline()  # the rest of a line whose beginning is passed over
                self._offset = file.tell()
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield line

    def read(self, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
        """The same, decoded; lines that are damaged or of another kind are passed over."""
        for line in self.lines():
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
