"""A real model behind the middleman: what passes through is what comes directly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import msgspec
import openai
import pytest

from hawk.middleman.cassette import lines
from hawk.middleman.tokens import Cassette
from tests.llama.conftest import llama_url
from tests.middleman.raw_client import ask
from tests.middleman.running import KEYS, Middleman
from tests.system import until

__all__ = ["llama_url"]

pytestmark = pytest.mark.llama

QUESTION = "Name a colour."
GREEDY: dict[str, Any] = {"model": "smollm2", "temperature": 0, "seed": 1, "cache_prompt": False}
CHAT: dict[str, Any] = {**GREEDY, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 12}
REQUESTS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat, streamed": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "responses": ("/v1/responses", {**GREEDY, "input": QUESTION, "max_output_tokens": 12}),
    "responses, streamed": (
        "/v1/responses",
        {**GREEDY, "input": QUESTION, "max_output_tokens": 12, "stream": True},
    ),
    "messages": ("/v1/messages", CHAT),
    "messages, streamed": ("/v1/messages", {**CHAT, "stream": True}),
    "models": ("/v1/models", None),
    "too long": ("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": "word " * 9000}]}),
    "not there": ("/v1/nothing", {"model": "smollm2"}),
}


@pytest.fixture(scope="module")
def through(llama_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Middleman]:
    """A middleman before llama.cpp, as a provider of one's own and as Anthropic."""
    providers = {"local": {"base_url": f"{llama_url}/v1"}, "anthropic": {"base_url": llama_url}}
    found = Middleman(tmp_path_factory.mktemp("llama") / "home", {"providers": providers})
    found.start()
    yield found
    assert found.stop() == 0
    assert found.leaks() == []


def settled(body: bytes) -> bytes:
    """Without identifiers, times and speeds."""
    names = rb'"(id|item_id|created|created_at|completed_at|\w+_ms|\w+_per_second|cache_n|cached_tokens|cache_read_input_tokens)"'
    body = re.sub(names + rb':("[^"]*"|[0-9.e+-]+)', rb'"\1":0', body)
    return re.sub(rb"(chatcmpl|resp|msg|rs|fc)[-_][A-Za-z0-9]+", b"ID", body)


def test_everything_is_the_same_through_it_and_directly(through: Middleman, llama_url: str) -> None:
    for name, (path, asked) in REQUESTS.items():
        provider = "anthropic" if "messages" in path else "local"
        direct = ask(llama_url, path, None, asked)
        passed = through.ask(f"/{provider}{path}", asked)
        assert (passed.status, settled(passed.body)) == (direct.status, settled(direct.body)), name
        assert passed.complete
        assert passed.header("content-type") == direct.header("content-type"), name
        if asked and asked.get("stream"):
            assert passed.body.count(b"data: ") > 3
    spent = through.ask("/job").json()
    assert spent["tokens"] > 0


def test_the_sdks_talk_to_it_through_the_middleman(through: Middleman) -> None:
    token = through.token()
    client = openai.OpenAI(base_url=f"{through.url}/local/v1", api_key=token, max_retries=0)
    stream = client.chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": QUESTION}], max_tokens=12, stream=True
    )
    pieces = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 1
    answer = client.responses.create(model="smollm2", input=QUESTION, max_output_tokens=12)
    assert answer.output_text
    claude = anthropic.Anthropic(base_url=f"{through.url}/anthropic", api_key=token, max_retries=0)
    with claude.messages.stream(
        model="smollm2", max_tokens=12, messages=[{"role": "user", "content": QUESTION}]
    ) as messages:
        assert "".join(messages.text_stream)


def test_a_recorded_conversation_is_replayed_without_the_model(
    through: Middleman, another: Callable[..., Middleman]
) -> None:
    cassette = through.home / "cassette.jsonl"
    recording = through.token("job-record", cassette=Cassette("record", str(cassette)))
    names = [name for name in REQUESTS if name not in ("models", "not there")]

    def everything(middleman: Middleman, token: str) -> list[tuple[int, bytes, list[int]]]:
        found = []
        for name in names:
            path, asked = REQUESTS[name]
            provider = "anthropic" if "messages" in path else "local"
            reply = middleman.ask(f"/{provider}{path}", asked, token=token, headers=[("X-Hawk-Sample", "1")])
            found.append((reply.status, reply.body, reply.chunks))
        return found

    live = everything(through, recording)
    assert [status for status, _, _ in live] == [200] * (len(names) - 1) + [400], live
    until("it is written", lambda: len(list(lines(cassette))) == len(names))
    offline = another({"providers": {"local": {"base_url": "http://127.0.0.1:1/v1"}}})
    offline.start()
    replaying = offline.token("job-replay", cassette=Cassette("replay", str(cassette)))
    replayed = everything(offline, replaying)
    assert [(status, body) for status, body, _ in replayed] == [(status, body) for status, body, _ in live]
    text = cassette.read_text()
    assert len(text.splitlines()) == len(names)
    assert not any(secret in text for secret in (*KEYS.values(), recording))
    assert msgspec.json.decode(text.splitlines()[0])["sample"] == "1"
