"""Settings, routes, groups and prices."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.config.providers import Kind
from hawk.core.traffic.prices import Price, cost
from hawk.core.traffic.usage import Usage
from hawk.errors import ConfigError
from hawk.middleman.address import forbidden_url
from hawk.middleman.catalog import Catalog, Deadlines, Route, Unroutable, load_catalog
from hawk.middleman.keys import KeyStore
from hawk.middleman.manual import MANUAL_FILE, render
from hawk.middleman.pricelist import load_prices, parse_prices, save_prices, shipped

SECRET = "sk-test-0123456789abcdefWXYZ"
OWN = [("127.0.0.1", 4000)]


class Brought(NamedTuple):
    base_url: str
    kind: str = "openai"
    prefix: str = "/v1"


def catalog(home: Path, text: str = "", *, standalone: bool = False, **environ: str) -> Catalog:
    home.mkdir(exist_ok=True)
    (home / "middleman.yaml").write_text(text)
    return load_catalog(home, environ, KeyStore(home, environ), standalone=standalone, own=OWN)


def route(
    known: Catalog, provider: str, model: str | None = "m", brought: Brought | None = None, **job_keys: str
) -> Route:
    upstreams = {} if brought is None else {provider: brought}
    return known.route(provider, model, job_keys=job_keys, job_upstreams=upstreams)


def refused(known: Catalog, provider: str, brought: Brought | None = None, **job_keys: str) -> Unroutable:
    with pytest.raises(Unroutable) as caught:
        route(known, provider, "m", brought, **job_keys)
    assert caught.value.remedy
    return caught.value


# --- where a request goes


def test_a_known_provider_needs_a_key_and_nothing_else(tmp_path: Path) -> None:
    missing = refused(catalog(tmp_path), "anthropic")
    assert missing.type == "hawk_no_key"
    assert "hawk middleman keys set anthropic" in missing.remedy
    found = route(catalog(tmp_path, ANTHROPIC_API_KEY=SECRET), "anthropic")
    assert (found.key, found.base_url, found.account, found.provider.kind) == (
        SECRET,
        "https://api.anthropic.com",
        "default",
        Kind.ANTHROPIC,
    )
    assert (found.deadlines, found.limits.most, found.of_job) == (Deadlines(), 256, False)
    assert SECRET not in repr(found)


def test_an_address_in_the_environment_or_the_settings_replaces_the_tables(tmp_path: Path) -> None:
    known = catalog(tmp_path, OPENAI_API_KEY=SECRET, OPENAI_BASE_URL="http://gateway/v1/")
    assert route(known, "openai").base_url == "http://gateway/v1"
    known = catalog(
        tmp_path,
        "providers: {openai: {base_url: http://other/v1}}",
        OPENAI_API_KEY=SECRET,
        OPENAI_BASE_URL="http://x",
    )
    assert route(known, "openai").base_url == "http://other/v1"


def test_an_address_that_is_the_middlemans_own_is_no_provider(tmp_path: Path) -> None:
    known = catalog(tmp_path, OPENAI_API_KEY=SECRET, OPENAI_BASE_URL="http://localhost:4000/openai/v1")
    assert refused(known, "openai").type == "hawk_upstream_forbidden"


def test_a_provider_of_ones_own_needs_an_address_and_no_key(tmp_path: Path) -> None:
    assert refused(catalog(tmp_path), "local").type == "hawk_unknown_provider"
    assert refused(catalog(tmp_path), "../x").type == "hawk_unknown_provider"
    known = catalog(tmp_path, "providers: {local: {base_url: 'http://127.0.0.1:8080/v1'}}")
    found = route(known, "local")
    assert (found.key, found.base_url, found.provider.prefix) == (None, "http://127.0.0.1:8080/v1", "/v1")
    assert [p.name for p in known.providers()] == ["local"]
    other = catalog(tmp_path, "providers: {mirror: {base_url: http://m, kind: anthropic}}")
    assert (route(other, "mirror").provider.kind, route(other, "mirror").provider.prefix) == (
        Kind.ANTHROPIC,
        "",
    )


def test_servers_of_this_machine_are_reachable_where_they_are_set_up(tmp_path: Path) -> None:
    assert not catalog(tmp_path).reachable("ollama")
    assert not catalog(tmp_path).reachable("vllm")
    assert catalog(tmp_path, VLLM_BASE_URL="http://gpu:8000/v1").reachable("vllm")
    assert catalog(tmp_path, "providers: {ollama: {}}").reachable("ollama")


ACCOUNTS = """
providers:
  openai:
    headers: {openai-organization: org-1}
    accounts:
      - {name: main, variable: MAIN_KEY}
      - {name: batch, file: keys/batch}
models:
  - {match: "openai/gpt-4*", account: batch}
