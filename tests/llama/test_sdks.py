"""The providers' own libraries against llama.cpp: what Hawk's runs rely on answers in their formats."""

import anthropic
import openai
import pytest

pytestmark = pytest.mark.llama

QUESTION = "Name a colour."


@pytest.fixture(scope="module")
def client(llama_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{llama_url}/v1", api_key="none", max_retries=0)


def test_chat_completions_answers_with_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": QUESTION}], max_tokens=12
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 0
    assert 0 < answer.usage.completion_tokens <= 12


def test_chat_completions_streams_tokens_one_by_one(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": QUESTION}], max_tokens=12, stream=True
    )
    pieces = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 1


def test_responses_answers_with_usage(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="smollm2", input=QUESTION, max_output_tokens=12)
    assert answer.output_text
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0


def test_messages_answers_with_usage(llama_url: str) -> None:
    client = anthropic.Anthropic(base_url=llama_url, api_key="none", max_retries=0)
    answer = client.messages.create(
        model="smollm2", max_tokens=12, messages=[{"role": "user", "content": QUESTION}]
    )
    assert answer.content[0].type == "text"
    assert answer.content[0].text
    assert answer.usage.output_tokens > 0


def test_prompt_longer_than_the_window_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": "word " * 9000}], max_tokens=12
        )
