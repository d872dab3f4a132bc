"""What providers do wrong, by name: each a fresh answer for the scriptable provider."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.middleman.provider_answers import EVENTS, JSON, chat, error
from tests.middleman.provider_raw import Act, Answer, Framing, Part, spread

_HALF = chat({"model": "m", "stream": True}).parts[:5]
_WHOLE = b"".join(p for p in chat({"model": "m"}).parts if isinstance(p, bytes))


def rate_limited(retry_after: str | None = "1") -> Answer:
    """429, with or without Retry-After."""
    headers = [] if retry_after is None else [("Retry-After", retry_after)]
    return error(429, "rate_limit_error", "Rate limit reached for m", headers, "rate_limit_exceeded")


def overloaded() -> Answer:
    """529, Anthropic's."""
    return error(529, "overloaded_error", "Overloaded")


def unavailable() -> Answer:
    """503 of a load balancer: not JSON."""
    return Answer([b"<html>503 Service Temporarily Unavailable</html>"], 503, [("Content-Type", "text/html")])


def server_error() -> Answer:
    """500."""
    return error(500, "server_error", "The server had an error while processing your request")


def unauthorized() -> Answer:
    """401."""
    return error(401, "authentication_error", "Incorrect API key provided", None, "invalid_api_key")


def not_found() -> Answer:
    """404 of a model that isn't there."""
    return error(404, "not_found_error", "The model `m` does not exist", None, "model_not_found")


def context_overflow() -> Answer:
    """400, the prompt is too long."""
    return error(
        400, "invalid_request_error", "maximum context length is 8192", None, "context_length_exceeded"
    )


def malformed() -> Answer:
    """200 and JSON that breaks off, in an HTTP answer that is whole."""
    return Answer([_WHOLE[:40]], headers=[*JSON])


def empty() -> Answer:
    """200 and no body at all."""
    return Answer([], headers=[*JSON])


def empty_output() -> Answer:
    """200, right in form, without a word in it."""
    return chat({"model": "m"}, words=())


def black_hole() -> Answer:
    """Accepts the request and never says anything."""
    return Answer(delay=math.inf)


def half_then_silence() -> Answer:
    """Half a stream, and then nothing, on an open connection."""
    return Answer([*_HALF, Act.SILENCE], headers=[*EVENTS], framing=Framing.CHUNKED)


def half_then_closed() -> Answer:
    """Half a stream, and then the connection is closed without the last chunk."""
    return Answer([*_HALF, Act.CLOSE], headers=[*EVENTS], framing=Framing.CHUNKED)


def half_then_reset() -> Answer:
    """Half a stream, and then a reset."""
    return Answer([*_HALF, 0.05, Act.RESET], headers=[*EVENTS], framing=Framing.CHUNKED)


def half_then_error() -> Answer:
    """Half a stream, and then an event that holds an error, with a clean end."""
    said = (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )
    return Answer([*_HALF, said], headers=[*EVENTS], framing=Framing.CHUNKED)


def short_body() -> Answer:
    """Fewer bytes than Content-Length says, then closed."""
    return Answer([_WHOLE[:40], Act.CLOSE], headers=[*JSON], declared=len(_WHOLE))


def trickle(pause: float = 1.0) -> Answer:
    """A right answer, one byte after the other."""
    return Answer(spread(_WHOLE, [1], pause), headers=[*JSON], declared=len(_WHOLE))


def closed_at_once() -> Answer:
    """The connection is closed without an answer."""
    return Answer([Act.CLOSE], raw=True)


def reset_at_once() -> Answer:
    """The connection is reset without an answer."""
    return Answer([Act.RESET], raw=True)


def not_http() -> Answer:
    """Something that is no HTTP."""
    return Answer([b"SSH-2.0-OpenSSH_9.9\r\n"], raw=True)


def huge_headers(size: int = 1 << 20) -> Answer:
    """A header of a MiB."""
    parts: list[Part] = [b"HTTP/1.1 200 OK\r\nX-Huge: " + b"x" * size + b"\r\nContent-Length: 0\r\n\r\n"]
    return Answer(parts, raw=True)


def redirect(to: str = "http://169.254.169.254/latest/meta-data/") -> Answer:
    """A redirect to elsewhere."""
    return Answer([b"moved"], 307, [("Content-Type", "text/plain"), ("Location", to)])


FAULTS: dict[str, Callable[[], Answer]] = {
    make.__name__: make
    for make in (
        rate_limited, overloaded, unavailable, server_error, unauthorized, not_found, context_overflow, malformed,
        empty, empty_output, black_hole, half_then_silence, half_then_closed, half_then_reset, half_then_error,
        short_body, trickle, closed_at_once, reset_at_once, not_http, huge_headers, redirect,
    )
}  # fmt: skip
