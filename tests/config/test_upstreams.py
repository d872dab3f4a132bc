"""Providers that a job brings along have names of their own, the same for supervisor and worker."""

from typing import Any

import pytest

from hawk.config.eval_set import EvalSetConfig
from hawk.config.upstreams import FALLBACK, providers_of, redirected, upstreams_of

TASKS = [{"package": "inspect-ai", "items": [{"name": "x"}]}]
MM = "http://127.0.0.1:4000"


def config(*models: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As a run directory keeps it."""
    entry = [{"package": "inspect-ai", "items": list(models)}] if models else []
    return EvalSetConfig.model_validate({"tasks": TASKS, "models": entry, **more}).to_data()


def test_two_servers_of_one_kind_are_told_apart() -> None:
    one, other = ({"name": "vllm/a", "args": {"base_url": f"http://10.0.0.{n}:8000/v1"}} for n in (1, 2))
    found = upstreams_of(config(one, other), {})
    assert len({u.name for u in found}) == 2
    assert {u.base_url for u in found} == {"http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1"}
    addresses = {redirected(MM, "vllm/a", u.base_url) for u in found}
    assert addresses == {f"{MM}/{u.name}/v1" for u in found}


def test_a_slash_at_the_end_makes_no_other_server() -> None:
    assert redirected(MM, "openai/x", "http://h/v1") == redirected(MM, "openai/x", "http://h/v1/")


@pytest.mark.parametrize(
    ("model", "path"),
    [("anthropic/claude", "anthropic-"), ("google/gemini-2.5-pro", "gemini-"), ("groq/llama", "groq-")],
)
def test_clients_that_add_their_own_path_get_none(model: str, path: str) -> None:
    address = redirected(MM, model, "http://h")
    assert address is not None
    assert address.startswith(f"{MM}/{path}")
    assert not address.endswith("/v1")


def test_models_that_do_not_go_through_it_keep_their_address() -> None:
    assert redirected(MM, "mockllm/model", "http://h") is None
    assert upstreams_of(config({"name": "mockllm/model", "args": {"base_url": "http://h"}}), {}) == []


def test_addresses_in_the_environment_count() -> None:
    environ = {"LOCAL_API_KEY": "k", "LOCAL_BASE_URL": "http://l/v1", "OPENAI_BASE_URL": "http://o/v1"}
    found = {u.name: u.base_url for u in upstreams_of(config({"name": "openai-api/local/m"}), environ)}
    assert found == {"local": "http://l/v1", "openai": "http://o/v1"}


def test_code_that_makes_its_own_clients_needs_key_and_address() -> None:
    assert "mine" in providers_of({}, {"MINE_API_KEY": "k", "MINE_BASE_URL": "http://m/v1"})
    assert "mine" not in providers_of({}, {"MINE_BASE_URL": "http://m/v1"})


def test_inspects_fallback_is_the_address_of_all_that_have_none() -> None:
    found = {u.name: u.base_url for u in upstreams_of(config(), {FALLBACK: "http://all/v1"})}
    assert found["openai"] == found["openrouter"] == "http://all/v1"


def test_roles_and_experiments_count() -> None:
    role = {"package": "inspect-ai", "items": [{"name": "openai/g", "args": {"base_url": "http://g/v1"}}]}
    experiment = {
        "name": "e",
        "model": {
            "package": "inspect-ai",
            "items": [{"name": "openai/m", "args": {"base_url": "http://m/v1"}}],
        },
    }
    assert [u.base_url for u in upstreams_of(config(model_roles={"grader": role}), {})] == ["http://g/v1"]
    assert [u.base_url for u in upstreams_of(config(experiments=[experiment]), {})] == ["http://m/v1"]
