"""Server-sent events, read from an answer line by line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from hawk.errors import AuthError, HawkError, ServerUnavailableError, from_envelope
from hawk.transport import Response


class ServerEvent(NamedTuple):
    """One server-sent event; `event` is `ping` for a comment."""

    event: str
    data: bytes


def parse_events(response: Response) -> Iterator[ServerEvent]:
    """The event-stream format: fields until an empty line; a line that begins with a colon is a comment."""
    name, data = "message", list[bytes]()
    while line := response.readline():
        line = line.rstrip(b"\r\n")
        if not line:
            if data:
                yield ServerEvent(name, b"\n".join(data))
            name, data = "message", []
        elif line.startswith(b":"):
            yield ServerEvent("ping", b"")
        else:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                name = value.decode("ascii", "replace")
            elif field == b"data":
                data.append(value)


def stream_error(url: str, data: bytes) -> HawkError:
    """What an `error` event says: an envelope, or (the public server) a few words."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        body = msgspec.json.decode(data)
        if isinstance(body, dict):
            return from_envelope(body, int(body.get("status") or 500))
    text = data.decode("utf-8", "replace").strip('" \n')
    if "token" in text:
        return AuthError(f"The stream ended: {text}.", remedy="hawk login")
    return ServerUnavailableError(f"The server at {url} ended the stream: {text}.", url=url)
