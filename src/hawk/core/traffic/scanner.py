"""Tokens, model and end of an answer, read off its bytes while they stream by.

Nothing is decoded that need not be. Of server-sent events: the first lines, until model and text are seen; then
lines with a usage in them; and when somebody asks, the last few. Of a JSON text: only its outermost level. What a
model writes can look like usage, but stands inside of a JSON string, or deeper.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import msgspec

from hawk.config.providers import Kind
from hawk.core.traffic.jsonpick import Picker
from hawk.core.traffic.usage import Usage, read_usage

_LINE = 4096
"""Longer lines of server-sent events are followed instead of kept and decoded (a whole response can be in one)."""
_RECENT = 2 * _LINE
"""So much of the last lines is kept, to be looked at when somebody asks: one search costs 0.6 µs per KiB here, and
seven of them in all that passes would cost more than passing it on."""
_WHOLE = 65536
"""A JSON answer up to here that comes in one piece is decoded, which is faster than to follow its brackets."""
_TEXT_WITHIN = 65536
"""Text that does not begin within so many bytes of a JSON answer is not looked for (embeddings have none)."""

_USAGES = frozenset({b"usage", b"usageMetadata"})
_STRINGS = frozenset({b"model", b"modelVersion", b"type"})
_INSIDE = frozenset({b"response", b"message"})
_ENDS = frozenset({b"message_stop", b"response.completed", b"response.incomplete", b"response.failed"})
_TEXT_KEYS = (
    b'"content"',
    b'"text"',
    b'"delta"',
    b'"arguments"',
    b'"partial_json"',
    b'"thinking"',
    b'"functionCall"',
)
_TEXT = re.compile(
    rb'"(?:content|text|delta|arguments|partial_json|thinking|refusal|reasoning(?:_content)?)"\s{0,4}:\s{0,4}"[^"]'
    rb'|"functionCall"\s{0,4}:\s{0,4}\{'
)
_TEXT_TAIL = 48
_FINISH = re.compile(rb'"finish(?:_r|R)eason"\s*:\s*"')
_END = re.compile(
    rb'"finish(?:_r|R)eason"\s*:\s*"'
    rb'|"type"\s*:\s*"(?:message_stop|response\.(?:completed|incomplete|failed))"'
    rb"|^data:\s*\[DONE\]\s*$"
)
_MOST_FIELDS = 64

_REASON_WITHIN = 1536
"""Why an answer ended stands so near to its end: behind it come counts, and a last event."""

_REFUSED = {
    Kind.OPENAI: (b'content_filter"', re.compile(rb'"finish_reason"\s*:\s*"content_filter"')),
    Kind.ANTHROPIC: (b'"refusal"', re.compile(rb'"stop_reason"\s*:\s*"refusal"')),
    Kind.GEMINI: (
        b"eason",
        re.compile(
            rb'"(?:finish|block)Reason"\s*:\s*"(?:SAFETY|PROHIBITED_CONTENT|BLOCKLIST|SPII|RECITATION|IMAGE_SAFETY)"'
        ),
    ),
}
"""By dialect, a word that is rarely there, and how an answer says that a filter or the model itself ended it."""


class _Inner(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()


class _Event(msgspec.Struct):
    """The top of an event; all raw, so that one odd value does not hide the others."""

    type: msgspec.Raw = msgspec.Raw()
    usage: msgspec.Raw = msgspec.Raw()
    usageMetadata: msgspec.Raw = msgspec.Raw()  # noqa: N815 (the provider's name)
    model: msgspec.Raw = msgspec.Raw()
    modelVersion: msgspec.Raw = msgspec.Raw()  # noqa: N815
    response: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()


class _Whole(msgspec.Struct):
    """A JSON answer as it mostly is. What does not fit is read as an `_Event`."""

    usage: dict[str, Any] | None = None
    usageMetadata: dict[str, Any] | None = None  # noqa: N815
    model: str | None = None
    modelVersion: str | None = None  # noqa: N815


_whole = msgspec.json.Decoder(_Whole)
_event = msgspec.json.Decoder(_Event)
_inner = msgspec.json.Decoder(_Inner)


class Scanner:
    """Fed with the decoded bytes of an answer's body; holds a few KiB at most and never raises.

    Args:
        kind: The provider's dialect.
        streaming: Whether server-sent events are expected. The first byte decides: a stream that was refused is
            answered in JSON, and Gemini streams a JSON array to those who ask for no events.

    Attributes:
        model: As the provider names it in the answer.
        finished: The answer came to its end: `[DONE]`, `message_stop`, a finish reason, or the JSON's last bracket.
        output_seen: There was any text at all, a tool call's arguments included.
        refused: A filter of the provider's, or the model's refusal, ended it. Known once somebody asked for the usage.
        broken: What came is neither JSON nor events. Known at the end.
    """

    def __init__(self, kind: Kind, streaming: bool) -> None:
        self.model: str | None = None
        self.output_seen = False
        self.refused = False
        self._finished = False
        self._kind = kind
        self._streaming = streaming
        self._counts: dict[str, Any] | None = None
        self._counted = 0
        self._begun = False
        self._fresh = True
        self._tail = b""
        self._recent: deque[bytes] = deque()
        self._recent_size = 0
        self._text_tail = b""
        self._text_left = _TEXT_WITHIN
        self._picker: Picker | None = None
        self._mark: bytes | None = None
        """Model and text were seen: from here on only lines with this are of interest."""

    @property
    def finished(self) -> bool:
        """The answer came to its end."""
        self._look_back()
        return self._finished

    @property
    def broken(self) -> bool:
        """Of an answer that has ended: it is not what was promised."""
        if not self._begun or not self._streaming:
            return not (self._begun and self.finished)
        return not self.finished and self._counts is None and not self.output_seen and self.model is None

    def feed(self, data: bytes) -> None:
        """The next bytes, split anywhere."""
        if not self._begun:
            data = self._begin(data)
        if not self._streaming:
            self._json(data)
            return
        if self._picker is not None:
            end = data.find(b"\n")
            self._picker.feed(data if end < 0 else data[:end])
            self._look_for_text(data if end < 0 else data[: end + 1])
            if end < 0:
                return
            self._picker = None
            data = data[end + 1 :]
        if self._tail:
            data = self._tail + data
        cut = data.rfind(b"\n") + 1
        if cut == len(data):
            self._tail = b""
            self._lines(data)
            return
        if cut:
            self._lines(data[:cut])
        self._tail = data[cut:]
        if len(self._tail) > _LINE:
            self._follow(self._tail)
            self._tail = b""

    def usage(self) -> Usage | None:
        """What was counted so far; None: nothing was."""
        self._look_back()
        return None if self._counts is None else read_usage(self._counts, self._kind)

    def _begin(self, data: bytes) -> bytes:
        data = data.lstrip(b" \t\r\n\xef\xbb\xbf")
        if data:
            self._begun = True
            self._streaming = data[0] not in b"{["
            if not self._streaming:
                self._picker = Picker(_USAGES, _STRINGS, (), self._picked)
        return data

    def _json(self, data: bytes) -> None:
        if self._picker is None or not data:
            return
        if self._text_left and not self.output_seen:
            self._look_for_text(data[: self._text_left])
            self._text_left = max(self._text_left - len(data), 0)
        if self._fresh:
            self._fresh = False
            if len(data) <= _WHOLE and data.rstrip().endswith(b"}") and self._read_whole(data):
                self._finished = True
                self._picker = None
                return
        self._picker.feed(data)
        self._finished = self._picker.closed

    def _lines(self, data: bytes) -> None:
        """Lines that are complete, a block of them at a time."""
        at = 0
        while at < len(data):
            end = data.rfind(b"\n", at, at + _LINE + 1) + 1
            if not end:
                end = data.find(b"\n", at) + 1
                self._follow(data[at : end - 1])
                self._look_for_text(b"\n")
                self._picker = None
            else:
                block = data if end - at == len(data) else data[at:end]
                if self._mark is None or self._mark in block:
                    for line in block.split(b"\n"):
                        self._line(line)
                self._remember(block)
            at = end

    def _remember(self, lines: bytes) -> None:
        self._recent.append(lines)
        self._recent_size += len(lines)
        while self._recent_size - len(self._recent[0]) > _RECENT:
            self._recent_size -= len(self._recent.popleft())

    def _look_back(self) -> None:
        """Read the last lines, which were passed over, from the end, until that of the answer and a usage are found."""
        if not self._recent and not self._tail:
            return
        recent = b"".join(self._recent)
        self._look_for_refusal(recent)
        self._recent.clear()
        self._recent_size = 0
        if len(recent) > _RECENT:
            recent = recent[recent.index(b"\n", len(recent) - _RECENT) + 1 :]
        counted = self._counted
        for line in [self._tail, *reversed(recent.split(b"\n"))]:
            if self._counted == counted and b'"usage' in line and b'"usage":null' not in line:
                self._event(line)
            elif not self._finished:
                self._finished = line.startswith(b"data:") and _END.search(line) is not None
            if self._finished and self._counted > counted:
                break

    def _line(self, line: bytes) -> None:
        """A line that may matter: one of the first, or one with the mark."""
        if self._mark is not None:
            if self._mark in line:
                self._event(line)
            return
        if not self.output_seen:
            self._look_for_text(line + b"\n")
        if self.model is None or b'"usage"' in line:
            self._event(line)
        if self.output_seen and self.model is not None:
            self._mark = b'"usage": {' if b'": ' in line else b'"usage":{'

    def _event(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        body = line[5:].strip()
        if body == b"[DONE]":
            self._finished = True
        elif body[:1] == b"{":
            self._finished = self._finished or _FINISH.search(body) is not None
            self._parse(body)

    def _read_whole(self, body: bytes) -> bool:
        """Read a JSON answer that came in one piece; False if it is none."""
        try:
            answer = _whole.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._parse(body, inside=False)
        for counts in (answer.usage, answer.usageMetadata):
            if counts:
                self._add(counts)
        self._look_for_refusal(body)
        model = answer.model or answer.modelVersion
        if model and self.model is None:
            self.model = model[:200]
        return True

    def _parse(self, body: bytes, inside: bool = True) -> bool:
        """Read one whole object; False if it is none."""
        try:
            event = _event.decode(body)
            inner = [
                _inner.decode(raw)
                for raw in (event.response, event.message)
                if inside and bytes(raw)[:1] == b"{"
            ]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        self._strings(event.type, event.model, event.modelVersion)
        for part in inner:
            self._strings(b"", part.model, b"")
            self._picked(b"usage", bytes(part.usage))
        for raw in (event.usage, event.usageMetadata):
            self._picked(b"usage", bytes(raw))
        return True

    def _strings(self, kind: Any, model: Any, version: Any) -> None:
        for key, raw in ((b"type", kind), (b"model", model), (b"modelVersion", version)):
            text = bytes(raw)
            if len(text) > 2 and text[:1] == b'"':
                self._picked(key, text[1:-1])

    def _follow(self, piece: bytes) -> None:
        """A long line begins; its end comes with a later piece, or right after this one."""
        self._look_back()
        if piece.startswith(b"data:"):
            self._picker = Picker(_USAGES, _STRINGS, _INSIDE, self._picked)
            self._picker.feed(piece[5:])
        else:
            self._picker = Picker((), (), (), self._picked)
        self._look_for_text(piece)

    def _picked(self, key: bytes, raw: bytes) -> None:
        if key == b"type":
            self._finished = self._finished or raw in _ENDS
        elif key in _USAGES:
            self._count(raw)
        elif self.model is None and raw:
            self.model = _text(raw)

    def _count(self, raw: bytes) -> None:
        if raw[:1] != b"{":
            return
        try:
            counts = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        self._add(counts)

    def _add(self, counts: dict[str, Any]) -> None:
        # Anthropic's message_start has the input, message_delta the output so far: what is said later counts.
        merged = {
            **(self._counts or {}),
            **{key: value for key, value in counts.items() if value is not None},
        }
        self._counted += 1
        self._counts = merged if len(merged) <= _MOST_FIELDS else counts

    def _look_for_refusal(self, data: bytes) -> None:
        word, reason = _REFUSED[self._kind]
        end = data[-_REASON_WITHIN:]
        if word in end and reason.search(end):
            self.refused = True

    def _look_for_text(self, data: bytes) -> None:
        if self.output_seen:
            return
        data = self._text_tail + data
        if any(key in data for key in _TEXT_KEYS) and _TEXT.search(data):
            self.output_seen = True
        self._text_tail = data[-_TEXT_TAIL:]


def _text(raw: bytes) -> str:
    try:
        return msgspec.json.decode(b'"' + raw + b'"', type=str)[:200]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace")[:200]
