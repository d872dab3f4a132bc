"""What the middleman reads off a request: its model, and roughly how many tokens it will use. Nothing is changed."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import msgspec

from hawk.config.providers import Kind
from hawk.middleman.refusals import Refusal

_GEMINI_MODEL = re.compile(r"/models/([^/:]+)(?::(\w+))?$")
_OPENAI_MODEL = re.compile(r"/models/(.+)$")
_SPELT_OUT = re.compile(rb'"(?:[model]|\\u00[0-9a-fA-F]{2}){5}"\s*:')
"""`"model"` with letters written as escapes."""

BYTES_A_TOKEN = 4
"""English text has about four bytes a token (OpenAI's rule of thumb); the estimate is settled by the true number."""


class Asked(NamedTuple):
    """What a request asks for.

    Attributes:
        model: As the provider calls it; None where a request names none.
        tokens: An estimate of all that it will use; 0 where there is none.
        most: Tokens that the answer may have; 0: not said.
        reasoning: It asks the model to think at length.
    """

    model: str | None
    streaming: bool
    tokens: int
    most: int = 0
    reasoning: bool = False


_NOTHING = msgspec.Raw()

_NO_THOUGHT = re.compile(
    rb'^(?:null|false|\{\s*\}|"(?:none|minimal)")$'
    rb'|"effort"\s*:\s*"(?:none|minimal)"|"type"\s*:\s*"disabled"|"thinkingBudget"\s*:\s*0\b'
)
"""What is said where thinking can be asked for, and does not ask for it."""


class _Body(msgspec.Struct):
    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    reasoning_effort: msgspec.Raw = _NOTHING
    reasoning: msgspec.Raw = _NOTHING
    thinking: msgspec.Raw = _NOTHING
    generationConfig: msgspec.Raw = _NOTHING  # noqa: N815  # the provider's name


class _Generation(msgspec.Struct):
    maxOutputTokens: int | None = None  # noqa: N815
    thinkingConfig: msgspec.Raw = _NOTHING  # noqa: N815


_decoder = msgspec.json.Decoder(_Body)
_generation = msgspec.json.Decoder(_Generation)


def model_in_path(kind: Kind, rest: str) -> str | None:
    """The model that a path names: always with Gemini, else only where models are looked at."""
    match = (_GEMINI_MODEL if kind is Kind.GEMINI else _OPENAI_MODEL).search(rest)
    return match[1] if match else None


def read_body(kind: Kind, rest: str, body: bytes) -> Asked:
    """What a JSON body asks for.

    Raises:
        Refusal: It is not JSON, or names two models.
    """
    try:
        found = _decoder.decode(body)
    except msgspec.MsgspecError as ex:
        raise Refusal("hawk_bad_request", f"The body is not a JSON request: {ex}") from ex
    if body.count(b'"model"') > 1 or (b"\\u00" in body and _SPELT_OUT.search(body)):
        _refuse_two_models(body)
    ceiling = found.max_completion_tokens or found.max_output_tokens or found.max_tokens or 0
    streaming = bool(found.stream) or (kind is Kind.GEMINI and "stream" in rest)
    model = model_in_path(kind, rest) if kind is Kind.GEMINI else found.model or model_in_path(kind, rest)
    tokens = len(body) // BYTES_A_TOKEN + ceiling
    thought = found.reasoning_effort, found.reasoning, found.thinking
    if found.generationConfig and kind is Kind.GEMINI:
        ceiling, thinking = _of_gemini(found.generationConfig)
        thought = (thinking, _NOTHING, _NOTHING)
    reasoning = any(said and _NO_THOUGHT.search(said) is None for said in thought)
    return Asked(model, streaming, tokens, ceiling, reasoning)


def _of_gemini(config: msgspec.Raw) -> tuple[int, msgspec.Raw]:
    """Most tokens, and how thinking is asked for: nothing of a configuration that is not as it should be."""
    try:
        found = _generation.decode(config)
    except msgspec.MsgspecError:
        return 0, _NOTHING
    return found.maxOutputTokens or 0, found.thinkingConfig


def _refuse_two_models(body: bytes) -> None:
    """Readers differ in which of two equal keys counts: what we check must be what the provider reads."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs) and sum(name == "model" for name, _ in pairs) > 1:
            raise Refusal("hawk_bad_request", "The body names two models.")
        return found

    try:
        json.loads(body, object_pairs_hook=once)
    except (ValueError, RecursionError) as ex:
        raise Refusal("hawk_bad_request", "The body is not a JSON request.") from ex
