"""Reads tokens off an answer while its bytes pass, whatever coding they have. It never holds anything up."""

from __future__ import annotations

import zlib

from hawk.config.providers import Kind
from hawk.core.traffic.scanner import Scanner
from hawk.core.traffic.usage import Usage

_EXPANSION = 1 << 20
"""Bytes that one chunk may become: more is a bomb, or nothing that has a usage worth finding."""


class Meter:
    """Fed with the body as it is sent.

    Attributes:
        events: Server-sent events so far, about one a token where a provider tells no usage.
    """

    __slots__ = ("_inflate", "_scanner", "_streaming", "events")

    def __init__(self, kind: Kind, content_type: str, encoding: str) -> None:
        self._streaming = "event-stream" in content_type
        readable = self._streaming or "json" in content_type
        self._scanner: Scanner | None = Scanner(kind, self._streaming) if readable else None
        self._inflate = None
        self.events = 0
        if encoding and encoding != "identity":
            if encoding in ("gzip", "x-gzip", "deflate"):
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
            else:
                self._scanner = None

    def feed(self, data: bytes) -> None:
        if self._scanner is None:
            return
        if self._inflate is not None:
            try:
                data = self._inflate.decompress(data, _EXPANSION)
            except zlib.error:
                self._scanner = None
                return
            if self._inflate.unconsumed_tail:
                self._scanner = None
                return
        if self._streaming:
            self.events += data.count(b"\n\n") or data.count(b"\r\n\r\n")
        self._scanner.feed(data)

    def usage(self) -> Usage | None:
        return self._scanner.usage() if self._scanner is not None else None
