"""What the middleman knows about providers and models at one moment: where a request goes, with whose key.

A catalog never changes. A reload makes another, and requests that are under way go on with theirs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from hawk.config.problems import config_error
from hawk.config.providers import PROVIDERS, Kind, Provider, find_provider, names_of, provider_of
from hawk.core.traffic.breaker import BreakerSettings
from hawk.core.traffic.lane import Limits
from hawk.core.traffic.prices import Price
from hawk.errors import UsageError
from hawk.middleman.address import Policy, forbidden_url, is_own
from hawk.middleman.groups import groups_of, permitted
from hawk.middleman.keys import DEFAULT, Keys, KeyStore, plain_key, read_key_file
from hawk.middleman.pricelist import PriceList, load_prices, price_of
from hawk.middleman.routes import Deadlines, JobUpstream, ModelInfo, Route, Unroutable
from hawk.middleman.settings import (
    AccountEntry,
    Defaults,
    Loaded,
    MiddlemanConfig,
    ModelEntry,
    ProviderEntry,
    load_settings,
    said,
)

__all__ = [
    "Catalog",
    "Deadlines",
    "JobUpstream",
    "ModelInfo",
    "Route",
    "Unroutable",
    "addresses_of",
    "load_catalog",
]

_MARK = re.compile(r"-[0-9a-f]{8}$")
"""What `hawk.config.upstreams` adds to the name of a provider that a model has an address of its own for."""


class Catalog:
    """A snapshot of settings, keys and prices.

    Attributes:
        policy: Which addresses jobs may bring along.
        own: Addresses and ports at which the middleman listens.
    """

    def __init__(
        self,
        loaded: Loaded,
        environ: Mapping[str, str],
        keys: Keys,
        prices: tuple[PriceList, PriceList],
        *,
        policy: Policy,
        own: Sequence[tuple[str, int]] = (),
        host_names: Collection[str] = (),
    ) -> None:
        self._config: MiddlemanConfig = loaded.config
        self._environ = dict(environ)
        self._keys = keys
        self._prices, self._own_prices = prices
        self.policy = policy
        self.own = tuple(own)
        self._host_names = frozenset(host_names)
        self._accounts = {name: _read_accounts(name, loaded, keys) for name in self._config.providers}

    def provider(self, name: str) -> Provider | None:
        """The provider that a path's first segment names, as the settings have it; None: it names none."""
        known = find_provider(name)
        entry = self._config.providers.get(name)
        if known is None or entry is None or entry.kind in (None, known.kind):
            return known
        kind = Kind(entry.kind)
        return dataclasses.replace(known, kind=kind, prefix="/v1" if kind is Kind.OPENAI else "")

    def base_url(self, provider: Provider) -> str | None:
        """Where a provider is: what the settings say, else a variable, else the table."""
        entry = self._config.providers.get(provider.name)
        if entry is not None and entry.base_url is not None:
            return provider.plain(entry.base_url)
        return provider.upstream(self._environ)

    def reachable(self, name: str) -> bool:
        """Whether a provider has an address, set up where it is a local one, and the key that it needs."""
        provider = self.provider(name)
        if provider is None or self.base_url(provider) is None:
            return False
        said_so = name in self._config.providers or any(map(self._environ.get, provider.url_variables))
        if provider.local:
            return said_so
        return self._key(provider, None)[1] is not None or not self._needs_key(provider)

    def providers(self) -> list[Provider]:
        """Those that are reachable, without those that only a job brings along."""
        names = dict.fromkeys([*PROVIDERS, *self._config.providers])
        return [p for name in names if self.reachable(name) and (p := self.provider(name)) is not None]

    def route(
        self,
        provider: str,
        model: str | None,
        *,
        job_keys: Mapping[str, str],
        job_upstreams: Mapping[str, JobUpstream],
    ) -> Route:
        """Where a request for a model goes.

        Args:
            provider: First segment of the path.
            model: What the provider calls it; None: a request without one (a list of models).
            job_keys: Keys of the job's own, by variable. They are used before ours.
            job_upstreams: Addresses of the job's own, by provider. They are never sent a key of ours.

        Raises:
            Unroutable: There is no such provider, no key for it, or the job's address is not allowed.
        """
        known = self.provider(provider)
        if known is None:
            raise Unroutable(
                "hawk_unknown_provider",
                f"{provider!r} can't be the name of a provider.",
                "docs/middleman.md lists those that there are.",
            )
        upstream = job_upstreams.get(provider)
        if upstream is not None:
            client = self._client(known)
            if client.plain(upstream.base_url) != self.base_url(client):
                return self._job_route(known, client, model, upstream, job_keys)
            known = client
        base_url = self.base_url(known)
        if base_url is None:
            raise Unroutable(
                "hawk_unknown_provider",
                f"Nothing says where provider {provider!r} is.",
                f"Set {known.url_variables[0]}, or base_url under providers: {provider}: in middleman.yaml.",
            )
        if is_own(base_url, self.own, self._host_names):
            raise Unroutable(
                "hawk_upstream_forbidden",
                f"The address of provider {provider!r}, {base_url}, is the middleman itself.",
                f"Unset {' and '.join(known.url_variables)} where the middleman is started, or correct middleman.yaml.",
            )
        own_key = _first(job_keys, known.key_variables)
        if own_key is not None:
            return self._route(known, model, f"job-{_fingerprint(own_key)}", own_key, base_url)
        account, key = self._key(known, self._rule(known, model))
        if key is None and self._needs_key(known):
            raise self._no_key(known, account)
        return self._route(known, model, account, key, base_url)

    def permitted(self, person_groups: frozenset[str] | None, model: str, provider: str) -> bool:
        """Whether somebody in these groups (None: all) may use a model. A dead one is nobody's."""
        known = self.provider(provider)
        rule = None if known is None else self._rule(self._client(known), model)
        return rule is None or (not rule.dead and permitted(person_groups, rule.groups))

    def names(self, provider: str, model: str) -> tuple[str, ...]:
        """Every name under which a pattern may mean a model: also those of one of a job's own `openai-1a2b3c4d`."""
        known = self.provider(provider)
        return () if known is None else names_of(self._client(known), model)

    def groups_of(self, person: str) -> frozenset[str] | None:
        """Model groups that a person is in; None where there are no groups: everything is everybody's."""
        return groups_of(person, self._config.groups)

    def model_groups(self) -> Mapping[str, Sequence[str]]:
        """Group to the people in it."""
        return self._config.groups

    def models(self) -> list[ModelInfo]:
        """Models with a price, and those that the settings name in full, by name."""
        named = [entry.match for entry in self._config.models if not set("*?[") & set(entry.match)]
        infos: dict[tuple[str, str], ModelInfo] = {}
        for name in sorted({*named, *(name for name, _ in self._prices.items())}):
            found = provider_of(name)
            if found is None or found in infos:
                continue
            provider = self.provider(found[0])
            if provider is None:
                continue
            rule = self._rule(provider, found[1])
            infos[found] = ModelInfo(
                name=name,
                provider=found[0],
                model=found[1],
                groups=tuple(rule.groups) if rule is not None else (),
                price=self._price(provider, found[1], rule, self._prices),
                reachable=self.reachable(found[0]),
                dead=rule is not None and rule.dead,
            )
        return list(infos.values())

    def prices(self) -> dict[str, Any]:
        """`{"as_of": day, "models": {Inspect's name: Price}}`."""
        return {"as_of": self._prices.as_of, "models": dict(self._prices.items())}

    # --- the parts of a route

    def _route(
        self, provider: Provider, model: str | None, account: str, key: str | None, base_url: str
    ) -> Route:
        entry = self._config.providers.get(provider.name) or ProviderEntry()
        rule = self._rule(provider, model)
        return Route(
            provider,
            account,
            key,
            base_url,
            *self._bounds(rule, entry),
            price=self._price(provider, model, rule, self._prices),
            groups=tuple(rule.groups) if rule is not None else (),
            headers=entry.headers,
        )

    def _client(self, provider: Provider) -> Provider:
        """The provider whose key a job means by an upstream: `openai-1a2b3c4d` is one of several `openai`s of a job's."""
        return self.provider(_MARK.sub("", provider.name)) or provider

    def _job_route(
        self,
        provider: Provider,
        client: Provider,
        model: str | None,
        upstream: JobUpstream,
        job_keys: Mapping[str, str],
    ) -> Route:
        wrong = forbidden_url(
            upstream.base_url, policy=self.policy, own=self.own, host_names=self._host_names
        )
        if wrong is not None:
            raise Unroutable(
                "hawk_upstream_forbidden",
                f"The job's address of provider {client.name!r} is not allowed: {wrong}.",
                "Name it under providers: in middleman.yaml, or allow more with job_upstreams: there.",
            )
        base_url = client.plain(upstream.base_url)
        key = _first(job_keys, (*provider.key_variables, *client.key_variables))
        rule = self._rule(client, model)
        return Route(
            dataclasses.replace(provider, kind=Kind(upstream.kind), prefix=upstream.prefix),
            f"job-{_fingerprint(base_url, key or '')}",
            key,
            base_url,
            *self._bounds(rule, ProviderEntry()),
            price=self._price(client, model, rule, self._own_prices),
            groups=tuple(rule.groups) if rule is not None else (),
            of_job=True,
        )

    def _rule(self, provider: Provider, model: str | None) -> ModelEntry | None:
        """The first entry of the settings that matches a model."""
        names = names_of(provider, model or "")
        return next((e for e in self._config.models if any(fnmatchcase(n, e.match) for n in names)), None)

    def _bounds(
        self, rule: ModelEntry | None, entry: ProviderEntry
    ) -> tuple[Deadlines, Limits, BreakerSettings]:
        levels: list[ModelEntry | ProviderEntry | Defaults] = [entry, self._config.defaults]
        if rule is not None:
            levels.insert(0, rule)
        limits = Limits(**said(*(level.limits for level in levels)))
        start = max(1, min(limits.start, limits.most))
        limits = msgspec.structs.replace(limits, start=start, least=min(limits.least, start))
        deadlines = Deadlines(**said(*(level.deadlines for level in levels)))
        return deadlines, limits, BreakerSettings(**said(*(level.breaker for level in levels)))

    def _price(
        self, provider: Provider, model: str | None, rule: ModelEntry | None, prices: PriceList
    ) -> Price | None:
        if model is None:
            return None
        if rule is not None and rule.price is not None:
            return price_of(rule.price)
        return prices.find(names_of(provider, model))

    def _key(self, provider: Provider, rule: ModelEntry | None) -> tuple[str, str | None]:
        """(account, key) for a model of ours: the account that its entry names, else the first."""
        accounts = self._accounts.get(provider.name) or {}
        wanted = rule.account if rule is not None else None
        if wanted is None:
            stored = self._keys.accounts(provider.name)
            wanted = next(iter(accounts), None) or (stored[0] if stored else DEFAULT)
        if wanted in accounts:
            return wanted, accounts[wanted]
        return wanted, self._keys.get(provider, wanted)

    def _needs_key(self, provider: Provider) -> bool:
        entry = self._config.providers.get(provider.name)
        if entry is not None and entry.needs_key is not None:
            return entry.needs_key
        return provider.name in PROVIDERS and not provider.local

    def _no_key(self, provider: Provider, account: str) -> Unroutable:
        option = "" if account == DEFAULT else f" --account {account}"
        return Unroutable(
            "hawk_no_key",
            f"The middleman has no key of {provider.name}{'' if account == DEFAULT else f', account {account}'}.",
            f"hawk middleman keys set {provider.name}{option}, or set {provider.key_variables[0]}.",
        )


