"""The smallest request for some text, in a provider's format: what a model is probed with."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from hawk.config.providers import Kind, Provider

_TEXT = "Say ok."
_TOKENS = 16


def small_request(provider: Provider, model: str) -> tuple[str, dict[str, Any]]:
    """(path after the provider's name at a middleman, body). At the provider itself the path begins after `prefix`."""
    if provider.kind is Kind.GEMINI:
        path = f"/v1beta/models/{quote(model.removeprefix('models/'))}:generateContent"
        contents = [{"role": "user", "parts": [{"text": _TEXT}]}]
        return path, {"contents": contents, "generationConfig": {"maxOutputTokens": _TOKENS}}
    messages = [{"role": "user", "content": _TEXT}]
    if provider.kind is Kind.ANTHROPIC:
        return "/v1/messages", {"model": model, "messages": messages, "max_tokens": _TOKENS}
    if provider.name == "perplexity":  # Inspect asks it there only
        return "/v1/responses", {"model": model, "input": _TEXT, "max_output_tokens": _TOKENS}
    most = "max_completion_tokens" if provider.name == "openai" else "max_tokens"
    after = {"groq": "/openai/v1", "mistral": "/v1", "litellm-proxy": ""}.get(provider.name, "/v1")
    return f"{after}/chat/completions", {"model": model, "messages": messages, most: _TOKENS}
