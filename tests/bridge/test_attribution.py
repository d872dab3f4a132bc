"""Requests to the middleman say whose they are; all others are left alone."""

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace

import aiohttp
import httpx
import httpx2
import pytest

from hawk.bridge import attribution


class Seen(HTTPServer):
    requests: list[dict[str, str]]


class Handler(BaseHTTPRequestHandler):
    server: Seen

    def do_GET(self) -> None:
        self.server.requests.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[Seen]:
    server = Seen(("127.0.0.1", 0), Handler)
    server.requests = []
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def url(server: Seen, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its address, as that of the middleman."""
    for client in (httpx.AsyncClient, httpx.Client, httpx2.AsyncClient, httpx2.Client):
        monkeypatch.setattr(client, "send", client.send)  # put back what it wraps
    monkeypatch.setattr(aiohttp.ClientSession, "_request", aiohttp.ClientSession._request)
    found = f"http://127.0.0.1:{server.server_port}"
    attribution.attribute(found, "the-token")
    return found


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SimpleNamespace(id="ä/1")
    found = SimpleNamespace(sample_uuid="uuid-1", id="x", task="my task", sample=sample, epoch=3)
    monkeypatch.setattr(attribution, "sample_active", lambda: found)


def test_the_active_attempt_is_named(url: str, server: Seen, active: None) -> None:
    async def ask() -> None:
        async with httpx.AsyncClient() as client:
            await client.get(url, headers={"x-irid": "call-1", "authorization": "Bearer inspectai"})

    asyncio.run(ask())
    sent = server.requests[0]
    assert sent["authorization"] == "Bearer the-token"
    assert (sent["x-hawk-task"], sent["x-hawk-sample"]) == ("my task", "%C3%A4/1")
    assert (sent["x-hawk-sample-uuid"], sent["x-hawk-attempt"]) == ("uuid-1", "3")
    trace, span = attribution.trace_id("uuid-1"), attribution.span_id("call-1")
    assert sent["traceparent"] == f"00-{trace}-{span}-01"


def test_the_library_that_googles_sdk_sends_with_is_marked_too(url: str, server: Seen, active: None) -> None:
    async def ask() -> None:
        async with aiohttp.ClientSession(headers={"x-goog-api-key": "k"}) as session, session.get(url):
            pass

    asyncio.run(ask())
    sent = server.requests[0]
    assert (sent["authorization"], sent["x-hawk-sample-uuid"]) == ("Bearer the-token", "uuid-1")
    assert sent["x-goog-api-key"] == "k"


def test_outside_of_an_attempt_only_the_token_is_sent(url: str, server: Seen) -> None:
    httpx.get(url)
    sent = server.requests[0]
    assert sent["authorization"] == "Bearer the-token"
    assert not any(name.startswith("x-hawk-") for name in sent)


def test_other_servers_get_nothing_of_it(url: str, active: None) -> None:
    other = Seen(("127.0.0.1", 0), Handler)
    other.requests = []
    thread = Thread(target=other.serve_forever, daemon=True)
    thread.start()
    try:
        httpx.get(f"http://127.0.0.1:{other.server_port}")
    finally:
        other.shutdown()
        other.server_close()
    sent = other.requests[0]
    assert "authorization" not in sent
    assert not any(name.startswith("x-hawk-") for name in sent)


def test_the_libraries_of_the_sdks_are_among_those_that_are_marked() -> None:
    import anthropic
    import openai

    for sdk in (openai.OpenAI, anthropic.Anthropic):
        client = sdk(api_key="x")._client
        libraries = {cls.__module__.partition(".")[0] for cls in type(client).__mro__}
        assert libraries & set(attribution._CLIENTS)
