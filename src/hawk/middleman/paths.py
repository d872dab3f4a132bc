"""What a request's path means. Whatever could be read in two ways is refused rather than repaired."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from hawk.middleman.refusals import Refusal

_ALLOWED = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})?")
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FORBIDDEN_BYTES = frozenset("./\\%?#") | {chr(n) for n in (*range(0x20), 0x7F)}


class Target(NamedTuple):
    """Where a request wants to go.

    Attributes:
        provider: The first segment.
        rest: What follows it, with its leading slash, as sent.
        query: Without the question mark and without `key=…`, as sent.
        key: The value of `key=…`, which Google's clients send as their credential.
    """

    provider: str
    rest: str
    query: str
    key: str | None


def parse(raw: str) -> Target:
    """Take a request target apart.

    Raises:
        Refusal: It is not an absolute path, or holds what a provider might read as another path: dot segments, empty
            segments, backslashes, and any of these behind a percent sign.
    """
    path, _, query = raw.partition("?")
    if not query.isprintable() or "#" in query or " " in query:
        raise Refusal("hawk_bad_path", "The query has characters that a query can't have.")
    name, rest = _checked(path)
    if not query:
        return Target(name, rest, "", None)
    kept, key = _without_key(query)
    return Target(name, rest, kept, key)


@functools.lru_cache(maxsize=1024)
def _checked(path: str) -> tuple[str, str]:
    """(first segment, the rest) of a path that can be read in one way only."""
    if not _ALLOWED.fullmatch(path):
        raise Refusal("hawk_bad_path", "The path has characters that a path can't have.")
    for match in _ENCODED.finditer(path):
        if match[1] is None or chr(int(match[1], 16)) in _FORBIDDEN_BYTES:
            raise Refusal("hawk_bad_path", f"The path has {match[0]!r} in it, which can be read in two ways.")
    name, slash, rest = path[1:].partition("/")
    segments = rest.split("/")
    if any(part in (".", "..") for part in (name, *segments)) or "" in segments[:-1]:
        raise Refusal("hawk_bad_path", "The path has dot segments or empty segments.")
    if not _SAFE_NAME.fullmatch(name):
        raise Refusal("hawk_unknown_provider", "The path must begin with the name of a provider.")
    return name, slash + rest


def _without_key(query: str) -> tuple[str, str | None]:
    if "key=" not in query:
        return query, None
    parts = query.split("&")
    keys = [part[4:] for part in parts if part.startswith("key=")]
    return "&".join(part for part in parts if not part.startswith("key=")), (keys[0] if keys else None)
