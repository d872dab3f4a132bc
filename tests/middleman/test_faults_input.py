"""Requests that are not what they seem: smuggling, injection, other paths, other hosts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hawk.middleman.tokens import Upstream
from tests.middleman.provider import Provider
from tests.middleman.provider_faults import redirect
from tests.middleman.provider_raw import Act, Answer, Part
from tests.middleman.raw_client import Wire, request_bytes, wire
from tests.middleman.running import KEYS, Middleman, settings
from tests.middleman.test_bytes import CHAT

BODY = b'{"model":"m"}'
HIDDEN = b"GET /openai/v1/models/smuggled HTTP/1.1\r\nHost: hawk\r\nx-api-key: %T\r\n\r\n"
HEAD = b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: hawk\r\nx-api-key: %T\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

SMUGGLED: dict[str, bytes] = {
    "CL and TE": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "TE and CL": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two lengths": HEAD + b"Content-Length: 13\r\nContent-Length: 0\r\n\r\n" + BODY + HIDDEN,
    "lengths in one field": HEAD + b"Content-Length: 13, 0\r\n\r\n" + BODY + HIDDEN,
    "length with a plus": HEAD + b"Content-Length: +13\r\n\r\n" + BODY + HIDDEN,
    "length below zero": HEAD + b"Content-Length: -1\r\n\r\n" + BODY + HIDDEN,
    "length in hex": HEAD + b"Content-Length: 0xd\r\n\r\n" + BODY + HIDDEN,
    "length with an underscore": HEAD + b"Content-Length: 1_3\r\n\r\n" + BODY + HIDDEN,
    "length without an end": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n" + BODY + HIDDEN,
    "length and a space": HEAD + b"Content-Length : 13\r\n\r\n" + BODY + HIDDEN,
    "chunked, identity": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "xchunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "TE and a space": HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "TE after a vertical tab": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a folded header": HEAD
    + b"Content-Length: 13\r\nX-A: b\r\n Transfer-Encoding: chunked\r\n\r\n"
    + BODY
    + HIDDEN,
    "a folded TE": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "bare line feeds": HEAD.replace(b"\r\n", b"\n") + b"Content-Length: 13\n\n" + BODY + HIDDEN,
    "a bare line feed in a header": HEAD
    + b"X-A: b\nContent-Length: 0\r\nContent-Length: 13\r\n\r\n"
    + BODY
    + HIDDEN,
    "a bare carriage return": HEAD
    + b"X-A: b\rContent-Length: 0\r\nContent-Length: 13\r\n\r\n"
    + BODY
    + HIDDEN,
    "a NUL in a header": HEAD + b"X-A: b\x00c\r\nContent-Length: 13\r\n\r\n" + BODY + HIDDEN,
    "a chunk size with a plus": CHUNKED + b"+d\r\n" + BODY + b"\r\n0\r\n\r\n" + HIDDEN,
    "a chunk size with 0x": CHUNKED + b"0xd\r\n" + BODY + b"\r\n0\r\n\r\n" + HIDDEN,
    "a chunk size without an end": CHUNKED + b"fffffffffffffffffd\r\n" + BODY + b"\r\n0\r\n\r\n" + HIDDEN,
    "a chunk size below zero": CHUNKED + b"-1\r\n" + BODY + b"\r\n0\r\n\r\n" + HIDDEN,
    "a line feed in a chunk extension": CHUNKED + b"d;a\n\r\n" + BODY + b"\r\n0\r\n\r\n" + HIDDEN,
    "a chunk that is longer than it says": CHUNKED + b"1\r\n" + BODY + b"\r\n0\r\n\r\n" + HIDDEN,
    "a chunk without its line end": CHUNKED + b"d\r\n" + BODY + b"0\r\n\r\n" + HIDDEN,
    "HTTP/1.0 in chunks": CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n" + HIDDEN,
    "another HTTP": HEAD.replace(b"HTTP/1.1", b"HTTP/3.7") + b"Content-Length: 13\r\n\r\n" + BODY + HIDDEN,
    "no HTTP": b"GET /openai/v1/models\r\n\r\n" + HIDDEN,
    "a word too many": HEAD.replace(b" HTTP", b" x HTTP") + b"Content-Length: 13\r\n\r\n" + BODY + HIDDEN,
    "a name with a space": HEAD + b"Content Length: 0\r\nContent-Length: 13\r\n\r\n" + BODY + HIDDEN,
}
"""Requests whose end two readers could see in two places. `%T` is a token."""


def answers(client: Wire) -> list[int]:
    """Statuses of all answers until the other side closes or has no more to say."""
    found = []
    client.socket.settimeout(1.0)
    try:
        while True:
            found.append(client.reply().status)
    except (EOFError, TimeoutError):
        return found


@pytest.mark.parametrize("way", SMUGGLED)
def test_smuggled_requests_are_refused_and_the_connection_ends(
    middleman: Middleman, provider: Provider, way: str
) -> None:
    with wire(middleman.url) as client:
        client.send(SMUGGLED[way].replace(b"%T", middleman.token().encode()))
        statuses = answers(client)
        assert client.closed, f"{way}: the connection stayed open after {statuses}"
    assert [r.target for r in provider.received if "smuggled" in r.target] == []
    assert all(400 <= status < 600 for status in statuses), statuses
    assert not provider.received


def test_the_request_that_is_smuggled_works_when_it_is_honest(
    middleman: Middleman, provider: Provider
) -> None:
    """Otherwise the test above would prove nothing."""
    with wire(middleman.url) as client:
        honest = HEAD + b"Content-Length: 13\r\n\r\n" + BODY + HIDDEN
        client.send(honest.replace(b"%T", middleman.token().encode()))
        assert (client.reply().status, client.reply().status) == (200, 200)
    assert provider.received[-1].target == "/v1/models/smuggled"


@pytest.mark.parametrize(
    "target",
    [
        "/openai/v1/../../admin/status",
        "/openai/../v1/models",
        "/openai/v1/./models",
        "/openai/v1/%2e%2e/models",
        "/openai/v1/.%2E/models",
        "/openai/v1/%252e%252e/models",
        "/openai/v1/..%2fmodels",
        "/openai/v1%2fmodels",
        "/openai/v1%5cmodels",
        "/openai/v1\\..\\models",
        "/openai//v1/models",
        "//openai/v1/models",
        "/openai/v1/models/%00",
        "/openai/v1/models/%0d%0aX-A:%20b",
        "/openai/v1/models/\xe9",
        "/openai/v1/models/%zz",
        "/%6fpenai/v1/models",
        "/openai@127.0.0.1/v1/models",
        "/../openai/v1/models",
        "http://169.254.169.254/openai/v1/models",
        "http://hawk/openai/v1/models",
        "openai/v1/models",
        "*",
        "/openai/v1/models#x",
        "/openai?/../v1/models#",
    ],
)
def test_paths_that_can_be_read_in_two_ways(middleman: Middleman, provider: Provider, target: str) -> None:
    with wire(middleman.url) as client:
        client.send(request_bytes("GET", target, [("x-api-key", middleman.token())]))
        assert 400 <= client.reply("GET").status < 500
    assert not provider.received


@pytest.mark.parametrize(
    "target", ["/openai/v1/models/org/name:free", "/openai/v1/models/a~b%20c?x=..%2f&y=//"]
)
def test_paths_that_only_look_odd_pass(middleman: Middleman, provider: Provider, target: str) -> None:
    assert middleman.ask(target).status == 200
    assert provider.received[-1].target == target.removeprefix("/openai")


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "OPTIONS", "PROPFIND"])
def test_other_methods_are_not_passed_on(middleman: Middleman, provider: Provider, method: str) -> None:
    with wire(middleman.url) as client:
        target = "evil:443" if method == "CONNECT" else "/openai/v1/models"
        client.send(request_bytes(method, target, [("x-api-key", middleman.token())]))
        assert 400 <= client.reply().status < 500
    assert not provider.received


def test_what_comes_from_outside_can_not_add_a_header_or_a_line(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    evil = "a\x85b\xa0\t\x1b[31m".replace("\x1b", "")
    headers = [("X-Hawk-Attempt", evil), ("X-Hawk-Task", evil), ("X-Hawk-Sample", '"},{"x":"')]
    reply = middleman.ask(CHAT, {"model": f"{model}\r\nX-A: b\u001b[2J"}, headers=headers)
    assert reply.status == 200
    assert provider.received[-1].header("x-a") is None
    assert (reply.header("x-hawk-attempt") or "").isascii()
    token = middleman.token("job-odd", models=("openai/x",))
    refused = middleman.ask(CHAT, {"model": "\r\nX-A: b"}, token=token, headers=headers)
    assert (refused.status, refused.header("x-a")) == (403, None)
    assert middleman.status()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: c\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX-A: b\x00c\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 O\rK\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["bare CR", "NUL", "two lengths", "CL and TE", "reason"],
)
def test_a_provider_can_not_smuggle_either(
    middleman: Middleman, provider: Provider, model: str, head: bytes
) -> None:
    parts: list[Part] = [head, 0.05, Act.CLOSE]
    provider.on(Answer(parts, raw=True))
    with wire(middleman.url) as client:
        asked = request_bytes("POST", CHAT, [("x-api-key", middleman.token())], BODY)
        client.send(asked)
        reply = client.reply()
        assert reply.header("set-cookie") is None
        assert not any("\r" in v or "\0" in v for _, v in reply.headers)
        assert len(reply.all("content-length")) + len(reply.all("transfer-encoding")) == 1
        if reply.status == 200:
            assert reply.body in (b"{}", b"")
        if not client.closed and reply.header("connection") != "close":
            client.send(asked)
            assert client.reply().status == 200, "the connection still means what it says"


FORBIDDEN = [
    "http://169.254.169.254/v1",
    "http://[::ffff:169.254.169.254]/v1",
    "http://2852039166/v1",
    "http://metadata.google.internal/v1",
    "http://metadata.google.internal./v1",
    "http://100.100.100.200/v1",
    "http://0.0.0.0:1/v1",
    "ftp://127.0.0.1/v1",
    "file:///etc/passwd",
    "gopher://127.0.0.1/v1",
    "http://user:password@127.0.0.1/v1",
    "http://127.0.0.1\\@169.254.169.254/v1",
    "http://127.0.0.1/v1?x=",
    "http://127.0.0.1/v1#x",
    "http:///v1",
    "not a url",
    "",
]


@pytest.mark.parametrize("url", FORBIDDEN)
def test_addresses_to_which_no_job_may_send_us(middleman: Middleman, provider: Provider, url: str) -> None:
    token = middleman.token("job-ssrf", upstreams={"mine": Upstream(url)})
    reply = middleman.ask("/mine/v1/models", token=token)
    assert (reply.status, reply.error_type) == (403, "hawk_upstream_forbidden"), reply.body


def test_a_job_can_not_send_us_to_ourselves(middleman: Middleman, provider: Provider) -> None:
    for host in ("127.0.0.1", "localhost", "127.0.0.2", "[::ffff:127.0.0.1]", "2130706433"):
        token = middleman.token(
            "job-ssrf", upstreams={"mine": Upstream(f"http://{host}:{middleman.port}/admin")}
        )
        reply = middleman.ask("/mine/v1/status", token=token)
        assert reply.status in (403, 502), (host, reply.body)
        assert (reply.error_type or "").startswith("hawk_")


def test_a_redirect_of_a_jobs_own_provider_is_not_followed(middleman: Middleman, provider: Provider) -> None:
    provider.on(redirect("http://169.254.169.254/"))
    token = middleman.token("job-ssrf", upstreams={"mine": Upstream(f"{provider.url}/v1")})
    assert middleman.ask("/mine/v1/models", token=token).status == 307
    assert len(provider.received) == 1


def test_the_operator_says_where_jobs_may_send_us(
    another: Callable[..., Middleman], provider: Provider
) -> None:
    middleman = another()
    middleman.start()
    for policy, allowed in ((None, False), ("any", True), ("public", False), ("none", False), ("any", True)):
        middleman.configure(settings(provider.url, job_upstreams=policy))
        middleman.admin("/admin/reload", {})
        token = middleman.token(upstreams={"mine": Upstream(f"{provider.url}/v1")})
        reply = middleman.ask("/mine/v1/models", token=token)
        assert reply.status == (200 if allowed else 403), (policy, reply.body)
        assert reply.error_type == (None if allowed else "hawk_upstream_forbidden")
    sent = b"".join(r.head for r in provider.received)
    assert sent
    assert not any(key.encode() in sent for key in KEYS.values())
