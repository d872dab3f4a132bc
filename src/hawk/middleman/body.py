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
    """`model`: as the provider calls it, None where a request names none. `tokens`: an estimate, 0 where there is none."""

    model: str | None
    streaming: bool
    tokens: int


class _Body(msgspec.Struct):
    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None


_decoder = msgspec.json.Decoder(_Body)


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
    return Asked(model, streaming, len(body) // BYTES_A_TOKEN + ceiling)


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
