"""When two requests are the same request: what differs between two runs of the same eval is left out.

Left out are identifiers that SDKs, agents and providers make up, credentials, and how the bytes happen to be
written. A canonical form is a fixed point: canonical forms of it are equal to it.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

LONGEST = 2000
"""Characters of a string that are kept as they are; of a longer one (an image, a file) its start and its digest."""

_DEEPEST = 100
"""Levels below which a request is not looked into."""

_LEFT_OUT = frozenset({"prompt_cache_key", "safety_identifier", "user"})
"""Fields of a request that say who asks or how, not what."""

_IDENTIFIERS = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "item_id", "previous_response_id"})
"""Fields that name something said before, by a name made up at that time."""

_OPAQUE = frozenset({"input_schema", "parameters", "arguments", "args", "schema", "json_schema"})
"""Fields below which an `id` is the author's."""

_CREDENTIALS = frozenset({"key", "access_token", "api-key", "api_key"})
_BOUNDARY = re.compile(rb"\A(--[^\r\n]{1,70})\r\n")


def canonical_path(path: str) -> str:
    """Path and query without credentials, the query in order.

    Args:
        path: Path and query as the client sent them.
    """
    bare, _, query = path.partition("?")
    pairs = sorted(
        (k, v) for k, v in parse_qsl(query, keep_blank_values=True) if k.lower() not in _CREDENTIALS
    )
    return f"{bare}?{urlencode(pairs)}" if pairs else bare


def canonical(body: bytes) -> Any:
    """The canonical form of a request's body: plain JSON values.

    JSON is understood; of a form (its boundary is different each time) or anything else it is the digest.
    """
    if not body:
        return None
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        found = _BOUNDARY.match(body)
        data = body.replace(found[1], b"--") if found else body
        return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return again(value)


def again(value: Any) -> Any:
    """The canonical form of decoded JSON; of a canonical form, an equal one."""
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in _LEFT_OUT}
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            metadata = {k: v for k, v in metadata.items() if k != "user_id"}
            value = (
                {**value, "metadata": metadata}
                if metadata
                else {k: v for k, v in value.items() if k != "metadata"}
            )
    return _walk(value, {}, 0)


def digest(provider: str, path: str, request: Any) -> str:
    """What two equal requests have in common, short."""
    whole = msgspec.json.encode([provider, path, request], order="sorted")
    return hashlib.sha256(whole).hexdigest()[:32]


def pretty(request: Any) -> list[str]:
    """Lines for a person, and for comparing."""
    return msgspec.json.format(msgspec.json.encode(request, order="sorted"), indent=2).decode().split("\n")


def _walk(value: Any, names: dict[str, str], depth: int) -> Any:
    if isinstance(value, str):
        return _shortened(value)
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [_walk(item, names, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    walked = {}
    for key in sorted(value):
        item = value[key]
        if key in _IDENTIFIERS and isinstance(item, str):
            walked[key] = names.setdefault(item, f"#{len(names) + 1}")
        elif key in _OPAQUE or (key == "input" and value.get("type") == "tool_use"):
            walked[key] = _strings(item, depth + 1)
        else:
            walked[key] = _walk(item, names, depth + 1)
    return walked


def _strings(value: Any, depth: int) -> Any:
    """The same value with long strings shortened."""
    if isinstance(value, str):
        return _shortened(value)
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [_strings(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {key: _strings(item, depth + 1) for key, item in value.items()}
    return value


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    told = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[:200]}… [{len(text)} characters, sha256 {told}]"
