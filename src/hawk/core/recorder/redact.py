"""Secrets taken out of text: known values, and what looks like a key, a token or a password.

Works on bytes as they stream by, so that a line may be of any length: what is looked at is a window, and a window is
never cut within something that may be a secret. Each pattern has a fixed word in it, which is looked for first: that
is many times faster than to try every pattern at every place. Rather too much is taken out than too little.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

MARK = "‹redacted›"
WINDOW = 1 << 20
"""Bytes that are looked at together."""
OVERLAP = 1 << 16
"""Bytes at the end of a window that are looked at again with the next: more than any secret has."""
CONTEXT = 24
"""Bytes before a match that it may depend on."""
LONGEST = 1 << 22
"""Bytes after which a value that does not end is taken out although its end is not seen yet."""
SHORTEST = 6
"""Characters that a known value must have: to replace every `1` or `true` would leave nothing to read."""

_MARK = MARK.encode()
_ENDS = re.compile(rb"[\s\"'&,;]")
_TELLING = re.compile(
    r"key|token|secret|passw|passphrase|credential|auth|cookie|dsn|database_url|connection_string",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"/.*|[a-z]{1,7}|[0-9.]+|https?://(localhost|127\.0\.0\.1)[^@]*", re.DOTALL)
"""Values that say nothing: paths, a short word, numbers, places on this machine."""


class _Pattern(NamedTuple):
    """`word`: in lower case, where to look. `regex`: what must begin there; its group `v` is taken out."""

    kind: str
    word: bytes
    regex: re.Pattern[bytes]


class _Found(NamedTuple):
    """A match, and in it what is taken out."""

    start: int
    end: int
    cut_start: int
    cut_end: int
    kind: str


_BEGINS = rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4})|(?<=[0-9;\[]m))"
"""No letter before it, but for the one of an escape: of a line end in JSON, of a colour."""

_TOKENS = [
    (b"sk-", _BEGINS + rb"sk-[A-Za-z0-9_-]{16,}"),
    (b"k_live_", rb"k_live_[A-Za-z0-9]{16,}"),
    (b"aiza", rb"AIza[0-9A-Za-z_-]{30,}"),
    (b"ya29.", rb"ya29\.[0-9A-Za-z_-]{20,}"),
    (b"gh", rb"gh[pousr]_[A-Za-z0-9]{30,}"),
    (b"github_pat_", rb"github_pat_[A-Za-z0-9_]{30,}"),
    (b"glpat-", rb"glpat-[A-Za-z0-9_-]{16,}"),
    (b"akia", rb"AKIA[0-9A-Z]{16}"),
    (b"asia", rb"ASIA[0-9A-Z]{16}"),
    (b"hf_", _BEGINS + rb"hf_[A-Za-z0-9]{20,}"),
    (b"gsk_", rb"gsk_[A-Za-z0-9]{20,}"),
    (b"xai-", _BEGINS + rb"xai-[A-Za-z0-9]{20,}"),
    (b"r8_", _BEGINS + rb"r8_[A-Za-z0-9]{30,}"),
    (b"pplx-", rb"pplx-[A-Za-z0-9]{20,}"),
    (b"nvapi-", rb"nvapi-[A-Za-z0-9_-]{20,}"),
    (b"tvly-", rb"tvly-[A-Za-z0-9_-]{16,}"),
    (b"npm_", _BEGINS + rb"npm_[A-Za-z0-9]{30,}"),
    (b"pypi-", rb"pypi-AgE[A-Za-z0-9_-]{30,}"),
    (b"dckr_pat_", rb"dckr_pat_[A-Za-z0-9_-]{16,}"),
    (b"xox", rb"xox[abeprs]-[A-Za-z0-9-]{10,}"),
    (b"eyj", rb"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)*"),
]
"""Formats of keys that providers are known by, and JSON Web Tokens."""

_WORD = rb"(?![ \t]*(?:null|true|false|None|True|False|NaN|-?Infinity)\b)"
_VALUE = (
    rb"(?P<v>\"(?![\s,}\]:])(?:\\.|[^\"\\\n])+|'(?:\\.|[^'\"\\\n])+"  # quoted: up to that quote, or the line's end
    rb"|(?P<q>(?:\\\\)*\\[\"'])(?:(?!(?P=q))[^\"\n])+"  # the same within a JSON text
    rb"|" + _WORD + rb"[^\s\"'\\,;&<>{}()\[\]]{3,})"
)
_NUMBER = rb"(?![ \t]*-?[\d.]+(?:[eE][-+]?\d+)?[\s,}\]])"
_EQUALS = rb"[\"'\\\]]*[ \t]*(?:=>?|:" + _NUMBER + rb")[ \t]*"
_KEY = (
    rb"(?:(?<=api)|(?<=api[_-])|(?<=access)|(?<=access[_-])|(?<=secret)|(?<=secret[_-])|(?<=private)"
    rb"|(?<=private[_-])|(?<=account)|(?<=account[_-])|(?<=master[_-])|(?<=signing[_-])|(?<=encryption[_-])"
    rb"|(?-i:(?<=_)(?=KEY)))key"
)
_NAMES = [
    (b"key", _KEY),
    (b"token", b"token"),
    (b"secret", b"secret"),
    (b"passw", rb"passw(?:or)?d"),
    (b"passphrase", b"passphrase"),
    (b"credential", b"credentials?"),
]
"""Ends of names whose value is a secret; others may come before, as in OPENAI_API_KEY and aws_session_token."""

_BODY = rb"(?:(?!-----)[^\"']){0,65536}"
_PRIVATE = (
    rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----" + _BODY + rb"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)
_QUERY = (
    rb"(?:[?&]|\\u0026)(?:amp;)?[\w.~-]{0,60}"
    rb"(?:key|token|sig|signature|secret|passw(?:or)?d|pwd|auth|credential|code)=(?P<v>[^&\s\"'<>\\#]+)"
)
_ADDRESS = rb"://(?:[^/\s:@\"'\\<>]*:|(?=[^/\s:@]{16}))(?P<v>[^/\s\"'\\<>]+)@"
"""The password before a host, or a long name that is all there is."""
_HEADER = (
    rb"(?:[\"'\\]*[ \t]*[=:]" + _NUMBER + rb"[ \t]*|[\"'\\]+,[ \t]*(?-i:b?)(?=[\"'\\]))(?:\\*[\"'])?"
    rb"(?P<v>" + _WORD + rb"[^\n\"'\\,;{}\[\]]{3,}(?:;[^\n\"'\\]*)?)"
)
"""What follows the name of a header, in a header's own form, in JSON, and in Python's pairs."""


def _patterns() -> Iterator[_Pattern]:
    for word, regex in _TOKENS:
        yield _Pattern("keys", word, re.compile(b"(?P<v>" + regex + b")"))
    for word, name in _NAMES:
        yield _Pattern("named values", word, re.compile(name + _EQUALS + _VALUE, re.IGNORECASE))
    yield _Pattern("private keys", b"-----begin ", re.compile(b"(?P<v>" + _PRIVATE + b")"))
    for word in (b"?", b"&", b"\\u0026"):
        yield _Pattern("query strings", word, re.compile(_QUERY, re.IGNORECASE))
    yield _Pattern("passwords in addresses", b"://", re.compile(_ADDRESS))
    bearer = rb"(?:bearer|basic)[ \t]+(?P<v>[A-Za-z0-9._~+/=-]{8,})"
    for word in (b"bearer", b"basic"):
        yield _Pattern("bearer tokens", word, re.compile(bearer, re.IGNORECASE))
    for word in (b"authorization", b"cookie"):
        yield _Pattern("headers", word, re.compile(word + _HEADER, re.IGNORECASE))


_PATTERNS = list(_patterns())


def secret_values(environ: Mapping[str, str]) -> set[str]:
    """Values of the variables whose name says that they are secret, but for those that say nothing (a path, a word)."""
    return {
        value
        for name, value in environ.items()
        if _TELLING.search(name) and len(value) >= SHORTEST and not _PLAIN.fullmatch(value)
    }


class Redactor:
    """Takes secrets out of text, and counts them.

    Args:
        values: Secrets that are known. Shorter ones than `SHORTEST` are passed over.

    Attributes:
        counts: What was taken out, by kind.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        forms = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
        self._values = sorted(forms, key=lambda form: (-len(form), form))

    def text(self, text: str) -> str:
        """A text without its secrets. Lone surrogates, which can't be encoded, become `?`."""
        return self.data(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def data(self, data: bytes) -> bytes:
        """The same of encoded text."""
        return b"".join(self.stream((data,)))

    def stream(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """The same of a text that comes part by part, cut anywhere."""
        held = bytearray()
        endless = False  # the end of what was taken out last has not come yet
        for part in parts:
            for start in range(0, len(part), WINDOW):
                held += part[start : start + WINDOW]
                if endless:
                    endless = _drop_rest(held)
                if len(held) < WINDOW:
                    continue
                window = bytes(held)
                found = self._find(window)
                cut = _safe_cut(window, found)
                if not cut and len(held) >= LONGEST:
                    cut, endless = len(held), True
                if cut:
                    yield self._without(window[:cut], [one for one in found if one.end <= cut])
                    del held[:cut]
        if held:
            rest = bytes(held)
            yield self._without(rest, self._find(rest))

    def _find(self, data: bytes) -> list[_Found]:
        found: list[_Found] = []
        for value in self._values:
            for at in _places(data, value):
                found.append(_Found(at, at + len(value), at, at + len(value), "known values"))
        lower = data.lower()
        for kind, word, regex in _PATTERNS:
            end = 0
            for at in _places(lower, word):
                match = regex.match(data, at) if at >= end else None
                if match is not None:
                    end = match.end()
                    found.append(_Found(max(0, at - CONTEXT), end, *_inner(match), kind))
        found.sort()
        return found

    def _without(self, data: bytes, found: list[_Found]) -> bytes:
        parts: list[bytes] = []
        done = 0
        for one in sorted(found, key=lambda one: (one.cut_start, one.cut_end)):
            start, end = max(done, one.cut_start), one.cut_end
            if end <= done or data[start:end] == _MARK:
                continue
            if one.cut_start >= done:
                parts += (data[done:start], _MARK)
                self.counts[one.kind] += 1
            done = end
        parts.append(data[done:])
        return b"".join(parts)


def _forms(value: str) -> set[bytes]:
    """A value as it may be written: as it is, within JSON, within an address, in base64."""
    data = value.encode("utf-8", "replace")
    in_json = {json.dumps(data.decode(), ensure_ascii=way)[1:-1].encode() for way in (True, False)}
    return {data, *in_json, quote(data, safe="").encode(), base64.b64encode(data).rstrip(b"=")}


def _places(data: bytes, word: bytes) -> Iterator[int]:
    at = data.find(word)
    while at >= 0:
        yield at
        at = data.find(word, at + 1)


def _inner(match: re.Match[bytes]) -> tuple[int, int]:
    """What is taken out of a match: its value, but not the quote before it."""
    start, end = match.span("v")
    quote_ = match.groupdict().get("q") or (match["v"][:1] if match["v"][:1] in (b'"', b"'") else b"")
    return start + len(quote_), end


def _safe_cut(data: bytes, found: list[_Found]) -> int:
    """Where a window can be cut: at the end of a line, else before the part that is looked at again."""
    line = data.rfind(b"\n") + 1
    cut = line if line > len(data) // 2 else len(data) - OVERLAP
    for one in reversed(found):
        if one.start < cut and (one.end > cut or one.end == len(data)):
            cut = one.start
    return cut


def _drop_rest(held: bytearray) -> bool:
    """Drop what belongs to a value that began long ago. Returns whether its end is still to come."""
    end = _ENDS.search(held)
    del held[: end.start() if end else len(held)]
    return end is None