"""


def test_the_first_account_pays_unless_the_model_names_another(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "batch").write_text("batch-key-of-some-length\n")
    known = catalog(tmp_path, ACCOUNTS, MAIN_KEY=SECRET, OPENAI_API_KEY="not-used-at-all")
    first, second, listing = (route(known, "openai", model) for model in ("gpt-5", "gpt-4o", None))
    assert [(r.account, r.key) for r in (first, second, listing)] == [
        ("main", SECRET),
        ("batch", "batch-key-of-some-length"),
        ("main", SECRET),
    ]
    assert first.headers == {"openai-organization": "org-1"}
    (tmp_path / "keys" / "batch").unlink()
    with pytest.raises(
        ConfigError, match=r"middleman\.yaml:7: providers\.openai\.accounts\[1\]\.file: No such file"
    ):
        catalog(tmp_path, ACCOUNTS)


def test_stored_accounts_count_without_being_in_the_settings(tmp_path: Path) -> None:
    KeyStore(tmp_path, {}).set("openai", SECRET, "team")
    assert route(catalog(tmp_path, OPENAI_API_KEY="of-the-environment"), "openai").account == "team"
    KeyStore(tmp_path, {}).set("openai", "the-default-accounts-key")
    assert route(catalog(tmp_path), "openai").key == "the-default-accounts-key"


def test_a_jobs_own_key_is_used_before_ours_and_shares_a_lane_with_itself(tmp_path: Path) -> None:
    known = catalog(tmp_path, OPENAI_API_KEY=SECRET)
    one, two = (route(known, "openai", model, OPENAI_API_KEY="key-of-the-job") for model in ("a", "b"))
    other = route(known, "openai", "a", OPENAI_API_KEY="another-key")
    assert (one.key, one.account) == ("key-of-the-job", two.account)
    assert one.account.startswith("job-")
    assert len({one.account, other.account, route(known, "openai").account}) == 3
    assert "key-of-the-job" not in one.account


def test_a_jobs_own_address_never_sees_our_key(tmp_path: Path) -> None:
    text = "prices: {openai-api/local/m: {input: 1, output: 2}}"
    known = catalog(tmp_path, text, OPENAI_API_KEY=SECRET, LOCAL_API_KEY=SECRET)
    for name in ("openai", "local"):
        found = route(known, name, "m", Brought("https://elsewhere.example/v1"))
        assert (found.key, found.of_job, found.account[:4]) == (None, True, "job-")
        found = route(
            known,
            name,
            "m",
            Brought("https://elsewhere.example/v1"),
            **{f"{name.upper()}_API_KEY": "its-own"},
        )
        assert found.key == "its-own"
    assert route(known, "local", "m", Brought("https://x/v1")).price == Price(1, 2, 1, 1)
    assert route(known, "openai", "gpt-4o", Brought("https://x/v1")).price is None
    assert route(known, "mirror", "m", Brought("https://x", "anthropic", "")).provider.prefix == ""


@pytest.mark.parametrize("name", ["openai", "openai-0a1b2c3d"])
def test_the_providers_own_address_is_not_the_jobs(tmp_path: Path, name: str) -> None:
    known = catalog(tmp_path, standalone=True, OPENAI_API_KEY=SECRET)
    found = route(known, name, "m", Brought("https://api.openai.com/v1/"))
    assert (found.key, found.of_job) == (SECRET, False)


def test_one_of_several_addresses_of_a_provider_takes_the_jobs_key_of_it(tmp_path: Path) -> None:
    known = catalog(tmp_path, "models: [{match: 'groq/*', limits: {most: 3}}]", GROQ_API_KEY=SECRET)
    found = route(known, "groq-0a1b2c3d", "m", Brought("https://x", prefix=""), GROQ_API_KEY="its-own")
    assert (found.key, found.provider.name, found.provider.prefix, found.limits.most) == (
        "its-own",
        "groq-0a1b2c3d",
        "",
        3,
    )
    assert route(known, "groq-0a1b2c3d", "m", Brought("https://x", prefix="")).key is None


# --- addresses


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://x",
        "//x/v1",
        "http://",
        "http://user:pass@x/v1",
        "http://user@x/v1",
        "http://x/v1?a=b",
        "http://x/v1#f",
        "http://x/%2e%2e/y",
        "http://x\\@y/v1",
        "http://x\r\ny: z/v1",
        "http://x:99999/v1",
        "http://169.254.169.254/latest",
        "http://2852039166/",
        "http://0xa9.0xfe.0xa9.0xfe/",
        "http://0251.0376.0251.0376/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fd00:ec2::254]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://metadata.google.internal./x",
        "http://METADATA/",
        "http://0.0.0.0:8000/v1",
        "http://[::]/v1",
        "http://224.0.0.1/",
        "http://127.0.0.1:4000/v1",
        "http://localhost:4000/v1",
        "http://127.1:4000/",
        "http://[::1]:4000/",
        "http://[::ffff:127.0.0.1]:4000/",
    ],
)
def test_a_job_may_not_bring_every_address(url: str, tmp_path: Path) -> None:
    assert (
        refused(catalog(tmp_path, OPENAI_API_KEY=SECRET), "openai", Brought(url)).type
        == "hawk_upstream_forbidden"
    )


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8080/v1", "http://10.0.0.5/v1", "https://example.org/api/v1", "http://[::1]:8080"],
)
def test_what_a_job_may_bring_is_the_settings_to_say(url: str, tmp_path: Path) -> None:
    assert forbidden_url(url, policy="any", own=OWN) is None
    assert (forbidden_url(url, policy="public") is None) == ("example.org" in url)
    assert (
        refused(catalog(tmp_path, standalone=True), "local", Brought(url)).type == "hawk_upstream_forbidden"
    )
    assert route(catalog(tmp_path, "job_upstreams: any", standalone=True), "local", "m", Brought(url)).of_job


# --- limits, groups, prices


BOUNDS = """
defaults:
  limits: {most: 100, requests_per_minute: 600}
  deadlines: {connect: 5}
  breaker: {failures: 3}
