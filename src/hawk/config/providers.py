"""The model providers that Hawk knows: their addresses, their environment variables, Inspect's names for them.

A provider is in the table when a client can be sent elsewhere by an environment variable, as read in Inspect
0.3.285 (`inspect_ai/model/_providers`) and in the SDKs that it uses. Not in it, and never through the
middleman: Grok (gRPC), Azure, Bedrock, Vertex and SageMaker (other signatures), `hf-inference-providers` (its
address is fixed in Inspect), and models that run inside the worker (`hf`, `transformer_lens`, `nnterp`).

What a client's base URL looks like differs: OpenAI's SDK wants it with `/v1`; those of Anthropic, Google, Groq
and Mistral add a path with a version of their own. `prefix` is the difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Kind(StrEnum):
    """The format of a provider's requests."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"


@dataclass(frozen=True)
class Provider:
    """One provider as the middleman serves it.

    Attributes:
        name: First segment of the path: `openai`, `gemini`, `local`.
        kind: Format of its requests.
        base_url: Where it really is, without a slash at the end; None: must be configured. May name a
            variable, `{CLOUDFLARE_ACCOUNT_ID}`, see `upstream`.
        key_variables: Environment variables that may hold its key; the first that is set wins.
        url_variables: Environment variables that may hold its base URL; the first that is set wins.
        prefix: What a client's base URL has after `/<name>`: `/v1` or nothing. `base_url` takes its place:
            `/openai/v1/models` is `<base_url>/models`.
        inspect_names: First words of Inspect's model names, without those of `openai-api/…`.
        local: Inspect starts or looks for it on the worker's machine when it has no address: a worker gets
            its variables only where it is configured.
        reads_key: False: Inspect sends a fixed word instead of what its key variable says, unless an
            `override_api_key` hook answers.
        hidden: Variables that would lead a client around the middleman; a worker must not have them.
        needed: Variables that a client insists on though the middleman has no use for them.
    """

    name: str
    kind: Kind
    base_url: str | None
    key_variables: tuple[str, ...]
    url_variables: tuple[str, ...]
    prefix: str = "/v1"
    inspect_names: tuple[str, ...] = ()
    local: bool = False
    reads_key: bool = True
    hidden: tuple[str, ...] = ()
    needed: Mapping[str, str] = field(default_factory=dict, hash=False)

    def upstream(self, environ: Mapping[str, str]) -> str | None:
        """The provider's address: a URL variable's, else the table's; None where neither says it."""
        for variable in self.url_variables:
            if environ.get(variable):
                return self.plain(environ[variable])
        if self.base_url is None:
            return None
        try:
            return self.base_url.format_map(environ)
        except KeyError:
            return None

    def plain(self, url: str) -> str:
        """A base URL as a person wrote it, as this table has them.

        LiteLLM's proxy serves everything at its root, and Inspect asks for one thing only there.
        """
        url = url.rstrip("/")
        return url.removesuffix("/v1") if self.name == "litellm-proxy" else url


def _openai_like(
    name: str,
    base_url: str | None,
    *,
    local: bool = False,
    reads_key: bool = True,
    names: tuple[str, ...] = (),
) -> Provider:
    """What Inspect's `OpenAICompatibleAPI` reads for a service of this name."""
    variable = name.upper().replace("-", "_")
    return Provider(
        name=name,
        kind=Kind.OPENAI,
        base_url=base_url,
        key_variables=(f"{variable}_API_KEY",),
        url_variables=(f"{variable}_BASE_URL",),
        inspect_names=names or (name,),
        local=local,
        reads_key=reads_key,
    )


