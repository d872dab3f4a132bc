"""The providers' own libraries through the middleman: a worker changes its base URL and its key, nothing else."""

from __future__ import annotations

import base64
from typing import Any

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.middleman.provider import Provider
from tests.middleman.provider_answers import WORDS
from tests.middleman.provider_faults import overloaded, rate_limited, unauthorized
from tests.middleman.running import KEYS, Middleman

TEXT = "".join(WORDS)
PIXEL = base64.b64encode(b"\x89PNG\r\n" + bytes(range(256)) * 400).decode()
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ANTHROPIC_WEATHER: Any = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture
def client(middleman: Middleman, provider: Provider) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{middleman.url}/openai/v1", api_key=middleman.token(), max_retries=0)


@pytest.fixture
def claude(middleman: Middleman, provider: Provider) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=f"{middleman.url}/anthropic", api_key=middleman.token(), max_retries=0
    )


def ask(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


# --- OpenAI ---------------------------------------------------------------------------------------------


def test_openai_chat(client: openai.OpenAI, provider: Provider, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=ask("hi"))
    assert answer.choices[0].message.content == TEXT
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(WORDS)
    assert answer._request_id
    assert answer._request_id.startswith("req_")
    assert provider.received[-1].header("authorization") == f"Bearer {KEYS['OPENAI_API_KEY']}"


def test_openai_chat_streamed(client: openai.OpenAI, provider: Provider, model: str) -> None:
    stream = client.chat.completions.create(
        model=model, messages=ask("hi"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == TEXT
    assert chunks[-1].usage is not None


async def test_openai_async(middleman: Middleman, provider: Provider, model: str) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{middleman.url}/openai/v1", api_key=middleman.token(), max_retries=0
    ) as client:
        answer = await client.chat.completions.create(model=model, messages=ask("hi"))
        assert answer.choices[0].message.content == TEXT
        stream = await client.chat.completions.create(model=model, messages=ask("hi"), stream=True)
        said = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(said) == TEXT
        assert [item.id async for item in client.models.list()] == ["m"]


@pytest.mark.parametrize("streaming", [False, True])
def test_openai_tools_there_and_back(
    client: openai.OpenAI, provider: Provider, model: str, streaming: bool
) -> None:
    messages = ask("weather in Oslo?")
    if streaming:
        with client.chat.completions.stream(model=model, messages=messages, tools=[WEATHER]) as stream:
            message: Any = stream.get_final_completion().choices[0].message
    else:
        message = (
            client.chat.completions.create(model=model, messages=messages, tools=[WEATHER]).choices[0].message
        )
    [call] = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Oslo"}')
    said: Any = {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function",
                 "function": {"name": call.function.name, "arguments": call.function.arguments}}]}  # fmt: skip
    messages += [said, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    last = client.chat.completions.create(model=model, messages=messages, tools=[WEATHER])
    assert last.choices[0].message.content == TEXT


def test_openai_images_and_odd_text(client: openai.OpenAI, provider: Provider, model: str) -> None:
    url = f"data:image/png;base64,{PIXEL}"
    messages: Any = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
        {"role": "user", "content": '\u2028 ☃ \U0001f9a9 \x00 \\ " </script>'},
    ]
    client.chat.completions.create(model=model, messages=messages)
    assert provider.received[-1].json()["messages"] == messages


@pytest.mark.parametrize("streaming", [False, True])
def test_openai_responses(client: openai.OpenAI, provider: Provider, model: str, streaming: bool) -> None:
    if streaming:
        with client.responses.stream(model=model, input="hi") as stream:
            kinds = [event.type for event in stream]
            answer: Any = stream.get_final_response()
        assert kinds.count("response.output_text.delta") == len(WORDS)
    else:
        answer = client.responses.create(model=model, input="hi")
    assert (answer.output_text, answer.usage.input_tokens) == (TEXT, 12)


def test_openai_embeddings(client: openai.OpenAI, provider: Provider, model: str) -> None:
    assert client.embeddings.create(model=model, input="x").data[0].embedding == [0.5, -0.25]


def test_openai_uploads_a_file(client: openai.OpenAI, provider: Provider) -> None:
    content = bytes(range(256)) * 5000
    assert client.files.create(file=("a.jsonl", content), purpose="batch").id == "file-1"
    assert content in provider.received[-1].body
    assert (provider.received[-1].header("content-type") or "").startswith("multipart/form-data; boundary=")


def test_openai_errors_keep_their_class(client: openai.OpenAI, provider: Provider, model: str) -> None:
    provider.on(rate_limited("7"), unauthorized())
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model=model, messages=ask("hi"))
    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.code == "rate_limit_exceeded"
    with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
        client.chat.completions.create(model=f"{model}-2", messages=ask("hi"))


