"""The table of providers against what Inspect and the SDKs do with a worker's environment."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.config.providers import (
    PROVIDERS,
    RESERVED,
    Kind,
    client_environment,
    find_provider,
    hidden_variables,
    is_name,
    named_provider,
    names_of,
    provider_of,
)
from hawk.config.smallrequest import small_request

URL = "http://127.0.0.1:4000"
TOKEN = "header.claims.signature"


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("openai/gpt-5", ("openai", "gpt-5")),
        ("anthropic/claude-sonnet-5", ("anthropic", "claude-sonnet-5")),
        ("google/gemini-2.5-pro", ("gemini", "gemini-2.5-pro")),
        ("openrouter/meta-llama/llama-3.3", ("openrouter", "meta-llama/llama-3.3")),
        ("openai-api/local/smollm2", ("local", "smollm2")),
        ("openai-api/My_Host/a/b", ("my-host", "a/b")),
        ("openai-api-completions/local/base", ("local", "base")),
        ("openai-api/openrouter/x", ("openrouter", "x")),
        ("openai-api/groq/x", ("groq-openai", "x")),
        ("openai-api/admin/x", ("admin-openai", "x")),
        ("perplexity/sonar", ("perplexity", "perplexity/sonar")),
        ("vllm/meta/x", ("vllm", "meta/x")),
        ("vllm-completions/x", ("vllm", "x")),
        ("openai/azure/gpt-5", None),
        ("anthropic/bedrock/claude", None),
        ("google/vertex/gemini", None),
        ("grok/grok-4", None),
        ("hf/meta/x", None),
        ("mockllm/model", None),
        ("none", None),
        ("openai-api/local", None),
        ("openai-api/../x", None),
    ],
)
def test_models_find_their_provider(model: str, found: tuple[str, str] | None) -> None:
    assert provider_of(model) == found


def test_no_provider_is_called_like_a_path_of_the_middlemans_own() -> None:
    assert RESERVED.isdisjoint(PROVIDERS)
    assert all(find_provider(name) is None for name in RESERVED)


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True))
def test_a_path_leads_to_the_provider_that_inspect_means(name: str) -> None:
    provider = named_provider(name)
    assert is_name(provider.name)
    found = find_provider(provider.name)
    assert found is not None
    assert (found.name, found.key_variables, found.url_variables) == (
        provider.name,
        provider.key_variables,
        provider.url_variables,
    )
    assert f"{name.upper().replace('-', '_')}_API_KEY" in provider.key_variables


@given(st.text(max_size=40))
def test_any_name_is_a_provider_or_none(text: str) -> None:
    provider = find_provider(text)
    assert provider is None or provider.name == text
    found = provider_of(text)
    assert found is None or find_provider(found[0]) is not None


def test_every_name_of_a_model_leads_back_to_it() -> None:
    for provider in PROVIDERS.values():
        for name in names_of(provider, "org/model")[: len(provider.inspect_names)]:
            assert provider_of(name) == (provider.name, "org/model")


def test_a_variable_belongs_to_one_provider() -> None:
    variables = [v for p in PROVIDERS.values() for v in (*p.key_variables, *p.url_variables)]
    assert len(variables) == len(set(variables))


def test_an_account_is_part_of_cloudflares_address() -> None:
    cloudflare = PROVIDERS["cloudflare"]
    assert cloudflare.upstream({}) is None
    assert "/accounts/abc/" in str(cloudflare.upstream({"CLOUDFLARE_ACCOUNT_ID": "abc"}))


def test_litellms_proxy_is_addressed_at_its_root() -> None:
    assert (
        PROVIDERS["litellm-proxy"].upstream({"LITELLM_PROXY_BASE_URL": "http://x:4000/v1/"})
        == "http://x:4000"
    )


def in_environment(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """What a worker has: no key, no address and no way around the middleman but ours."""
    for variable in hidden_variables(PROVIDERS.values()):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in client_environment(
        URL, TOKEN, [find_provider(n) or PROVIDERS[n] for n in names]
    ).items():
        monkeypatch.setenv(variable, value)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        ("openai/gpt-4o-mini", {}),
        ("anthropic/claude-sonnet-4-5", {}),
        ("openrouter/a/b", {}),
        ("together/a/b", {}),
        ("deepseek/deepseek-chat", {}),
        ("fireworks/accounts/fireworks/models/x", {}),
        ("perplexity/sonar", {}),
        ("sambanova/x", {}),
        ("moonshot/kimi-k2.5", {}),
        ("meta/muse-spark-1.1", {}),
        ("cloudflare/@cf/x", {}),
        ("litellm-proxy/x", {"model_info": False}),
        ("vllm/a/b", {"lazy_init": False}),
        ("sglang/a/b", {}),
        ("openai-api/local/smollm2", {}),
        ("openai-api/groq/x", {}),
        ("openai-api-completions/local/base", {}),
    ],
)
def test_inspects_client_goes_to_the_middleman(
    model: str, args: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from inspect_ai.model import get_model

    found = provider_of(model)
    assert found is not None
    provider = find_provider(found[0])
    assert provider is not None
    in_environment(monkeypatch, provider.name)
    client = get_model(model, memoize=False, **args).api.client  # type: ignore[attr-defined]
    assert str(client.base_url).rstrip("/") == f"{URL}/{provider.name}{provider.prefix}"
    assert client.api_key == TOKEN
    assert getattr(client, "auth_token", None) is None


@pytest.mark.parametrize("name", ["ollama", "llama-cpp-python"])
def test_local_servers_clients_go_to_the_middleman_with_a_word_for_a_key(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inspect_ai.model import get_model

    in_environment(monkeypatch, name)
    client = get_model(f"{name}/x", memoize=False).api.client  # type: ignore[attr-defined]
    assert str(client.base_url).rstrip("/") == f"{URL}/{name}/v1"
    assert not PROVIDERS[name].reads_key
    assert client.api_key != TOKEN


def test_the_sdks_send_requests_below_their_base_url() -> None:
    """What stands between a client's base URL and the provider's own path is the prefix, and nothing else."""
    import anthropic
    import openai

    for kind, sdk, path in (
        (Kind.OPENAI, openai.OpenAI, "/chat/completions"),
        (Kind.ANTHROPIC, anthropic.Anthropic, "/v1/messages"),
    ):
        provider = PROVIDERS[kind.value]
        base = client_environment(URL, TOKEN, [provider])[provider.url_variables[0]]
        client: Any = sdk(base_url=base, api_key=TOKEN)
        assert client._prepare_url(path).path == f"/{provider.name}{provider.prefix}{path}"


@pytest.mark.parametrize(
    ("model", "path", "at_the_provider"),
    [
        ("openai/gpt-5", "/v1/chat/completions", "/chat/completions"),
        ("anthropic/claude-x", "/v1/messages", "/v1/messages"),
        ("google/models/gemini-x", "/v1beta/models/gemini-x:generateContent", None),
        ("groq/llama", "/openai/v1/chat/completions", None),
        ("mistral/large", "/v1/chat/completions", None),
        ("perplexity/sonar", "/v1/responses", "/responses"),
    ],
)
def test_a_probe_asks_where_clients_ask(model: str, path: str, at_the_provider: str | None) -> None:
    found = provider_of(model)
    assert found is not None
    provider = find_provider(found[0])
    assert provider is not None
    asked, body = small_request(provider, found[1])
    assert asked == path
    assert path.removeprefix(provider.prefix) == (at_the_provider or path)
    assert "Say ok." in str(body)
