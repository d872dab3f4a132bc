"""Bytes in are bytes out, in both directions, however they come."""

from __future__ import annotations

import gzip
import random
import time
from typing import Any

import msgspec
import pytest

from tests.middleman.provider import Provider
from tests.middleman.provider_answers import EVENTS, JSON, chat, messages, polite
from tests.middleman.provider_faults import FAULTS, empty_output
from tests.middleman.provider_raw import Act, Answer, Framing, Part, Received, spread
from tests.middleman.raw_client import ask, request_bytes, wire
from tests.middleman.running import KEYS, Middleman
from tests.system import until

PATHS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("/openai/v1/chat/completions", "/v1/chat/completions", {}),
    ("/openai/v1/chat/completions", "/v1/chat/completions", {"stream": True}),
    ("/openai/v1/responses", "/v1/responses", {"stream": True}),
    ("/openai/v1/embeddings", "/v1/embeddings", {"input": "x"}),
    ("/openai/v1/models?limit=2&after=%C3%A9", "/v1/models?limit=2&after=%C3%A9", None),
    ("/local/v1/chat/completions", "/v1/chat/completions", {"stream": True}),
    ("/anthropic/v1/messages?beta=true", "/v1/messages?beta=true", {"stream": True}),
    ("/anthropic/v1/messages/count_tokens", "/v1/messages/count_tokens", {}),
    ("/gemini/v1beta/models/m:generateContent", "/v1beta/models/m:generateContent", {}),
    (
        "/gemini/v1beta/models/m:streamGenerateContent?alt=sse",
        "/v1beta/models/m:streamGenerateContent?alt=sse",
        {},
    ),
]
CHAT = "/openai/v1/chat/completions"
UTF8 = "café".encode().decode("latin-1")
"""As a header's bytes are read here."""


def body_of(answer: Answer) -> bytes:
    return b"".join(p for p in answer.parts if isinstance(p, bytes))


def streamed(body: bytes, sizes: list[int]) -> Answer:
    return Answer(spread(body, sizes), headers=[*EVENTS], framing=Framing.CHUNKED)


@pytest.mark.parametrize(("ours", "theirs", "asked"), PATHS)
def test_every_path_passes_both_bodies_untouched(
    middleman: Middleman, provider: Provider, model: str, ours: str, theirs: str, asked: dict[str, Any] | None
) -> None:
    # Written as no library would: spaces, an order, an escape, a repeated number form.
    body = None if asked is None else b'{ "b":1.0e0,"model" : "%b",  ' % model.encode()
    if body is not None:
        body += msgspec.json.encode({"unknown": "\u00e9", **(asked or {})})[1:-1] + b' ,"a":"\\u00e9"}\n'
    reply = middleman.ask(ours, body, headers=[("Content-Type", "application/json")])
    sent = provider.received[-1]
    assert (reply.status, reply.complete) == (200, True)
    assert (sent.method, sent.target, sent.body) == ("GET" if body is None else "POST", theirs, body or b"")
    assert sent.answer is not None
    assert reply.body == body_of(sent.answer)
    assert reply.header("x-hawk-request-id")
    assert reply.header("x-hawk-upstream-status") == "200"


