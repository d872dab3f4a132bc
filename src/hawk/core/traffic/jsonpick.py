"""Picks a few values off the top of a JSON text that streams by, in constant memory.

A parser would have to hold the text. This follows brackets and strings only, jumps over what is deep or long with
one search each, and keeps the raw bytes of the values that were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container

_SHALLOW = re.compile(rb'["{}\[\]:,]')
_DEEP = re.compile(rb'["{}\[\]]')
_LONGEST_STRING = 256
_LONGEST_OBJECT = 8192

_QUOTE, _BACKSLASH, _COLON, _COMMA = b'"\\:,'
_OPEN_OBJECT, _OPEN_ARRAY = b"{["


class Picker:
    """Fed with a JSON text in pieces of any size; tells `found` of values as they are complete.

    Args:
        objects: Keys whose object is wanted, as raw bytes.
        strings: Keys whose string is wanted, as raw bytes without the quotes.
        inside: Keys of the top object whose object is looked into as well, one level.
        found: Called with (key, raw value). A key comes again as often as the text has it.

    The top is the object that is the whole text, or each object of the array that is. Never raises: of a text that
    is no JSON, something or nothing is found, the same for every way to split it.
    """

    def __init__(
        self,
        objects: Container[bytes],
        strings: Container[bytes],
        inside: Container[bytes],
        found: Callable[[bytes, bytes], None],
    ) -> None:
        self._objects, self._strings, self._inside, self._found = objects, strings, inside, found
        self.closed = False
        """The text's outermost bracket is closed."""
        self._depth = 0
        self._top = 1
        self._entered = False
        self._in_string = False
        self._escaped = False
        self._text: bytearray | None = None
        self._last = b""
        self._key = b""
        self._keep: bytearray | None = None
        self._keep_key = b""
        self._keep_depth = 0

    def feed(self, data: bytes) -> None:
        """The next piece."""
        at = 0
        size = len(data)
        kept = 0
        while at < size:
            if self._in_string:
                at = self._string(data, at)
                continue
            match = (_SHALLOW if self._shallow() else _DEEP).search(data, at)
            if match is None:
                break
            byte = data[match.start()]
            at = match.end()
            if byte == _QUOTE:
                self._in_string = True
                self._text = bytearray() if self._shallow() else None
            elif byte == _COLON:
                self._key, self._last = self._last, b""
            elif byte == _COMMA:
                self._key = self._last = b""
            elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
                if self._open(byte):
                    kept = at - 1
                elif byte == _OPEN_ARRAY and not self._shallow():
                    at = _past_numbers(data, at)
            else:
                self._close(data, kept, at)
        if self._keep is not None:
            self._hold(data[kept:])

    def _shallow(self) -> bool:
        return self._depth == self._top or (self._entered and self._depth == self._top + 1)

    def _string(self, data: bytes, at: int) -> int:
        """Go on in a string; where it ended, or the piece did."""
        start = at
        if self._escaped:
            self._escaped = False
            at += 1
        while (end := data.find(b'"', at)) >= 0:
            if _backslashes(data, at, end) % 2 == 0:
                self._in_string = False
                self._take(data[start:end])
                self._string_done()
                return end + 1
            at = end + 1
        self._escaped = _backslashes(data, at, len(data)) % 2 == 1
        self._take(data[start:])
        return len(data)

    def _take(self, piece: bytes) -> None:
        if self._text is not None:
            self._text += piece
            if len(self._text) > _LONGEST_STRING:
                self._text = None

    def _string_done(self) -> None:
        if self._text is None:
            self._last = b""
            return
        text = bytes(self._text)
        self._text = None
        if self._key and self._key in self._strings and self._keep is None:
            self._found(self._key, text)
        self._last = text

    def _open(self, byte: int) -> bool:
        """Go one level down; whether the value that begins is to be kept."""
        if self._depth == 0:
            self._top = 1 if byte == _OPEN_OBJECT else 2
            self._entered = False
        keep = False
        if byte == _OPEN_OBJECT and self._keep is None and self._shallow():
            if self._key in self._objects:
                keep = True
                self._keep, self._keep_key, self._keep_depth = bytearray(), self._key, self._depth
            elif self._depth == self._top and self._key in self._inside:
                self._entered = True
        self._depth += 1
        self._key = self._last = b""
        return keep

    def _close(self, data: bytes, kept: int, at: int) -> None:
        if self._depth == 0:
            return
        self._depth -= 1
        self._key = self._last = b""
        if self._keep is not None and self._depth == self._keep_depth:
            self._hold(data[kept:at])
            if self._keep is not None:
                raw = bytes(self._keep)
                self._keep = None
                self._found(self._keep_key, raw)
        if self._depth <= self._top:
            self._entered = False
        if self._depth == 0:
            self.closed = True

    def _hold(self, piece: bytes) -> None:
        if self._keep is not None:
            self._keep += piece
            if len(self._keep) > _LONGEST_OBJECT:
                self._keep = None


def _backslashes(data: bytes, begin: int, end: int) -> int:
    """How many there are in a row before `end`, not looking before `begin`."""
    at = end
    while at > begin and data[at - 1] == _BACKSLASH:
        at -= 1
    return end - at


def _past_numbers(data: bytes, at: int) -> int:
    """Where an array that begins at `at` ends, or the piece does; `at` if there is more in it than numbers."""
    end = data.find(b"]", at)
    if end < 0:
        end = len(data)
    plain = data.find(b'"', at, end) < 0 and data.find(b"{", at, end) < 0 and data.find(b"[", at, end) < 0
    return end if plain and data.find(b"}", at, end) < 0 else at