def test_openai_retries_by_itself_and_the_provider_sees_it(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.on(rate_limited("0.05"))
    client = openai.OpenAI(base_url=f"{middleman.url}/openai/v1", api_key=middleman.token(), max_retries=2)
    assert client.chat.completions.create(model=model, messages=ask("hi")).choices[0].message.content == TEXT
    assert [r.header("x-stainless-retry-count") for r in provider.received] == ["0", "1"]


def test_our_own_errors_are_readable_with_the_sdks(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    token = middleman.token(models=("openai/other", "anthropic/other"))
    client = openai.OpenAI(base_url=f"{middleman.url}/openai/v1", api_key=token, max_retries=0)
    with pytest.raises(openai.PermissionDeniedError) as told:
        client.chat.completions.create(model=model, messages=ask("hi"))
    assert told.value.type == "hawk_model_not_permitted"
    assert model in told.value.message
    claude = anthropic.Anthropic(base_url=f"{middleman.url}/anthropic", api_key=token, max_retries=0)
    with pytest.raises(anthropic.PermissionDeniedError) as refused:
        claude.messages.create(model=model, max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["error"]["type"] == "hawk_model_not_permitted"
    assert not provider.received


# --- Anthropic ------------------------------------------------------------------------------------------


def test_anthropic_messages(claude: anthropic.Anthropic, provider: Provider, model: str) -> None:
    answer = claude.messages.create(model=model, max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert answer.content[0].type == "text"
    assert answer.content[0].text == TEXT
    assert answer.usage.cache_read_input_tokens == 4
    assert provider.received[-1].header("x-api-key") == KEYS["ANTHROPIC_API_KEY"]
    assert provider.received[-1].header("anthropic-version")


def test_anthropic_streamed(claude: anthropic.Anthropic, provider: Provider, model: str) -> None:
    with claude.messages.stream(
        model=model, max_tokens=9, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        assert "".join(stream.text_stream) == TEXT
        assert stream.get_final_message().usage.output_tokens == len(WORDS)


@pytest.mark.parametrize("streaming", [False, True])
async def test_anthropic_async_with_tools_and_images(
    middleman: Middleman, provider: Provider, model: str, streaming: bool
) -> None:
    messages: Any = [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                {"type": "text", "text": "weather?"},
            ],
        }
    ]
    asked: dict[str, Any] = {"model": model, "max_tokens": 9, "tools": [ANTHROPIC_WEATHER]}
    async with anthropic.AsyncAnthropic(
        base_url=f"{middleman.url}/anthropic", api_key=middleman.token(), max_retries=0
    ) as claude:
        if streaming:
            async with claude.messages.stream(messages=messages, **asked) as stream:
                answer: Any = await stream.get_final_message()
        else:
            answer = await claude.messages.create(messages=messages, **asked)
        [use] = answer.content
        assert (answer.stop_reason, use.name, use.input) == ("tool_use", "weather", {"city": "Oslo"})
        assert provider.received[-1].json()["messages"] == messages
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
        said = {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": use.id, "name": "weather", "input": {}}],
        }
        messages += [said, {"role": "user", "content": [result]}]
        last: Any = await claude.messages.create(messages=messages, **asked)
        assert last.content[0].text == TEXT
        counted = await claude.messages.count_tokens(model=model, messages=messages)
        assert counted.input_tokens == 12


def test_anthropic_uploads_a_file_and_lists_models(claude: anthropic.Anthropic, provider: Provider) -> None:
    content = bytes(range(256)) * 300
    claude.post("/v1/files", cast_to=object, files=[("file", ("a.bin", content))], body={},
                options={"headers": {"content-type": "multipart/form-data"}})  # fmt: skip
    assert content in provider.received[-1].body
    assert [item.id for item in claude.models.list()] == ["m"]


def test_anthropic_errors_keep_their_class(
    claude: anthropic.Anthropic, provider: Provider, model: str
) -> None:
    provider.on(overloaded())
    with pytest.raises(anthropic.InternalServerError) as told:
        claude.messages.create(model=model, max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert told.value.status_code == 529


# --- Google ---------------------------------------------------------------------------------------------


def test_google_genai(middleman: Middleman, provider: Provider, model: str) -> None:
    genai = pytest.importorskip("google.genai", reason="NOT TESTED with google-genai: it is not installed")
    client = genai.Client(api_key=middleman.token(), http_options={"base_url": f"{middleman.url}/gemini"})
    assert client.models.generate_content(model=model, contents="hi").text == TEXT
    said = [chunk.text for chunk in client.models.generate_content_stream(model=model, contents="hi")]
    assert "".join(said) == TEXT
    assert provider.received[-1].header("x-goog-api-key") == KEYS["GEMINI_API_KEY"]
