"""`middleman.yaml`: what an operator says about providers, models, groups and limits.

Nothing in it is secret: a key is named by the variable or file that holds it. The text under each field is its
documentation (`python -m hawk.middleman.manual` writes the tables of docs/middleman.md).
"""

# ruff: noqa: RUF012 - pydantic copies mutable defaults

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator, model_validator

from hawk.config.entries import Strict
from hawk.config.explain import explain
from hawk.config.load import read_text
from hawk.config.problems import Problem, config_error
from hawk.config.providers import PROVIDERS, RESERVED, find_provider, is_name
from hawk.config.source import Source, parse_yaml
from hawk.config.suggest import listing, nearest
from hawk.middleman.address import forbidden_url

FILE = "middleman.yaml"

Seconds = Annotated[float, Field(gt=0, le=86400 * 7)]
Rate = Annotated[float, Field(gt=0)]
Dollars = Annotated[float, Field(ge=0)]
JobUpstreams = Literal["any", "public", "none"]
EVERYBODY = "*"


class LimitsEntry(Strict):
    """How much may be in flight, for one account and model. What is not said here is taken from what lies around it."""

    most: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """The most requests at once. 256 unless said."""

    start: Annotated[int, Field(ge=1)] | None = None
    """Requests at once in the beginning. 8 unless said."""

    least: Annotated[int, Field(ge=1)] | None = None
    """Never fewer at once than these, however often the provider says no. 1 unless said."""

    requests_per_minute: Rate | None = None
    """Requests a minute, where the provider allows only so many."""

    tokens_per_minute: Rate | None = None
    """Tokens a minute, of requests and answers together."""

    adaptive: bool | None = None
    """Let the number of requests at once follow what the provider bears: on unless said. Off: always `most`."""

    @model_validator(mode="after")
    def _in_order(self) -> LimitsEntry:
        for low, high in (("least", "most"), ("start", "most"), ("least", "start")):
            first, second = getattr(self, low), getattr(self, high)
            if first is not None and second is not None and first > second:
                raise ValueError(f"{low} ({first}) is more than {high} ({second})")
        return self


class DeadlinesEntry(Strict):
    """Seconds that each part of a request may take. Each has an error of its own when it passes."""

    connect: Seconds | None = None
    """Until the provider takes the connection. 10 unless said."""

    first_byte: Seconds | None = None
    """From the sent request to the first byte of the answer. 600 unless said."""

    idle: Seconds | None = None
    """Between two parts of an answer. 300 unless said."""

    total: Seconds | None = None
    """In all, from the arrival of the request to the end of the answer. 7200 unless said."""

    queue: Seconds | None = None
    """In the queue, before it is sent. 3600 unless said."""


class BreakerEntry(Strict):
    """When a provider that fails every request is given no more of them for a while."""

    failures: Annotated[int, Field(ge=1)] | None = None
    """Failures in a row, without one success. 10 unless said."""

    over: Annotated[float, Field(ge=0)] | None = None
    """Seconds over which they must be spread at least: a burst of requests fails at once. 5 unless said."""

    seconds: Seconds | None = None
    """So long until one request tries again. 30 unless said."""

    most_seconds: Seconds | None = None
    """Each try that fails doubles the wait, up to this. 300 unless said."""


class AccountEntry(Strict):
    """One account with a provider, by where its key is. Without `variable` and `file`: what `hawk middleman keys set` stored."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$")] = "default"
    """What it is called, here and in `hawk middleman status`."""

    variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Environment variable of the middleman, or file in `HAWK_MIDDLEMAN_KEYS_DIR`, that holds the key."""

    file: Annotated[str, Field(min_length=1)] | None = None
    """File that holds the key, relative to this one."""

    @model_validator(mode="after")
    def _one_source(self) -> AccountEntry:
        if self.variable is not None and self.file is not None:
            raise ValueError("give variable or file, not both")
        return self


