"""What providers say in the lab, beside the faults of `tests.middleman.provider_faults`: agents' scripts, slow answers.

Everything here is the answer to one request, or a function from a request to one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.middleman.provider import Say
from tests.middleman.provider_answers import body, chat
from tests.middleman.provider_raw import Answer, Received


def late(answer: Answer, seconds: float) -> Answer:
    """The same, after a while."""
    answer.delay += seconds
    return answer


def answered(delay: float = 0.3, words: tuple[str, ...] = ("42",), pause: float = 0.0) -> Say:
    """A right answer after a while; with a pause between its words where it is streamed."""
    return lambda request: late(chat(request.json(), words, pause), delay)


def call(request: Received, tool: str | int, **arguments: Any) -> Answer:
    """A call of a tool: by its name, or by its place among those that were offered."""
    asked = request.json()
    name = tool if isinstance(tool, str) else asked["tools"][tool]["function"]["name"]
    held = sum(message["role"] == "assistant" for message in asked["messages"])
    called = {
        "id": f"call_{held}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, "tool_calls": [called]},
        "finish_reason": "tool_calls",
        "logprobs": None,
    }
    usage = {"prompt_tokens": 20 + 10 * held, "completion_tokens": 12, "total_tokens": 32 + 10 * held}
    return body(
        {"id": "chatcmpl-2", "object": "chat.completion", "created": 1750000000, "model": asked.get("model"),
         "choices": [choice], "usage": usage}
    )  # fmt: skip


SHELL, PUBLISH, ASK = 0, 1, 2
"""Places of the tools of `tasks.py`."""

Turn = str | Callable[[Received], Answer]


def agent(*turns: Turn, delay: float = 0.3, forever: bool = False) -> Say:
    """An agent's script: commands to run, one a turn, and then an answer; `forever`: the last one again and again."""

    def say(request: Received) -> Answer:
        turn = sum(message["role"] == "assistant" for message in request.json()["messages"])
        if forever:
            turn = min(turn, len(turns) - 1)
        if turn >= len(turns):
            return late(chat(_plain(request), ("42",)), delay)
        what = turns[turn]
        answer = call(request, SHELL, command=what) if isinstance(what, str) else what(request)
        return late(answer, delay)

    return say


def _plain(request: Received) -> dict[str, Any]:
    """The request without its tools, which would be called."""
    return {key: value for key, value in request.json().items() if key != "tools"}


def by_sample(scripts: Mapping[str, Say], default: Say | None = None) -> Say:
    """Another script for each sample, by a word of its input."""

    def say(request: Received) -> Answer:
        text = json.dumps(request.json().get("messages", [])[:2])
        found = next((script for word, script in scripts.items() if word in text), default or answered())
        return found if isinstance(found, Answer) else found(request)

    return say


def in_turns(*says: Say) -> Say:
    """One after the other, again and again."""
    order = itertools.cycle(says)

    def say(request: Received) -> Answer:
        found = next(order)
        return found if isinstance(found, Answer) else found(request)

    return say


def fresh(make: Callable[[], Answer], delay: float = 0.0) -> Say:
    """A fault of `provider_faults`, made anew for each request."""
    return lambda request: late(make(), delay)


def filtered() -> Say:
    """A right answer that a content filter has cut off before its first word."""

    def say(request: Received) -> Answer:
        asked = request.json()
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "", "refusal": None},
            "finish_reason": "content_filter",
            "logprobs": None,
        }
        usage = {"prompt_tokens": 20, "completion_tokens": 0, "total_tokens": 20}
        return body(
            {"id": "chatcmpl-3", "object": "chat.completion", "created": 1750000000, "model": asked.get("model"),
             "choices": [choice], "usage": usage}
        )  # fmt: skip

    return say
