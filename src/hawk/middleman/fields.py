"""Which header fields pass, in both directions. The rest is replaced, or ends here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hawk.config.providers import Kind
from hawk.config.providers import credential as credential_for

Fields = list[tuple[str, str]]

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

_SPELLINGS = 2000
_to_provider: dict[str, bool] = {}
_to_client: dict[str, bool] = {}


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
) -> Fields:
    """The header of the request to the provider.

    Args:
        key: The provider's key; None where it needs none.
        extra: More fields, from the provider's configuration.
    """
    passed: Fields = []
    named: frozenset[str] = frozenset()
    encoding = None
    for field in headers:
        name = field[0]
        passes = _to_provider.get(name)
        if passes is None:
            low = name.lower()
            passes = _remember(_to_provider, name, low not in _DROPPED and not low.startswith(_OURS))
        if passes:
            passed.append(field)
        elif (low := name.lower()) == "connection":
            named |= _named(field[1])
        elif low == "accept-encoding":
            encoding = field[1]
    replaced = named | {name.lower() for name in extra}
    if replaced:
        passed = [field for field in passed if field[0].lower() not in replaced]
    passed.append(("accept-encoding", _readable(encoding)))
    passed.append(("traceparent", traceparent))
    if key is not None:
        passed.append(credential_for(kind, key))
    passed.extend(extra.items())
    return passed


def to_client(headers: Iterable[tuple[str, str]]) -> Fields:
    """The header of the answer to the client, without what belongs to the connection to the provider."""
    passed: Fields = []
    named: frozenset[str] = frozenset()
    for field in headers:
        name = field[0]
        passes = _to_client.get(name)
        if passes is None:
            low = name.lower()
            passes = _remember(_to_client, name, low not in _HOP_BY_HOP and not low.startswith("x-hawk-"))
        if passes:
            passed.append(field)
        elif name.lower() == "connection":
            named |= _named(field[1])
    return [field for field in passed if field[0].lower() not in named] if named else passed


def _remember(fates: dict[str, bool], name: str, passes: bool) -> bool:
    """Keep what was decided about a name as it is spelt; names come from outside, so not without end."""
    if len(fates) < _SPELLINGS:
        fates[name] = passes
    return passes


def _named(connection: str) -> frozenset[str]:
    """Fields that a Connection field declares to be the connection's own (RFC 9110, 7.6.1)."""
    return frozenset(word.strip().lower() for word in connection.split(",")) - {
        "keep-alive",
        "close",
        "upgrade",
    }


def _readable(encoding: str | None) -> str:
    """Of the codings that the client takes, those in which usage can be read while the answer passes."""
    if encoding is None:
        return "identity"
    kept = [word for part in encoding.split(",") if (word := part.strip()).split(";")[0].lower() in _CODINGS]
    return ", ".join(kept) or "identity"
