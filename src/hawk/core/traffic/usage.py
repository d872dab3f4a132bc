"""Tokens of one request, in our words, whatever its provider calls them."""

from __future__ import annotations

from typing import Any

import msgspec

from hawk.config.providers import Kind

_MOST_TOKENS = 2**53


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one request.

    Attributes:
        input: Of the request, without those that were read from or written to a cache.
        output: Of the answer, with reasoning.
        cache_read: Of the request, read from a cache.
        cache_write: Of the request, written to a cache.
        reasoning: Those of the output that were reasoning.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


def read_usage(counts: dict[str, Any], kind: Kind) -> Usage:
    """The usage object of a provider, in our words.

    Args:
        counts: OpenAI's (chat, responses, embeddings), Anthropic's or Gemini's, told apart by their fields, since
            most providers speak more than one dialect.
    """
    if "promptTokenCount" in counts or "totalTokenCount" in counts:
        return _gemini(counts)
    if "prompt_tokens" in counts or "completion_tokens" in counts:
        return _openai(counts, "prompt_tokens", "completion_tokens")
    if kind is Kind.ANTHROPIC or "cache_read_input_tokens" in counts:
        return Usage(
            input=_number(counts, "input_tokens"),
            output=_number(counts, "output_tokens"),
            cache_read=_number(counts, "cache_read_input_tokens"),
            cache_write=_number(counts, "cache_creation_input_tokens"),
        )
    return _openai(counts, "input_tokens", "output_tokens")


def _openai(counts: dict[str, Any], prompt: str, completion: str) -> Usage:
    """Cached tokens are part of the prompt's there; reasoning is part of the completion's, except where the total
    shows that a provider counts it beside them."""
    asked, answered = _number(counts, prompt), _number(counts, completion)
    details = counts.get(f"{prompt}_details")
    cached, written = _number(details, "cached_tokens"), _number(details, "cache_write_tokens")
    reasoning = _number(counts.get(f"{completion}_details"), "reasoning_tokens")
    if reasoning and _number(counts, "total_tokens") == asked + answered + reasoning:
        answered += reasoning
    return Usage(
        input=max(asked - cached - written, 0),
        output=answered,
        cache_read=cached,
        cache_write=written,
        reasoning=reasoning,
    )


def _gemini(counts: dict[str, Any]) -> Usage:
    """Cached tokens are part of the prompt's there; those of thoughts and of tools' prompts are counted beside."""
    cached, thoughts = _number(counts, "cachedContentTokenCount"), _number(counts, "thoughtsTokenCount")
    asked = _number(counts, "promptTokenCount") + _number(counts, "toolUsePromptTokenCount")
    return Usage(
        input=max(asked - cached, 0),
        output=_number(counts, "candidatesTokenCount") + thoughts,
        cache_read=cached,
        reasoning=thoughts,
    )


def _number(counts: Any, key: str) -> int:
    value = counts.get(key) if isinstance(counts, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(min(max(value, 0), _MOST_TOKENS))
