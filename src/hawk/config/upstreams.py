"""Providers that a job brings along: where its models say a `base_url`, or its environment an address.

The middleman serves each under a name of its own, since one eval set may have two servers of one kind. Supervisor and
worker come to the same names from the same config. Configs are plain data here, as `EvalSetConfig.to_data` gives them: a
supervisor does without the library that validates them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hawk.config.providers import COMPATIBLE, PROVIDERS, Provider, find_provider, named_provider, provider_of

URL_VARIABLE, TOKEN_VARIABLE = "HAWK_MIDDLEMAN_URL", "HAWK_JOB_TOKEN"
"""Environment of a worker whose requests go through the middleman."""

FALLBACK = "INSPECT_EVAL_MODEL_BASE_URL"
"""Inspect's address for every model that has none of its own."""


class JobUpstream(NamedTuple):
    """`name`: first segment of its path at the middleman. `client`: the provider as the job's clients know it."""

    name: str
    base_url: str
    client: Provider


def models_of(config: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """(Inspect's name, `base_url`) of every model that a config names."""
    experiments = [experiment.get("model") or {} for experiment in config.get("experiments") or ()]
    roles = (config.get("model_roles") or {}).values()
    for entry in (*(config.get("models") or ()), *experiments, *roles):
        for item in entry.get("items") or ():
            yield item["name"], (item.get("args") or {}).get("base_url")


def providers_of(config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Provider]:
    """Providers whose clients a worker may have: those of the table, those that its models name, and, for code that
    makes its own, those for which the environment has both a key and an address."""
    found = dict(PROVIDERS)
    for model, _ in models_of(config):
        known = provider_of(model)
        provider = _client(model) if known is not None else None
        if provider is not None:
            found[provider.name] = provider
    for variable in environ:
        stem = variable.removesuffix("_BASE_URL")
        if stem != variable and f"{stem}_API_KEY" in environ:
            try:
                provider = named_provider(stem)
            except ValueError:
                continue
            if variable in provider.url_variables:
                found.setdefault(provider.name, provider)
    return found


def upstreams_of(config: Mapping[str, Any], environ: Mapping[str, str]) -> list[JobUpstream]:
    """Every provider that a job brings along, each once.

    Args:
        environ: The job's own variables: `runner.environment`, secrets, and what the submitter's shell had.
    """
    found: dict[str, JobUpstream] = {}
    for model, base_url in models_of(config):
        client = _client(model)
        if base_url is not None and client is not None:
            upstream = upstream_for(client, base_url)
            found[upstream.name] = upstream
    for provider in providers_of(config, environ).values():
        url = next((environ[v] for v in provider.url_variables if environ.get(v)), environ.get(FALLBACK))
        if url:
            found.setdefault(provider.name, JobUpstream(provider.name, url, provider))
    return list(found.values())


def upstream_for(client: Provider, base_url: str) -> JobUpstream:
    """The name of a model's own address: the provider's, and something that tells addresses apart."""
    mark = hashlib.sha256(base_url.rstrip("/").encode()).hexdigest()[:8]
    return JobUpstream(f"{client.name}-{mark}", base_url, client)


def redirected(url: str, model: str, base_url: str) -> str | None:
    """What a model's `base_url` becomes for a client of the middleman at `url`; None: not a provider that it serves."""
    client = _client(model)
    if client is None:
        return None
    return f"{url.rstrip('/')}/{upstream_for(client, base_url).name}{client.prefix}"


def _client(model: str) -> Provider | None:
    """The provider as the client of a model sees it."""
    known = provider_of(model)
    if known is None:
        return None
    words = model.split("/")
    if words[0] in COMPATIBLE:
        return named_provider(words[1])
    return find_provider(known[0])
