"""What well-behaved providers say: OpenAI, Anthropic and Gemini, as JSON and as server-sent events.

Shapes as the public API references and SDKs of 2026 have them; text, token counts and splits are the caller's.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from tests.middleman.provider_raw import Answer, Framing, Headers, Part, Received

WORDS = ("Once", " upon", " a", " time", " there", " was", " a", " lighthouse", ".")
JSON: Headers = [("Content-Type", "application/json")]
EVENTS: Headers = [("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache")]

Events = list[tuple[str | None, Any]]


def body(value: Any, status: int = 200, headers: Headers | None = None) -> Answer:
    """A JSON answer."""
    return Answer([msgspec.json.encode(value)], status, [*JSON, *(headers or [])])


def sse(events: Events, *, pause: float = 0.0, done: bool = False) -> Answer:
    """A stream of server-sent events, one chunk each."""
    parts: list[Part] = []
    for name, data in events:
        line = b"" if name is None else b"event: %b\n" % name.encode()
        parts.append(line + b"data: " + msgspec.json.encode(data) + b"\n\n")
        if pause:
            parts.append(pause)
    if done:
        parts.append(b"data: [DONE]\n\n")
    return Answer(parts, headers=[*EVENTS], framing=Framing.CHUNKED)


def polite(request: Received, words: tuple[str, ...] = WORDS, pause: float = 0.0) -> Answer:
    """The answer that fits a request: its dialect, its tools, streamed if it asked for that."""
    path = request.path
    if "generateContent" in path or "streamGenerateContent" in path:
        answer = gemini(request, words, pause)
    elif path.endswith("/messages"):
        answer = messages(request.json(), words, pause)
    elif path.endswith("/count_tokens"):
        answer = body({"input_tokens": 12})
    elif path.endswith("/chat/completions"):
        answer = chat(request.json(), words, pause)
    elif path.endswith("/responses"):
        answer = responses(request.json(), words, pause)
    elif path.endswith("/embeddings"):
        answer = embeddings(request.json())
    elif path.endswith("/files"):
        answer = body({"id": "file-1", "object": "file", "bytes": len(request.body), "created_at": 1750000000,
                       "filename": "a.jsonl", "purpose": "batch", "status": "processed"})  # fmt: skip
    elif "/models" in path:
        answer = models(path)
    else:
        answer = body({"error": {"message": f"no such path: {path}", "type": "invalid_request_error"}}, 404)
    answer.headers.append(("x-request-id", f"req_{request.connection}"))
    return answer


def chat(asked: dict[str, Any], words: tuple[str, ...] = WORDS, pause: float = 0.0) -> Answer:
    """OpenAI chat/completions; calls the first tool when there is one and no result of it yet."""
    base = {
        "id": "chatcmpl-1",
        "created": 1750000000,
        "model": asked.get("model"),
        "system_fingerprint": "fp_1",
    }
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": len(words),
        "total_tokens": 12 + len(words),
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    called = _tool(asked, lambda tool: tool["function"]["name"], '"role":"tool"')
    reason = "tool_calls" if called else "stop"
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": called, "arguments": '{"city": "Oslo"}'}}
    ]
    if not asked.get("stream"):
        said = {"tool_calls": calls, "content": None} if called else {"content": "".join(words)}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "refusal": None, **said},
            "finish_reason": reason,
        }
        return body(
            {**base, "object": "chat.completion", "choices": [{**choice, "logprobs": None}], "usage": usage}
        )
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if called else ""}]
    if called:
        head = {**calls[0], "function": {"name": called, "arguments": ""}}
        deltas += [{"tool_calls": [{"index": 0, **head}]}]
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": s}}]} for s in ('{"city', '": "Oslo"}')
        ]
    else:
        deltas += [{"content": word} for word in words]
    base["object"] = "chat.completion.chunk"
    events: Events = [(None, {**base, "choices": [_choice(d, None)]}) for d in deltas]
    events.append((None, {**base, "choices": [_choice({}, reason)]}))
    if (asked.get("stream_options") or {}).get("include_usage"):
        events.append((None, {**base, "choices": [], "usage": usage}))
    return sse(events, pause=pause, done=True)


def responses(asked: dict[str, Any], words: tuple[str, ...] = WORDS, pause: float = 0.0) -> Answer:
    """OpenAI responses."""
    text = "".join(words)
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": len(words),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12 + len(words),
    }
    whole: dict[str, Any] = {
        "id": "resp_1", "object": "response", "created_at": 1750000000, "status": "completed", "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "model": asked.get("model"),
        "output": [item], "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [],
        "top_p": 1.0, "usage": usage,
    }  # fmt: skip
    if not asked.get("stream"):
        return body(whole)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        (
            "response.output_item.added",
            {"output_index": 0, "item": {**item, "status": "in_progress", "content": []}},
        ),
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        *(("response.output_text.delta", {**place, "delta": w, "logprobs": []}) for w in words),
        ("response.output_text.done", {**place, "text": text, "logprobs": []}),
        ("response.content_part.done", {**place, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": whole}),
    ]
    return sse([(n, {"type": n, "sequence_number": i, **d}) for i, (n, d) in enumerate(events)], pause=pause)


def messages(asked: dict[str, Any], words: tuple[str, ...] = WORDS, pause: float = 0.0) -> Answer:
    """Anthropic messages."""
    usage = {
        "input_tokens": 12,
        "cache_creation_input_tokens": 3,
        "cache_read_input_tokens": 4,
        "output_tokens": len(words),
    }
    called = _tool(asked, lambda tool: tool["name"], '"type":"tool_result"')
    reason = "tool_use" if called else "end_turn"
    base = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": asked.get("model"),
        "stop_sequence": None,
    }
    call = {"type": "tool_use", "id": "toolu_1", "name": called, "input": {"city": "Oslo"}}
    if not asked.get("stream"):
        content = [call] if called else [{"type": "text", "text": "".join(words)}]
        return body({**base, "content": content, "stop_reason": reason, "usage": usage})
    start: dict[str, Any] = {
        **base,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    block: dict[str, Any] = {**call, "input": {}} if called else {"type": "text", "text": ""}
    deltas: list[dict[str, Any]] = (
        [{"type": "input_json_delta", "partial_json": s} for s in ('{"city": ', '"Oslo"}')]
        if called
        else [{"type": "text_delta", "text": w} for w in words]
    )
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": start}),
        ("content_block_start", {"index": 0, "content_block": block}),
        ("ping", {}),
        *(("content_block_delta", {"index": 0, "delta": d}) for d in deltas),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None},
                           "usage": {"output_tokens": len(words)}}),
        ("message_stop", {}),
    ]  # fmt: skip
    return sse([(n, {"type": n, **d}) for n, d in events], pause=pause)


def gemini(request: Received, words: tuple[str, ...] = WORDS, pause: float = 0.0) -> Answer:
    """Gemini generateContent and streamGenerateContent (events with `alt=sse`, else a JSON array)."""
    usage = {"promptTokenCount": 12, "candidatesTokenCount": len(words), "totalTokenCount": 12 + len(words)}

    def piece(text: str, last: bool) -> dict[str, Any]:
        content = {"role": "model", "parts": [{"text": text}]}
        candidate = {"content": content, "index": 0, **({"finishReason": "STOP"} if last else {})}
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": "gemini-x",
            "responseId": "r1",
        }

    if "streamGenerateContent" not in request.path:
        return body(piece("".join(words), True))
    pieces = [piece(word, i == len(words) - 1) for i, word in enumerate(words)]
    if "alt=sse" in request.target:
        return sse([(None, p) for p in pieces], pause=pause)
    return body(pieces)


def embeddings(asked: dict[str, Any]) -> Answer:
    """OpenAI embeddings, as floats or (what the SDK asks for) base64 of little-endian float32."""
    vector: Any = [0.5, -0.25]
    if asked.get("encoding_format") == "base64":
        vector = base64.b64encode(b"\x00\x00\x00\x3f\x00\x00\x80\xbe").decode()
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return body({"object": "list", "data": data, "model": asked.get("model"), "usage": usage})


def models(path: str) -> Answer:
    """A list of models, or one of them."""
    last = path.rsplit("/models", 1)[1].strip("/")
    one = {"id": last or "m", "object": "model", "type": "model", "created": 1750000000, "owned_by": "me",
           "display_name": "M", "created_at": "2025-06-15T00:00:00Z", "name": f"models/{last or 'm'}"}  # fmt: skip
    return body(one if last else {"object": "list", "data": [one], "models": [one], "has_more": False})


def error(
    status: int, kind: str, message: str, headers: Headers | None = None, code: str | None = None
) -> Answer:
    """An error that reads as OpenAI's and as Anthropic's."""
    said = {"message": message, "type": kind, "code": code, "param": None}
    return body({"type": "error", "error": said}, status, headers)


def _choice(delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _tool(asked: dict[str, Any], name: Any, answered: str) -> str | None:
    """Name of the tool to call: the first one, until the conversation holds a result."""
    tools = asked.get("tools") or []
    held = answered.encode() in msgspec.json.encode(asked)
    return None if held or not tools else str(name(tools[0]))