def load_catalog(
    home: Path,
    environ: Mapping[str, str],
    keys: KeyStore,
    *,
    standalone: bool = False,
    own: Sequence[tuple[str, int]] = (),
    host_names: Collection[str] = (),
) -> Catalog:
    """Read settings, keys and prices.

    Args:
        home: `HAWK_HOME`.
        environ: Where providers' addresses, and variables in the settings, come from.
        keys: Where keys come from.
        standalone: It serves others than this machine's user: jobs may bring no addresses unless the settings say so.
        own: Addresses and ports at which the middleman listens: nobody is sent there.
        host_names: Names under which it is known.

    Raises:
        ConfigError: Settings or prices are wrong; with file and line.
        StorageError: Keys can't be read.
        UsageError: What should be a key can't be one.
    """
    loaded = load_settings(home, environ)
    policy: Policy = loaded.config.job_upstreams or ("none" if standalone else "any")
    prices = load_prices(home, loaded.config.prices)
    return Catalog(loaded, environ, keys.snapshot(), prices, policy=policy, own=own, host_names=host_names)


def _read_accounts(name: str, loaded: Loaded, keys: Keys) -> dict[str, str | None]:
    """Keys of the accounts that the settings give a provider, in their order; None: not there now."""
    provider = find_provider(name)
    assert provider is not None
    found: dict[str, str | None] = {}
    for i, account in enumerate(loaded.config.providers[name].accounts):
        try:
            found[account.name] = _account_key(provider, account, loaded.path.parent, keys)
        except (OSError, UsageError) as ex:
            why = ex.strerror if isinstance(ex, OSError) else str(ex)
            field = "file" if account.file is not None else "variable"
            problem = loaded.source.problem(("providers", name, "accounts", i, field), f"{why}")
            raise config_error(loaded.source.name, [problem]) from None
    return found


def _account_key(provider: Provider, account: AccountEntry, base: Path, keys: Keys) -> str | None:
    if account.variable is not None:
        return keys.variable(account.variable)
    if account.file is not None:
        return plain_key(read_key_file(base / Path(account.file).expanduser()), "The file")
    return keys.get(provider, account.name)


def _first(values: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((values[name] for name in names if values.get(name)), None)


def _fingerprint(*parts: str) -> str:
    """Eight characters that differ where the parts do, and tell nothing about them."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def addresses_of(host: str, port: int) -> list[tuple[str, int]]:
    """What to give as `own` for a host and port that the middleman listens at; a name gives nothing."""
    try:
        return [(str(ipaddress.ip_address(host)), port)]
    except ValueError:
        return [("127.0.0.1", port)] if host == "localhost" else []
