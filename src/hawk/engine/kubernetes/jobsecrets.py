"""What a runner pod is told in secret: how it starts, and the eval set's secrets; and keys that only its middleman sees.

Keys of model providers never are where code of a task runs: they go into a Secret of their own, which the container
beside the runner mounts, and the runner has a token instead.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hawk import __version__
from hawk.config.cluster import ClusterSettings
from hawk.config.providers import Provider, find_provider, hidden_variables, provider_of
from hawk.config.settings import Settings
from hawk.config.upstreams import models_of, providers_of, upstreams_of
from hawk.engine.kubernetes import manifests, mounts
from hawk.link import tokens as link_tokens
from hawk.link.start import WORKER_POD, Start
from hawk.store.rundir import JobSpec

SIDECAR_URL = "http://127.0.0.1:8989"
"""Where the middleman of a runner pod is."""

JOB_KEYS = "job-keys"
"""File of the keys' Secret with the keys that the job itself brought, as JSON by variable."""


class JobSecrets(NamedTuple):
    """Contents of the job's two Secrets by file name; `keys` empty: there is no middleman in the pod."""

    own: dict[str, bytes]
    keys: dict[str, bytes]


def gather(
    spec: JobSpec, given: Mapping[str, str], settings: Settings, cluster: ClusterSettings
) -> JobSecrets:
    """What a job's pod gets.

    Args:
        given: Secrets and keys that the submitter gave, by name.

    Raises:
        HawkError: Keys or signing keys can't be read.
    """
    found = _gathered(spec, given, settings, cluster)
    pod = manifests.worker(spec, cluster)
    return found if pod is None else found._replace(own={**found.own, WORKER_POD: msgspec.json.encode(pod)})


def _gathered(
    spec: JobSpec, given: Mapping[str, str], settings: Settings, cluster: ClusterSettings
) -> JobSecrets:
    off = bool((spec.config.get("middleman") or {}).get("off"))
    sidecar = manifests.has_sidecar(spec, cluster)
    start = Start(
        job=spec.job_id,
        generation=spec.generation,
        base_dir=mounts.source_dir(spec.base_dir) if cluster.volume is None else spec.base_dir,
        token=link_tokens.mint(link_tokens.link_key(settings.home), spec.job_id, spec.generation),
        server=cluster.server_url,
        spans=sidecar,
        shared=cluster.volume is not None,
        version=__version__,
    )
    if off:
        return _secrets(start, given, {})
    variables = {**_said(spec), **given}
    hidden = hidden_variables(providers_of(spec.config, variables).values())
    # Named, for the runner asks for all that its eval set names, and empty: only the middleman has them.
    plain = {name: "" for name in spec.secret_names if name in hidden}
    plain |= {name: value for name, value in given.items() if name not in hidden}
    if not sidecar:
        from hawk.middleman.tokens import signing_key

        start.middleman = cluster.middleman_url
        start.middleman_token = _token(spec, variables, signing_key(settings.home))
        return _secrets(start, plain, {})
    key = secrets.token_hex(32).encode()
    start.middleman, start.middleman_token = SIDECAR_URL, _token(spec, variables, key)
    brought = brought_keys(spec, variables)
    keys = {name: value.encode() for name, value in kept_keys(spec, brought, settings.home).items()}
    if brought:
        keys[JOB_KEYS] = msgspec.json.encode(brought)
    return _secrets(start, plain, {**keys, manifests.SIGNING_KEY: key})


def brought_keys(spec: JobSpec, variables: Mapping[str, str]) -> dict[str, str]:
    """Keys that the job itself brings, by variable: of the providers that its models are of, and of those that it brings
    an address for; where it names no models, of any provider."""
    clients = [upstream.client for upstream in upstreams_of(spec.config, variables)]
    wanted = (
        [*named, *clients]
        if (named := _providers(spec.config))
        else providers_of(spec.config, variables).values()
    )
    known = {name for provider in wanted for name in provider.key_variables}
    return {name: value for name, value in variables.items() if name in known and value}


def kept_keys(spec: JobSpec, brought: Mapping[str, str], home: Path) -> dict[str, str]:
    """Keys that this server has, by variable: of the providers that the job's models are of, and that it brings none for."""
    from hawk.middleman.keys import KeyStore

    kept, found = KeyStore(home).snapshot(), dict[str, str]()
    for provider in _providers(spec.config):
        if provider.key_variables and not any(name in brought for name in provider.key_variables):
            value = kept.get(provider)
            if value:
                found[provider.key_variables[0]] = value
    return found


def _providers(config: Mapping[str, Any]) -> list[Provider]:
    names = [known[0] for model, _ in models_of(config) if (known := provider_of(model)) is not None]
    found = (find_provider(name) for name in dict.fromkeys(names))
    return [provider for provider in found if provider is not None]


def _token(spec: JobSpec, variables: Mapping[str, str], key: bytes) -> str:
    from hawk.core.traffic.ledger import Budget
    from hawk.middleman.tokens import Cassette, Upstream, mint

    options: Mapping[str, Any] = spec.config.get("middleman") or {}
    said = options.get("budget") or {}
    record, replay = options.get("record"), options.get("replay")
    base, run = Path(mounts.source_dir(spec.base_dir)), Path(mounts.RUNS) / spec.job_id
    cassette = None
    if replay is not None:
        cassette = Cassette("replay", str(base / replay), options.get("replay_speed") or 0.0)
    elif record:
        cassette = Cassette("record", str(run / "cassette.jsonl"))  # from there it comes to the server
    return mint(
        key,
        job=spec.job_id,
        user=spec.created_by or "",
        models=tuple(options.get("models") or ("*",)),
        budget=Budget(usd=said.get("usd"), tokens=said.get("tokens")),
        upstreams={
            u.name: Upstream(u.base_url, u.client.kind, u.client.prefix)
            for u in upstreams_of(spec.config, variables)
        },
        cassette=cassette,
    )


def _said(spec: JobSpec) -> dict[str, str]:
    said = manifests.runner_of(spec).get("environment") or {}
    return {name: str(value) for name, value in said.items()}


def _secrets(start: Start, plain: Mapping[str, str], keys: dict[str, bytes]) -> JobSecrets:
    own = {"start.json": msgspec.json.encode(start), "secrets.json": msgspec.json.encode(dict(plain))}
    return JobSecrets(own, keys)
