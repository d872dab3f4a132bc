"""Which header fields pass, in both directions. The rest is replaced, or ends here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multidict import CIMultiDict

from hawk.config.providers import Kind

_HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_CREDENTIALS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"})
_REPLACED = frozenset(
    {"host", "content-length", "expect", "accept-encoding", "traceparent", "forwarded", "via"}
)
_DROPPED = _HOP_BY_HOP | _CREDENTIALS | _REPLACED
_OURS = ("x-hawk-", "x-forwarded-")
_CODINGS = frozenset({"gzip", "x-gzip", "deflate", "identity"})

CREDENTIALS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
"""Where a client may carry its token, in the order in which they are looked at."""


def credential(headers: Mapping[str, str]) -> str | None:
    """The token that a request carries in its header."""
    for name in CREDENTIALS:
        value = headers.get(name)
        if value:
            if name != "authorization":
                return value.strip()
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer" and token.strip():
                return token.strip()
    return None


def to_provider(
    headers: Iterable[tuple[str, str]],
    *,
    kind: Kind,
    key: str | None,
    extra: Mapping[str, str],
    traceparent: str,
) -> CIMultiDict[str]:
    """The header of the request to the provider.

    Args:
        key: The provider's key; None where it needs none.
        extra: More fields, from the provider's configuration.
    """
    passed: CIMultiDict[str] = CIMultiDict()
    named: frozenset[str] = frozenset()
    encoding = None
    for name, value in headers:
        low = name.lower()
        if low in _DROPPED:
            if low == "connection" and value.lower() not in ("keep-alive", "close"):
                named = frozenset(word.strip().lower() for word in value.split(","))
            elif low == "accept-encoding":
                encoding = value
        elif not low.startswith(_OURS):
            passed.add(name, value)
    for name in named:
        passed.popall(name, None)
    passed["accept-encoding"] = _readable(encoding)
    passed["traceparent"] = traceparent
    if key is not None:
        if kind is Kind.ANTHROPIC:
            passed["x-api-key"] = key
        elif kind is Kind.GEMINI:
            passed["x-goog-api-key"] = key
        else:
            passed["authorization"] = f"Bearer {key}"
    for name, value in extra.items():
        passed[name] = value
    return passed


def _readable(encoding: str | None) -> str:
    """Of the codings that the client takes, those in which usage can be read while the answer passes."""
    if encoding is None:
        return "identity"
    kept = [word for part in encoding.split(",") if (word := part.strip()).split(";")[0].lower() in _CODINGS]
    return ", ".join(kept) or "identity"


def to_client(headers: Iterable[tuple[str, str]]) -> CIMultiDict[str]:
    """The header of the answer to the client, without what belongs to the connection to the provider."""
    passed: CIMultiDict[str] = CIMultiDict()
    named: frozenset[str] = frozenset()
    for name, value in headers:
        low = name.lower()
        if low in _HOP_BY_HOP:
            if low == "connection" and value.lower() not in ("keep-alive", "close"):
                named = frozenset(word.strip().lower() for word in value.split(","))
        elif not low.startswith("x-hawk-"):
            passed.add(name, value)
    for name in named:
        passed.popall(name, None)
    return passed