class ProviderEntry(Strict):
    """A provider: one that Hawk knows, set up otherwise, or one of your own under any other name."""

    kind: Literal["openai", "anthropic", "gemini"] | None = None
    """Format of its requests. Known providers have theirs; others are `openai`."""

    base_url: str | None = None
    """Where it is, with `/v1` where an OpenAI client's base URL has it. Required for names that Hawk does not know."""

    accounts: list[AccountEntry] = []
    """Accounts with keys of their own. A model takes the first, or the one that its entry under `models` names."""

    needs_key: bool | None = None
    """Whether requests without a key make sense. By default known providers need one, and your own do not."""

    headers: dict[str, str] = {}
    """More header fields for each request (an organisation, a project). No credentials: they would be readable here."""

    limits: LimitsEntry = LimitsEntry()
    """Limits of each of its models."""

    deadlines: DeadlinesEntry = DeadlinesEntry()
    """Deadlines of its requests."""

    breaker: BreakerEntry = BreakerEntry()
    """When it is given up for a while."""

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        wrong = None if value is None else forbidden_url(value, policy=None)
        if wrong is not None:
            raise ValueError(wrong)
        return value

    @field_validator("headers")
    @classmethod
    def _plain_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not name.replace("-", "").isalnum() or not value.isprintable() or not value.isascii():
                raise ValueError(f"{name!r} is not a plain header field")
            if name.lower() in ("authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "host"):
                raise ValueError(f"{name} is set by the middleman: name an account instead")
        return headers

    @field_validator("accounts")
    @classmethod
    def _names_once(cls, accounts: list[AccountEntry]) -> list[AccountEntry]:
        names = [account.name for account in accounts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two accounts are called {twice!r}")
        return accounts


class PriceEntry(Strict):
    """US dollars per million tokens."""

    input: Dollars
    """Tokens of the request."""

    output: Dollars
    """Tokens of the answer, reasoning included."""

    cache_read: Dollars | None = None
    """Tokens of the request that the provider had in its cache. As `input` unless said."""

    cache_write: Dollars | None = None
    """Tokens of the request that it put into its cache. As `input` unless said."""

    context: Annotated[int, Field(ge=1)] | None = None
    """Tokens that request and answer may have together."""


class ModelEntry(Strict):
    """What holds for some models. For each model, the first entry that matches it counts, and no other."""

    match: Annotated[str, Field(min_length=1)]
    """Inspect's name of the model; `*` stands for any text: `openai/gpt-5*`."""

    groups: list[str] = []
    """Only people in one of these groups may use it. Without groups, everybody may."""

    account: str | None = None
    """The provider's account that pays for it."""

    limits: LimitsEntry = LimitsEntry()
    """Limits of each model that matches."""

    deadlines: DeadlinesEntry = DeadlinesEntry()
    """Deadlines of requests for it."""

    breaker: BreakerEntry = BreakerEntry()
    """When it is given up for a while."""

    price: PriceEntry | None = None
    """What it costs, instead of the list price."""

    dead: bool = False
    """Nobody may use it any more: the provider has taken it away, or is about to."""


class Defaults(Strict):
    """What holds where a provider or model says nothing else."""

    limits: LimitsEntry = LimitsEntry()
    """Limits of every model."""

    deadlines: DeadlinesEntry = DeadlinesEntry()
    """Deadlines of every request."""

    breaker: BreakerEntry = BreakerEntry()
    """When a provider is given up for a while."""


class MiddlemanConfig(Strict):
    """All that can be said. Every field may be left out."""

    providers: dict[str, ProviderEntry] = {}
    """Providers by name: the first part of the middleman's paths."""

    defaults: Defaults = Defaults()
    """Limits, deadlines and breaker of everything that says nothing else."""

    models: list[ModelEntry] = []
    """Who may use which model, and how much."""

    groups: dict[str, list[str]] = {}
    """Model groups: name to the people in it, as their tokens call them; `*` is everybody."""

    prices: dict[str, PriceEntry] = {}
    """Prices by Inspect's name of the model, instead of the list prices."""

    job_upstreams: JobUpstreams | None = None
    """Which addresses a job may bring along for its own models. `any`: also this machine and its network; `public`: on
    the Internet only; `none`: only the providers here. By default `any` beside a local server, `none` alone."""


class Loaded(NamedTuple):
    """Settings that passed every check, and the file that they are from."""

    config: MiddlemanConfig
    source: Source
    path: Path


def parse_settings(text: str, path: Path, environ: Mapping[str, str]) -> Loaded:
    """Check the content of the file.

    Args:
        text: YAML; `${VAR}` is filled in.
        path: Where it is from; need not exist.
        environ: Where variables come from.

    Raises:
        ConfigError: Anything is wrong with it; says everything that is, with lines.
    """
    name = str(path)
    source = parse_yaml(text, name, environ, what="A middleman file", may_be_empty=True)
    try:
        config = MiddlemanConfig.model_validate(source.data)
    except ValidationError as ex:
        raise config_error(name, explain(ex, source, MiddlemanConfig)) from None
    problems = [*_provider_problems(config, source), *_model_problems(config, source)]
    if problems:
        raise config_error(name, problems)
    return Loaded(config, source, path)


def load_settings(home: Path, environ: Mapping[str, str]) -> Loaded:
    """The settings of a home: `HAWK_MIDDLEMAN_CONFIG`, else `<home>/middleman.yaml`.

    A file that was named must exist; the one in the home need not.

    Raises:
        ConfigError: It can't be read, or is wrong.
    """
    named = environ.get("HAWK_MIDDLEMAN_CONFIG")
    path = Path(named).expanduser() if named else home / FILE
    if not named and not path.exists():
        return parse_settings("", path, environ)
    return parse_settings(read_text(path), path, environ)


def _provider_problems(config: MiddlemanConfig, source: Source) -> list[Problem]:
    problems = []
    for name, entry in config.providers.items():
        path: tuple[str | int, ...] = ("providers", name)
        if not is_name(name):
            what = (
                "is one of the middleman's own paths"
                if name in RESERVED
                else "can't be a name: use a-z, 0-9, - and ."
            )
            problems.append(source.problem(path, f"{name!r} {what}"))
        elif entry.base_url is None and _address_missing(name):
            problems.append(
                source.problem(path, "base_url is required: Hawk knows no provider of this name",
                               suggestion=nearest(name, PROVIDERS))
            )  # fmt: skip
        elif name in PROVIDERS and entry.kind not in (None, PROVIDERS[name].kind):
            kind = PROVIDERS[name].kind
            problems.append(source.problem((*path, "kind"), f"{name} speaks {kind.value}; use another name"))
    return problems


def _address_missing(name: str) -> bool:
    """Whether nothing but the file can say where a provider is: those of the table may have a variable for it."""
    known = find_provider(name)
    return name not in PROVIDERS and (known is None or known.base_url is None)


def _model_problems(config: MiddlemanConfig, source: Source) -> list[Problem]:
    problems = []
    for i, entry in enumerate(config.models):
        for j, group in enumerate(entry.groups):
            if group not in config.groups:
                problems.append(
                    source.problem(
                        ("models", i, "groups", j),
                        f"no group is called {group!r}",
                        allowed=listing(config.groups),
                        suggestion=nearest(group, config.groups),
                    )
                )
        if entry.account is not None and not _account_exists(config, entry):
            known = {account.name for p in config.providers.values() for account in p.accounts}
            problems.append(
                source.problem(
                    ("models", i, "account"),
                    f"no provider here has an account {entry.account!r}",
                    allowed=listing(known),
                    suggestion=nearest(entry.account, known),
                )
            )
    return problems


def _account_exists(config: MiddlemanConfig, entry: ModelEntry) -> bool:
    return any(account.name == entry.account for p in config.providers.values() for account in p.accounts)


def said(*entries: Strict) -> dict[str, Any]:
    """What the entries say together: the first that says something about a field counts."""
    merged: dict[str, Any] = {}
    for entry in entries:
        for name in type(entry).model_fields:
            value = getattr(entry, name)
            if value is not None:
                merged.setdefault(name, value)
    return merged