def test_a_stream_split_at_any_byte_arrives_as_it_was_sent(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    body = body_of(chat({"model": model, "stream": True}, ("☃", "\U0001f9a9", "é")))
    dice = random.Random(7)
    splits = [[1], [2], [len(body) - 1, 1], *([dice.randint(1, 90) for _ in range(99)] for _ in range(8))]
    for sizes in splits:
        provider.on(streamed(body, sizes))
        assert middleman.ask(CHAT, {"model": model, "stream": True}).body == body


def test_events_are_passed_on_when_they_come_not_at_the_end(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    events = [p for p in chat({"model": model, "stream": True}).parts if isinstance(p, bytes)]
    provider.on(Answer([events[0], Act.SILENCE], headers=[*EVENTS], framing=Framing.CHUNKED))
    with wire(middleman.url) as client:
        headers = [("Authorization", f"Bearer {middleman.token()}")]
        client.send(
            request_bytes("POST", CHAT, headers, msgspec.json.encode({"model": model, "stream": True}))
        )
        assert client.read_until(b"\n\n\r\n").endswith(events[0] + b"\r\n")


def test_compressed_answers_stay_compressed_and_are_still_counted(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    packed = gzip.compress(body_of(messages({"model": model})))
    answer = Answer(spread(packed, [3]), headers=[*JSON, ("Content-Encoding", "gzip")])
    provider.on(answer)
    token = middleman.token("job-gzip")
    headers = [("Accept-Encoding", "br, gzip;q=0.5")]
    reply = middleman.ask("/anthropic/v1/messages", {"model": model}, token=token, headers=headers)
    assert (reply.body, reply.header("content-encoding")) == (packed, "gzip")
    assert provider.received[-1].header("accept-encoding") == "gzip;q=0.5", (
        "what can't be read is not asked for"
    )
    assert middleman.ask("/job", token=token).json()["tokens"] > 0


def test_compressed_requests_stay_compressed(middleman: Middleman, provider: Provider, model: str) -> None:
    packed = gzip.compress(msgspec.json.encode({"model": model}))
    headers = [*JSON, ("Content-Encoding", "gzip")]
    assert middleman.ask(CHAT, packed, headers=headers).status == 200
    assert (provider.received[-1].body, provider.received[-1].header("content-encoding")) == (packed, "gzip")


@pytest.mark.parametrize("expect", [False, True])
def test_chunked_requests_arrive_whole(
    middleman: Middleman, provider: Provider, model: str, expect: bool
) -> None:
    body = msgspec.json.encode({"model": model, "text": "é" * 50})
    headers = [("Authorization", f"Bearer {middleman.token()}"), ("Transfer-Encoding", "chunked")]
    headers += [("Expect", "100-continue")] if expect else []
    with wire(middleman.url) as client:
        client.send(request_bytes("POST", CHAT, headers, length=False))
        if expect:
            assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
        for part in spread(body, [1, 7, 30]):
            assert isinstance(part, bytes)
            client.send(b"%x;ext=1\r\n%b\r\n" % (len(part), part))
        client.send(b"0\r\n\r\n")
        assert client.reply().status == 200
    assert provider.received[-1].body == body


def test_old_http_on_either_side(middleman: Middleman, provider: Provider, model: str) -> None:
    body = body_of(chat({"model": model, "stream": True}))
    headers = [("Authorization", f"Bearer {middleman.token()}")]
    asked = msgspec.json.encode({"model": model, "stream": True})
    with wire(middleman.url) as client:
        client.send(request_bytes("POST", CHAT, headers, asked, version="HTTP/1.0"))
        reply = client.reply()
        assert (reply.body, reply.header("transfer-encoding")) == (body, None)
        assert client.rest() == b"", "the end of the connection is the end of the answer"
    provider.on(Answer([body], headers=[*EVENTS], framing=Framing.CLOSE, version="HTTP/1.0"))
    reply = middleman.ask(CHAT, asked)
    assert (reply.body, reply.complete) == (body, True)


def test_one_connection_carries_one_request_after_the_other(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    headers = [("Authorization", f"Bearer {middleman.token()}")]
    asked = request_bytes("POST", CHAT, headers, msgspec.json.encode({"model": model}))
    with wire(middleman.url) as client:
        client.send(asked * 3)
        assert [client.reply().status for _ in range(3)] == [200, 200, 200]
    assert len({r.connection for r in provider.received}) == 1, "the connection to the provider is kept, too"


def test_fifty_megabytes_pass_both_ways_without_being_held(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    size = 50 << 20
    block = random.Random(1).randbytes(1 << 20)
    middleman.ask(CHAT, {"model": model})
    provider.on(Answer([block] * 50, headers=[("Content-Type", "application/octet-stream")]))
    before = middleman.peak_memory()
    down = middleman.ask("/openai/v1/files/f/content")
    assert (len(down.body), down.body[-len(block) :]) == (size, block)
    grown = middleman.peak_memory() - before
    form = [("Content-Type", "multipart/form-data; boundary=x")]
    assert middleman.ask("/openai/v1/files", block * 50, headers=form).status == 200
    assert provider.received[-1].body == block * 50
    grown_up = middleman.peak_memory() - before
    print(f"\npeak memory grew by {grown >> 20} MiB for an answer, {grown_up >> 20} MiB for an upload")
    assert grown_up < 60 << 20


def test_a_large_json_request_is_held_once(middleman: Middleman, provider: Provider, model: str) -> None:
    body = msgspec.json.encode({"model": model, "image": "A" * (50 << 20)})
    before = middleman.peak_memory()
    assert middleman.ask(CHAT, body, headers=[*JSON]).status == 200
    assert provider.received[-1].body == body
    grown = middleman.peak_memory() - before
    print(f"\npeak memory grew by {grown >> 20} MiB for a JSON request of 50 MB")
    assert grown < 180 << 20


@pytest.mark.parametrize(
    "answer",
    [
        empty_output(),
        Answer([], headers=[*JSON]),
        Answer([], 204),
        Answer([b'{"odd": "reason"}'], 418, [*JSON], reason="I'm a teapot"),
        Answer([], headers=[*EVENTS], framing=Framing.CHUNKED),
    ],
    ids=["no-token", "no-body", "204", "418", "no-event"],
)
def test_answers_with_little_in_them(
    middleman: Middleman, provider: Provider, model: str, answer: Answer
) -> None:
    provider.on(answer)
    reply = middleman.ask(CHAT, {"model": model})
    assert (reply.status, reply.body, reply.complete) == (answer.status, body_of(answer), True)


@pytest.mark.parametrize("fault", ["half_then_closed", "half_then_reset", "short_body"])
def test_an_answer_that_was_cut_is_cut_for_the_client(
    middleman: Middleman, provider: Provider, model: str, fault: str
) -> None:
    answer = FAULTS[fault]()
    provider.on(answer)
    reply = middleman.ask(CHAT, {"model": model, "stream": True})
    assert not reply.complete, "an answer that broke off must not look like one that ended"
    assert reply.status == 200
    if fault != "half_then_reset":  # a reset may take bytes with it
        assert reply.body == body_of(answer)


def test_an_error_in_the_middle_of_a_stream_is_passed_on_with_its_clean_end(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    answer = FAULTS["half_then_error"]()
    provider.on(answer)
    reply = middleman.ask(CHAT, {"model": model, "stream": True})
    assert (reply.complete, reply.body) == (True, body_of(answer))


def test_request_headers(middleman: Middleman, provider: Provider, model: str) -> None:
    token = middleman.token()
    headers = [
        ("X-Api-Key", token),
        ("Authorization", f"Bearer {token}"),
        ("Cookie", "a=b"),
        ("Anthropic-Beta", "one"),
        ("anthropic-beta", "two"),
        ("X-Unknown", UTF8 + "  with  spaces"),
        ("X-Hawk-Task", "t"),
        ("X-Hawk-Anything", "x"),
        ("Connection", "keep-alive, X-Private"),
        ("X-Private", "hop"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "Basic eA=="),
        ("User-Agent", "me/1"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-stainless-retry-count", "2"),
        ("x-irid", "abc"),
    ]
    with wire(middleman.url) as client:
        client.send(
            request_bytes("POST", "/anthropic/v1/messages", headers, b'{"model":"%b"}' % model.encode())
        )
        assert client.reply().status == 200
    got = provider.received[-1]
    pairs = got.headers
    assert [v for k, v in pairs if k == "anthropic-beta"] == ["one", "two"]
    assert got.header("x-unknown") == UTF8 + "  with  spaces"
    assert [v for k, v in pairs if k == "x-api-key"] == [KEYS["ANTHROPIC_API_KEY"]]
    assert (got.header("user-agent"), got.header("x-irid")) == ("me/1", "abc")
    assert got.header("x-stainless-retry-count") == "2"
    names = {k for k, _ in pairs}
    for gone in ("authorization", "cookie", "x-private", "keep-alive", "te", "proxy-authorization"):
        assert gone not in names
    assert not [name for name in names if name.startswith("x-hawk-")]
    trace = (got.header("traceparent") or "").split("-")
    assert trace[1] == "0af7651916cd43dd8448eb211c80319c"
    assert trace[2] != "b7ad6b7169203331"
    assert token.encode() not in got.head
    assert got.header("host") == provider.url.removeprefix("http://")


@pytest.mark.parametrize(
    ("target", "field", "expected"),
    [
        ("/openai/v1/models", "authorization", f"Bearer {KEYS['OPENAI_API_KEY']}"),
        ("/local/v1/models", "authorization", f"Bearer {KEYS['LOCAL_API_KEY']}"),
        ("/anthropic/v1/models", "x-api-key", KEYS["ANTHROPIC_API_KEY"]),
        ("/gemini/v1beta/models", "x-goog-api-key", KEYS["GEMINI_API_KEY"]),
    ],
)
@pytest.mark.parametrize("way", ["Authorization", "X-Api-Key", "x-goog-api-key", "api-key", "?key="])
def test_a_token_comes_in_any_way_and_the_key_goes_out_in_the_providers(
    middleman: Middleman, provider: Provider, target: str, field: str, expected: str, way: str
) -> None:
    token = middleman.token()
    headers = [] if way == "?key=" else [(way, f"Bearer {token}" if way == "Authorization" else token)]
    where = f"{target}?key={token}&a=b" if way == "?key=" else f"{target}?a=b"
    assert ask(middleman.url, where, None, headers=headers).status == 200
    got = provider.received[-1]
    assert got.header(field) == expected
    assert got.target.endswith("?a=b")
    assert token.encode() not in got.head


def test_answer_headers(middleman: Middleman, provider: Provider, model: str) -> None:
    headers = [
        *JSON,
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("X-RateLimit-Remaining-Requests", "7"),
        ("X-Odd", UTF8),
        ("Connection", "X-Private"),
        ("X-Private", "hop"),
        ("Keep-Alive", "timeout=5"),
        ("X-Hawk-Request-Id", "forged"),
        ("Date", "Tue, 15 Nov 1994 08:12:31 GMT"),
        ("Server", "them"),
        ("Link", "<a>; rel=b"),
    ]
    provider.on(Answer([b"{}"], headers=headers))
    reply = middleman.ask(CHAT, {"model": model}, headers=[("X-Hawk-Attempt", "3")])
    assert reply.all("set-cookie") == ["a=1", "b=2"]
    assert reply.header("x-ratelimit-remaining-requests") == "7"
    assert reply.header("x-odd") == UTF8
    assert (reply.header("server"), reply.header("link")) == ("them", "<a>; rel=b")
    assert reply.all("date") == ["Tue, 15 Nov 1994 08:12:31 GMT"]
    assert reply.header("x-private") is None
    assert reply.header("keep-alive") is None
    assert reply.all("x-hawk-request-id") != ["forged"]
    assert len(reply.all("x-hawk-request-id")) == 1
    assert reply.header("x-hawk-attempt") == "3"
    assert reply.all("content-length") == ["2"]


def test_a_head_request(middleman: Middleman, provider: Provider) -> None:
    reply = middleman.ask("/openai/v1/models", method="HEAD")
    assert reply.status == 200
    assert provider.received[-1].method == "HEAD"
    assert int(reply.header("content-length") or 0) > 0


@pytest.mark.parametrize("when", ["before the head", "in the stream"])
def test_a_client_that_hangs_up_ends_the_request_to_the_provider(
    middleman: Middleman, provider: Provider, model: str, when: str
) -> None:
    silent: list[Part] = [b"data: {}\n\n", Act.SILENCE]
    streaming = Answer(silent, headers=[*EVENTS], framing=Framing.CHUNKED)
    provider.on(FAULTS["black_hole"]() if when == "before the head" else streaming)
    client = wire(middleman.url)
    with client as connection:
        headers = [("Authorization", f"Bearer {middleman.token()}")]
        connection.send(request_bytes("POST", CHAT, headers, msgspec.json.encode({"model": model})))
        until("the provider has it", lambda: provider.received)
        if when == "in the stream":
            connection.read_until(b"data: {}")
        assert middleman.lane(model)["in_flight"] == 1
        left = connection.close()
    gone: Received = provider.received[0]
    until("the provider notices", lambda: gone.gone_at, period=0.005)
    assert gone.gone_at is not None
    print(f"\nthe provider's request ended {1000 * (gone.gone_at - left):.1f} ms after the client left")
    until("its place is free", lambda: middleman.lane(model)["in_flight"] == 0)
    assert middleman.ask(CHAT, {"model": model}).status == 200


def test_answers_that_come_while_the_request_is_still_sent(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    """A provider that says no before it has read a large upload."""
    provider.on(Answer([b'{"error":{"message":"too large"}}'], 413, [*JSON], early=True), path="/files")
    reply = middleman.ask(
        "/openai/v1/files", b"x" * (8 << 20), headers=[("Content-Type", "multipart/form-data")]
    )
    assert reply.status in (413, 502), "its answer, or that it hung up: a race that the provider makes"


def test_a_slow_reader_does_not_make_the_middleman_hold_what_it_has_not_read(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.on(Answer([b"x" * (1 << 20)] * 100, headers=[("Content-Type", "application/octet-stream")]))
    before = middleman.memory()
    with wire(middleman.url) as client:
        client.send(request_bytes("GET", "/openai/v1/files/f/content", [("x-api-key", middleman.token())]))
        client.read_until(b"\r\n\r\n")
        until("the provider is held back", lambda: provider.received and not provider.received[0].done_at)
        time.sleep(0.3)  # what would be read ahead has to have had the time for it
        assert middleman.memory() - before < 30 << 20
        assert provider.received[0].done_at is None


def test_usage_of_a_default_stream_is_counted(middleman: Middleman, provider: Provider, model: str) -> None:
    token = middleman.token("job-usage")
    asked = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    reply = middleman.ask(CHAT, asked, token=token)
    assert reply.body == body_of(polite(provider.received[-1]))
    spent = middleman.ask("/job", token=token).json()
    assert (spent["requests"], spent["tokens"]) == (1, 12 + 9)
