"""Tokens are read off an answer, however it is split, and never off what a model wrote."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hawk.config.providers import Kind
from hawk.core.traffic.scanner import Scanner
from hawk.core.traffic.usage import Usage

LURE = '"usage": {"prompt_tokens": 999999}, {"usage":{"input_tokens":888888}} \\" data: [DONE] \n\ndata: {"usage":{"x":1}}'
CHAT = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 7},
}
CHAT_USAGE = Usage(input=36, output=20, cache_read=64, reasoning=7)
RESPONSES = {
    "input_tokens": 50,
    "input_tokens_details": {"cached_tokens": 10},
    "output_tokens": 8,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 58,
}
RESPONSES_USAGE = Usage(input=40, output=8, cache_read=10, reasoning=3)
GEMINI = {
    "promptTokenCount": 30,
    "cachedContentTokenCount": 10,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 9,
    "totalTokenCount": 44,
}
GEMINI_USAGE = Usage(input=20, output=14, cache_read=10, reasoning=9)
DEEP = {
    "tool": {"usage": {"prompt_tokens": 777777}, "model": "wrong", "message": {"usage": {"input_tokens": 7}}}
}


def events(*bodies: dict[str, Any] | str, named: bool = False) -> bytes:
    lines = []
    for body in bodies:
        if isinstance(body, dict) and named:
            lines.append(f"event: {body['type']}\n")
        lines.append(f"data: {body if isinstance(body, str) else json.dumps(body)}\n\n")
    return "".join(lines).encode()


def chunk(text: str | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {"role": "assistant"} if text is None else {"content": text}
    return {
        "id": "c",
        "model": "gpt-5",
        "choices": [{"delta": delta, "finish_reason": finish}],
        "usage": None,
        **more,
    }


chat_json = json.dumps(
    {
        "choices": [{"message": {"content": LURE, **DEEP}, "finish_reason": "stop"}],
        "model": "gpt-5",
        "usage": CHAT,
        "z": DEEP,
    }
).encode()
chat_stream = events(
    chunk(None),
    chunk("Hel"),
    chunk(LURE),
    chunk("", "stop"),
    {"model": "gpt-5", "choices": [], "usage": CHAT, **DEEP},
    "[DONE]",
)
responses_stream = events(
    {"type": "response.created", "response": {"model": "gpt-5", "usage": None, "output": []}},
    {"type": "response.output_text.delta", "delta": LURE},
    {
        "type": "response.completed",
        "response": {"model": "gpt-5", "output": [DEEP, LURE], "usage": RESPONSES},
    },
    named=True,
)
long_stream = events(
    {"type": "response.created", "response": {"model": "gpt-5", "usage": None, "instructions": LURE * 200}},
    {"type": "response.output_text.delta", "delta": LURE},
    {
        "type": "response.completed",
        "response": {"model": "gpt-5", "output": [DEEP, LURE * 300, DEEP], "usage": RESPONSES, "last": DEEP},
    },
    named=True,
)
anthropic_json = json.dumps(
    {
        "type": "message",
        "model": "claude",
        "content": [{"type": "text", "text": LURE}, {"type": "tool_use", "input": DEEP}],
        "usage": {
            "input_tokens": 9,
            "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 3,
            "output_tokens": 2,
        },
    }
).encode()
anthropic_stream = events(
    {
        "type": "message_start",
        "message": {
            "model": "claude",
            "usage": {
                "input_tokens": 9,
                "cache_creation_input_tokens": 5,
                "cache_read_input_tokens": 3,
                "output_tokens": 1,
            },
        },
    },
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": LURE}},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": None, "output_tokens": 2},
    },
    {"type": "message_stop"},
    named=True,
)
gemini_parts = [
    {
        "candidates": [{"content": {"parts": [{"text": LURE}]}}],
        "usageMetadata": {"promptTokenCount": 30},
        "modelVersion": "g",
    },
    {"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}], "usageMetadata": GEMINI},
]
ANTHROPIC_USAGE = Usage(input=9, output=2, cache_read=3, cache_write=5)
CASES = {
    "chat": (Kind.OPENAI, False, chat_json, CHAT_USAGE, "gpt-5"),
    "chat, spread out": (
        Kind.OPENAI,
        False,
        json.dumps(json.loads(chat_json), indent=3).encode(),
        CHAT_USAGE,
        "gpt-5",
    ),
    "chat stream": (Kind.OPENAI, True, chat_stream, CHAT_USAGE, "gpt-5"),
    "chat stream, carriage returns": (
        Kind.OPENAI,
        True,
        chat_stream.replace(b"\n", b"\r\n"),
        CHAT_USAGE,
        "gpt-5",
    ),
    "responses": (
        Kind.OPENAI,
        False,
        json.dumps({"model": "gpt-5", "output": [{"text": LURE}, DEEP], "usage": RESPONSES}).encode(),
        RESPONSES_USAGE,
        "gpt-5",
    ),
    "responses stream": (Kind.OPENAI, True, responses_stream, RESPONSES_USAGE, "gpt-5"),
    "responses stream, long lines": (Kind.OPENAI, True, long_stream, RESPONSES_USAGE, "gpt-5"),
    "messages": (Kind.ANTHROPIC, False, anthropic_json, ANTHROPIC_USAGE, "claude"),
    "messages stream": (Kind.ANTHROPIC, True, anthropic_stream, ANTHROPIC_USAGE, "claude"),
    "gemini": (
        Kind.GEMINI,
        False,
        json.dumps({**gemini_parts[0], **gemini_parts[1]}).encode(),
        GEMINI_USAGE,
        "g",
    ),
    "gemini events": (Kind.GEMINI, True, events(*gemini_parts), GEMINI_USAGE, "g"),
    "gemini array": (Kind.GEMINI, True, json.dumps(gemini_parts, indent=1).encode(), GEMINI_USAGE, "g"),
}


def scan(kind: Kind, streaming: bool, pieces: list[bytes]) -> tuple[Usage | None, str | None, bool, bool]:
    scanner = Scanner(kind, streaming)
    for piece in pieces:
        scanner.feed(piece)
    return scanner.usage(), scanner.model, scanner.finished, scanner.output_seen


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@pytest.mark.parametrize("case", CASES)
def test_each_dialect(case: str) -> None:
    kind, streaming, data, usage, model = CASES[case]
    seen = case != "gemini"  # its last part overwrites the text in this made-up sum of both
    assert scan(kind, streaming, [data]) == (usage, model, True, seen)
    assert scan(kind, streaming, [bytes([byte]) for byte in data]) == (usage, model, True, seen)


@given(st.sampled_from(sorted(CASES)), st.lists(st.integers(0, 10**6), max_size=12))
@settings(max_examples=150, deadline=None)
def test_any_split_gives_the_same(case: str, cuts: list[int]) -> None:
    kind, streaming, data, _, _ = CASES[case]
    assert scan(kind, streaming, split(data, cuts)) == scan(kind, streaming, [data])


rubbish = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"data: ",
                b"\n",
                b"\n\n",
                b'"',
                b"\\",
                b"{",
                b"}",
                b"[",
                b"]",
                b":",
                b",",
                b'"usage":',
                b'{"usage":{"a":1}}',
            ]
        )
        | st.sampled_from(
            [
                b'"model":"m"',
                b"[DONE]",
                b'"content":"',
                b'"content":""',
                b" ",
                b"null",
                b'"finish_reason":"',
                b"\xff\x00",
            ]
        ),
        st.binary(max_size=6),
        st.sampled_from([b"x" * 4090, b"{" * 2000]),
    ),
    max_size=25,
).map(b"".join)


@given(st.sampled_from(Kind), rubbish, st.lists(st.integers(0, 10**6), max_size=8))
@example(Kind.OPENAI, b'data: {"content":""}\n', [17])
@example(
    Kind.OPENAI, b'data: {"model":"m","content":"x"}\n\ndata: {"usageMetadata":{"totalTokenCount":1}}\n', [35]
)
@settings(max_examples=250, deadline=None)
def test_rubbish_never_raises_and_any_split_gives_the_same(kind: Kind, data: bytes, cuts: list[int]) -> None:
    assert scan(kind, True, split(data, cuts)) == scan(kind, True, [data])


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    )
)
@settings(max_examples=40, deadline=None)
def test_nothing_in_the_answer_wins_over_the_usage_beside_it(answer: Any) -> None:
    for body in ({"choices": answer, "usage": CHAT}, {"usage": CHAT, "choices": answer}):
        for ascii_only in (True, False):
            text = json.dumps(body, ensure_ascii=ascii_only).encode(errors="replace")
            assert scan(Kind.OPENAI, False, [text])[0] == CHAT_USAGE


def test_an_answer_with_nothing_in_it() -> None:
    stream = events(chunk(None), chunk(""), chunk(None, "stop"), "[DONE]")
    assert scan(Kind.OPENAI, True, [stream]) == (None, "gpt-5", True, False)
    cut = events(chunk(None), chunk("so far"))
    assert scan(Kind.OPENAI, True, [cut]) == (None, "gpt-5", False, True)


def test_of_a_stream_that_was_cut_the_last_usage_counts() -> None:
    stream = events(chunk("a"), chunk("b", usage={"prompt_tokens": 5, "completion_tokens": 1}))
    stream += events(chunk("c", usage={"prompt_tokens": 5, "completion_tokens": 2}))
    assert scan(Kind.OPENAI, True, [stream]) == (Usage(input=5, output=2), "gpt-5", False, True)
    assert scan(Kind.GEMINI, True, [events(*reversed(gemini_parts)), events(gemini_parts[0])])[0] == Usage(
        input=20, output=14, cache_read=10, reasoning=9
    )


def test_a_stream_that_was_refused_is_read_as_the_json_it_is() -> None:
    assert scan(Kind.OPENAI, True, [b'{"error":{"message":"no"},"usage":{"prompt_tokens":3}}'])[0] == Usage(
        input=3
    )


def test_embeddings_and_odd_numbers() -> None:
    body = {
        "data": [{"embedding": [0.5] * 2000}],
        "model": "e",
        "usage": {"prompt_tokens": 8, "total_tokens": 8},
    }
    assert scan(Kind.OPENAI, False, [json.dumps(body).encode()])[:2] == (Usage(input=8), "e")
    odd = b'{"usage":{"prompt_tokens":-4,"completion_tokens":"many","prompt_tokens_details":[1],"x":1e999}}'
    assert scan(Kind.OPENAI, False, [odd])[0] in (None, Usage())


def test_reasoning_beside_the_completion_is_counted_once() -> None:
    beside = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 22,
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    assert scan(Kind.OPENAI, False, [json.dumps({"usage": beside}).encode()])[0] == Usage(
        input=10, output=12, reasoning=7
    )


@pytest.mark.parametrize(
    "begin", [b'{"a":"', b'data: {"a":"', b'data: {"usage":{"a":"', b'{"usage":{"a":"', b'{"model":"']
)
def test_long_answers_pass_in_constant_memory(begin: bytes) -> None:
    scanner = Scanner(Kind.OPENAI, True)
    scanner.feed(begin)
    for _ in range(100):
        scanner.feed(b"x" * 65536)
    assert held(scanner) + held(vars(scanner)["_picker"]) < 20_000


def held(thing: object) -> int:
    return sum(len(value) for value in vars(thing).values() if isinstance(value, bytes | bytearray))
