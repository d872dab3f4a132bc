"""Reads tokens off an answer while its bytes pass, whatever coding they have. It never holds anything up."""

from __future__ import annotations

import zlib

from hawk.config.providers import Kind
from hawk.core.traffic.scanner import Scanner
from hawk.core.traffic.usage import Usage

_ANSWERS = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/messages",
    ":generateContent",
    ":streamGenerateContent",
)
"""Ends of paths whose answers are a model's words."""

_FEW = 4
"""Tokens that an answer without a word may have: those that begin and end it."""

_EXPANSION = 1 << 20
"""Bytes that one chunk may become: more is a bomb, or nothing that has a usage worth finding."""


class Meter:
    """Fed with the body as it is sent.

    Attributes:
        events: Server-sent events so far, about one a token where a provider tells no usage.
    """

    __slots__ = ("_inflate", "_readable", "_scanner", "_streaming", "events")

    def __init__(self, kind: Kind, content_type: str, encoding: str) -> None:
        self._streaming = "event-stream" in content_type
        self._readable = readable = self._streaming or "json" in content_type
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

    def note(self, path: str, usage: Usage | None) -> str:
        """What is wrong with a good answer that has ended, of `spans.Span.note`; empty for nothing.

        Args:
            path: What was asked for: of a file or a list, nothing is to be said.
            usage: As it said.
        """
        scanner = self._scanner
        if scanner is not None and scanner.refused:
            return "refused"
        if (usage is not None and usage.output - usage.reasoning > _FEW) or not path.endswith(_ANSWERS):
            return ""
        if scanner is None:
            return "" if self._readable else "malformed"
        if scanner.broken:
            return "malformed"
        if scanner.output_seen:
            return ""
        known = usage is not None or scanner.model is not None or self._streaming
        return "empty" if known else "malformed"