_TABLE = (
    Provider(
        "openai",
        Kind.OPENAI,
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL",),
        inspect_names=("openai",),
    ),
    Provider(
        "anthropic",
        Kind.ANTHROPIC,
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
        prefix="",
        inspect_names=("anthropic",),
        hidden=("ANTHROPIC_AUTH_TOKEN",),
    ),
    Provider(  # Inspect reads GOOGLE_BASE_URL, the SDK alone GOOGLE_GEMINI_BASE_URL; it adds /v1beta/models/…
        "gemini",
        Kind.GEMINI,
        "https://generativelanguage.googleapis.com",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        ("GOOGLE_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
        prefix="",
        inspect_names=("google",),
        hidden=("GOOGLE_USE_ADC",),
    ),
    Provider(  # its SDK adds /openai/v1/…
        "groq",
        Kind.OPENAI,
        "https://api.groq.com",
        ("GROQ_API_KEY",),
        ("GROQ_BASE_URL",),
        prefix="",
        inspect_names=("groq",),
    ),
    Provider(  # its SDK adds /v1/…
        "mistral",
        Kind.OPENAI,
        "https://api.mistral.ai",
        ("MISTRAL_API_KEY",),
        ("MISTRAL_BASE_URL",),
        prefix="",
        inspect_names=("mistral",),
    ),
    _openai_like("openrouter", "https://openrouter.ai/api/v1"),
    _openai_like("together", "https://api.together.xyz/v1"),
    _openai_like("deepseek", "https://api.deepseek.com"),
    _openai_like("fireworks", "https://api.fireworks.ai/inference/v1"),
    _openai_like("perplexity", "https://api.perplexity.ai/v1"),
    _openai_like("sambanova", "https://api.sambanova.ai/v1"),
    _openai_like("moonshot", "https://api.moonshot.ai/v1"),
    Provider(
        "meta",
        Kind.OPENAI,
        "https://api.meta.ai/v1",
        ("META_API_KEY", "MODEL_API_KEY"),
        ("META_BASE_URL",),
        inspect_names=("meta",),
    ),
    Provider(
        "cloudflare",
        Kind.OPENAI,
        "https://api.cloudflare.com/client/v4/accounts/{CLOUDFLARE_ACCOUNT_ID}/ai/v1",
        ("CLOUDFLARE_API_KEY", "CLOUDFLARE_API_TOKEN"),
        ("CLOUDFLARE_BASE_URL",),
        inspect_names=("cloudflare",),
        needed={"CLOUDFLARE_ACCOUNT_ID": "hawk"},
    ),
    Provider(
        "litellm-proxy",
        Kind.OPENAI,
        None,
        ("LITELLM_PROXY_API_KEY", "LITELLM_API_KEY"),
        ("LITELLM_PROXY_BASE_URL", "LITELLM_PROXY_API_BASE", "LITELLM_BASE_URL"),
        prefix="",
        inspect_names=("litellm-proxy",),
    ),
    _openai_like("vllm", None, local=True, names=("vllm", "vllm-completions")),
    _openai_like("sglang", None, local=True),
    _openai_like("ollama", "http://localhost:11434/v1", local=True, reads_key=False),
    _openai_like(
        "llama-cpp-python",
        "http://localhost:8000/v1",
        local=True,
        reads_key=False,
        names=("llama-cpp-python",),
    ),
)

PROVIDERS: Mapping[str, Provider] = MappingProxyType({provider.name: provider for provider in _TABLE})
"""Name to provider, without those that `openai-api/<name>/…` makes up."""

RESERVED = frozenset(
    {
        "health",
        "metrics",
        "openapi.json",
        "permitted_models",
        "permitted_models_info",
        "public_models_info",
        "model_groups",
        "admin",
        "job",
        "upload",  # Google's SDK uploads files to this path of the host, whatever the base URL's path is
    }
)
"""First segments of the middleman's own paths: no provider can have one of these names."""

COMPATIBLE = ("openai-api", "openai-api-completions")
"""First words of Inspect's names for models of any OpenAI-compatible service: `openai-api/<name>/<model>`."""

_ELSEWHERE = frozenset({"azure", "bedrock", "vertex"})
"""Second words of model names that a provider's SDK signs its own way: not for the middleman."""

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_BY_WORD = {word: provider for provider in _TABLE for word in provider.inspect_names}


def is_name(name: str) -> bool:
    """Whether a provider may be called so: what fits in a path, and is no path of the middleman's own."""
    return _NAME.fullmatch(name) is not None and name not in RESERVED


def named_provider(name: str) -> Provider:
    """The OpenAI-compatible service that Inspect calls `openai-api/<name>/…`.

    Its variables are `<NAME>_API_KEY` and `<NAME>_BASE_URL`. A name of the table is the table's provider where
    that has the same format; where it has another (`anthropic`, `groq`), or is one of the middleman's own
    paths, `-openai` is added to the name.

    Raises:
        ValueError: The name can't be a part of a path.
    """
    plain = name.lower().replace("_", "-")
    known = PROVIDERS.get(plain)
    if known is not None and (known.kind, known.prefix) == (Kind.OPENAI, "/v1"):
        return known
    provider = _openai_like(plain, None, names=("-",))
    path = plain if known is None and plain not in RESERVED else f"{plain}-openai"
    if not is_name(path):
        raise ValueError(f"{name!r} can't be the name of a provider")
    return Provider(path, Kind.OPENAI, None, provider.key_variables, provider.url_variables)


def provider_of(model: str) -> tuple[str, str] | None:
    """Which provider serves a model of Inspect's, and what the provider calls it.

    `openai/gpt-5` is `("openai", "gpt-5")`; `google/…` is of `gemini`; `openai-api/local/smollm2` is
    `("local", "smollm2")`, see `named_provider`.

    Returns:
        None for models that do not go through the middleman: `mockllm/…`, `none`, those of a package's own
        provider, those of Azure, Bedrock and Vertex.
    """
    word, _, rest = model.partition("/")
    if not rest:
        return None
    if word in COMPATIBLE:
        name, _, rest = rest.partition("/")
        try:
            return (named_provider(name).name, rest) if rest else None
        except ValueError:
            return None
    provider = _BY_WORD.get(word)
    if provider is None or (rest.partition("/")[0] in _ELSEWHERE and "/" in rest):
        return None
    if provider.name == "perplexity" and "/" not in rest:
        rest = f"perplexity/{rest}"  # as Inspect calls Perplexity's own models
    return provider.name, rest


def names_of(provider: Provider, model: str) -> tuple[str, ...]:
    """Every name under which a model may be written in a pattern or a price list, Inspect's usual one first."""
    words = (*provider.inspect_names, *(f"{word}/{provider.name}" for word in COMPATIBLE), provider.name)
    return tuple(dict.fromkeys(f"{word}/{model}" for word in words))


def find_provider(name: str) -> Provider | None:
    """The provider that a path's first segment names, made up where the table has none; None: it names none."""
    if name in PROVIDERS:
        return PROVIDERS[name]
    try:
        provider = named_provider(name.removesuffix("-openai"))
    except ValueError:
        return None
    if provider.name == name:
        return provider
    return named_provider(name) if is_name(name) else None


def provider_called(word: str) -> Provider | None:
    """The provider that a person means: by its name, by Inspect's (`google`), or `<name>` of `openai-api/<name>/…`."""
    found = _BY_WORD.get(word.lower()) or find_provider(word)
    if found is not None:
        return found
    try:
        return named_provider(word)
    except ValueError:
        return None


def client_environment(url: str, token: str, providers: Iterable[Provider]) -> dict[str, str]:
    """Environment of a worker in which these providers' clients talk to the middleman.

    Leave out `local` providers that are not configured, and first remove `hidden_variables` from the rest.

    Args:
        url: The middleman's address.
        token: The job's token, which the clients take for a key.
        providers: Those that the worker shall reach.
    """
    environment: dict[str, str] = {}
    for provider in providers:
        base = f"{url.rstrip('/')}/{provider.name}{provider.prefix}"
        environment.update(provider.needed)
        environment.update(dict.fromkeys(provider.url_variables, base))
        environment.update(dict.fromkeys(provider.key_variables, token))
    return environment


def hidden_variables(providers: Iterable[Provider]) -> frozenset[str]:
    """Variables to take out of a worker's environment: keys, addresses, and ways around the middleman."""
    return frozenset(
        variable
        for provider in providers
        for variable in (*provider.key_variables, *provider.url_variables, *provider.hidden)
    )


def credential(kind: Kind, key: str) -> tuple[str, str]:
    """Header (name in lower case, value) in which a provider of this kind expects its key."""
    if kind is Kind.ANTHROPIC:
        return "x-api-key", key
    if kind is Kind.GEMINI:
        return "x-goog-api-key", key
    return "authorization", f"Bearer {key}"