providers:
  openai: {limits: {most: 50}, deadlines: {idle: 60}}
models:
  - {match: openai/gpt-5-mini, limits: {most: 4}}
  - {match: "openai/gpt-5*", limits: {adaptive: false}, dead: true}
  - {match: "openai/*", groups: [frontier]}
groups: {frontier: [alice], all: ["*"]}
"""


def test_the_nearest_word_counts_field_by_field(tmp_path: Path) -> None:
    known = catalog(tmp_path, BOUNDS, OPENAI_API_KEY=SECRET, GROQ_API_KEY=SECRET)
    mini, five, other = (route(known, "openai", model).limits for model in ("gpt-5-mini", "gpt-5", "o3"))
    assert [(x.most, x.start, x.requests_per_minute, x.adaptive) for x in (mini, five, other)] == [
        (4, 4, 600, True),
        (50, 8, 600, False),
        (50, 8, 600, True),
    ]
    assert route(known, "openai").deadlines == Deadlines(connect=5, idle=60)
    assert (route(known, "groq").limits.most, route(known, "groq").breaker.failures) == (100, 3)


def test_groups_say_who_may_use_a_model(tmp_path: Path) -> None:
    known = catalog(tmp_path, BOUNDS)
    alice, bob = known.groups_of("alice"), known.groups_of("bob")
    assert (alice, bob) == ({"frontier", "all"}, {"all"})
    assert known.permitted(alice, "o3", "openai")
    assert not known.permitted(bob, "o3", "openai")
    assert known.permitted(None, "o3", "openai")
    assert not known.permitted(bob, "o3", "openai-0a1b2c3d"), (
        "an address of the job's own is no way around a group"
    )
    assert "openai/o3" in known.names("openai-0a1b2c3d", "o3")
    assert known.permitted(bob, "gpt-5-mini", "openai")
    assert known.permitted(bob, "anything", "groq")
    assert not known.permitted(None, "gpt-5", "openai"), "a dead model is nobody's"
    assert catalog(tmp_path).groups_of("bob") is None


def test_models_are_listed_with_groups_and_prices(tmp_path: Path) -> None:
    known = catalog(
        tmp_path, BOUNDS + "prices: {openai-api/local/smol: {input: 0, output: 0}}", OPENAI_API_KEY=SECRET
    )
    infos = {info.name: info for info in known.models()}
    assert (infos["openai/gpt-4o"].groups, infos["openai/gpt-4o"].reachable) == (("frontier",), True)
    assert infos["openai/gpt-5"].dead
    assert not infos["anthropic/claude-sonnet-5"].reachable
    assert (infos["openai-api/local/smol"].provider, infos["openai-api/local/smol"].model) == (
        "local",
        "smol",
    )


def test_prices_are_found_without_the_date_and_the_settings_win(tmp_path: Path) -> None:
    listed = shipped()[0]["openai/gpt-4o"]
    known = catalog(
        tmp_path,
        "models: [{match: 'openai/o3*', price: {input: 7, output: 8, cache_read: 0}}]",
        OPENAI_API_KEY=SECRET,
    )
    assert route(known, "openai", "gpt-4o").price == listed
    assert route(known, "openai", "gpt-4o-2099-01-31").price == listed
    assert (
        route(known, "openai", "gpt-4o-2024-05-13").price
        == shipped()[0]["openai/gpt-4o-2024-05-13"]
        != listed
    )
    assert route(known, "openai", "o3-mini").price == Price(7, 8, 0, 7)
    assert route(known, "openai", "never-heard-of").price is None
    save_prices(
        tmp_path, parse_prices("as_of: 2099-01-01\nmodels: {openai/gpt-4o: {input: 1, output: 2}}", "x")
    )
    assert route(catalog(tmp_path, OPENAI_API_KEY=SECRET), "openai", "gpt-4o-latest").price == Price(
        1, 2, 1, 1
    )
    assert load_prices(tmp_path, {})[0].as_of == "2099-01-01"
    known = catalog(tmp_path, "prices: {openai/gpt-4o: {input: 5, output: 6}}", OPENAI_API_KEY=SECRET)
    assert route(known, "openai", "gpt-4o").price == Price(5, 6, 5, 5)


def test_litellms_list_is_understood(tmp_path: Path) -> None:
    text = """{"sample_spec": {"mode": "x"}, "gemini/g": {"litellm_provider": "gemini", "mode": "chat",
    "input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05, "max_input_tokens": 1000},
    "azure/x": {"litellm_provider": "azure", "mode": "chat", "input_cost_per_token": 1, "output_cost_per_token": 1}}"""
    save_prices(tmp_path, parse_prices(text, "x"))
    known = catalog(tmp_path, GEMINI_API_KEY=SECRET)
    assert route(known, "gemini", "g").price == Price(1.25, 10, 1.25, 1.25, 1000)
    with pytest.raises(ConfigError):
        save_prices(tmp_path, parse_prices("{}", "x"))


@given(st.lists(st.integers(0, 10**9), min_size=4, max_size=4))
def test_every_token_is_charged_once(tokens: list[int]) -> None:
    usage = Usage(
        input=tokens[0], output=tokens[1], cache_read=tokens[2], cache_write=tokens[3], reasoning=tokens[1]
    )
    assert cost(usage, Price(1, 10, 0.1, 2)) == pytest.approx(
        (tokens[0] + 10 * tokens[1] + 0.1 * tokens[2] + 2 * tokens[3]) / 1e6
    )


def test_the_shipped_prices_are_of_models_that_there_can_be() -> None:
    from hawk.config.providers import provider_of

    prices, _ = shipped()
    assert all(provider_of(name) is not None for name in prices)
    assert all(price.cache_read <= price.input for price in prices.values())


def test_the_manual_has_every_field() -> None:
    manual = (Path(__file__).parents[2] / "docs" / MANUAL_FILE).read_text("utf-8")
    assert manual == render(manual), "run: python -m hawk.middleman.manual"


# --- what is wrong with settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("provider: {}", r"middleman\.yaml:1: provider: unknown field 'provider'.*Did you mean 'providers'"),
        ("providers:\n  openai:\n    limit: {}", r":3: providers\.openai\.limit: unknown field.*Did you mean 'limits'"),
        ("providers:\n  opnai: {}", r":2: providers\.opnai: base_url is required.*Did you mean 'openai'"),
        ("providers:\n  admin: {base_url: http://x}", r":2: providers\.admin: 'admin' is one of the middleman's own"),
        ("providers:\n  Local: {base_url: http://x}", r":2: providers\.Local: 'Local' can't be a name"),
        ("providers:\n  openai: {kind: gemini}", r":2: providers\.openai\.kind: openai speaks openai"),
        ("providers:\n  x: {base_url: ftp://x}", r":2: providers\.x\.base_url: a base URL begins with http"),
        ("providers:\n  openai: {headers: {Authorization: x}}", r":2: providers\.openai\.headers: Authorization is set"),
        ("providers:\n  openai: {accounts: [{name: a}, {name: a}]}", r":2: .*two accounts are called 'a'"),
        ("defaults:\n  limits: {most: 2, least: 3}", r":2: defaults\.limits: least \(3\) is more than most \(2\)"),
        ("models:\n  - {match: x, groups: [front]}\ngroups: {frontier: []}", r":2: .*no group is called 'front'"),
        ("models:\n  - {match: x, account: y}", r":2: models\[0\]\.account: no provider here has an account 'y'"),
        ("job_upstreams: all", r":1: job_upstreams: .*'any', 'public' or 'none'"),
        ("prices:\n  a/b: {input: -1, output: 1}", r":2: prices\.a/b\.input"),
        ("providers: {openai: {accounts: [{variable: A, file: b}]}}", "give variable or file, not both"),
        ("a: ${NOT_SET_ANYWHERE}", "NOT_SET_ANYWHERE is not set"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        catalog(tmp_path, text)


def test_settings_that_were_named_must_exist(tmp_path: Path) -> None:
    environ = {"HAWK_MIDDLEMAN_CONFIG": str(tmp_path / "other.yaml")}
    with pytest.raises(ConfigError, match="no such file"):
        load_catalog(tmp_path, environ, KeyStore(tmp_path, environ))
    assert load_catalog(tmp_path / "nowhere", {}, KeyStore(tmp_path, {})).providers() == []
