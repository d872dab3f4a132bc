"""What a worker imports on its way to the first model call, so that it can be imported beforehand.

Inspect imports much of it lazily, in every worker and on the way to the first attempt: the control server and
its FastAPI, the ACP schemas, the libraries of the model's provider, a table of model facts. Found by comparing
`sys.modules` before and after a run.

Not numpy: its BLAS starts threads, and threads do not survive a fork.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import SimpleNamespace

_ALWAYS = (
    "inspect_ai._eval.evalset",
    "hawk.bridge.capture",
    "hawk.bridge.definition",
    "hawk.evals.registry",
)
"""What an enumeration needs, and every worker."""

_WORKERS = (
    "hawk.bridge.live",
    "anyio._backends._asyncio",
    "fsspec.implementations.chained",
    "inspect_ai._control.config_record",
    "inspect_ai._control.disconnect",
    "inspect_ai._control.scoring",
    "inspect_ai._control.server",
    "inspect_ai._control.strict",
    "inspect_ai.agent._acp.server",
    "inspect_ai.agent._acp.transport_live",
    "inspect_ai.hooks._startup",
    "inspect_ai.model._providers.none",
    "inspect_ai.solver._transcript",
    "fastapi.applications",
    "fastapi.security",
    "uvicorn.lifespan.off",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "rich.markdown",
    "rich._emoji_codes",
    "pydantic.v1",
    "hawk.bridge.sandboxtools",
    "hawk.runner.evidence",  # with it the sandbox provider: its keeper starts in the worker, at the first sandbox
)
"""What workers need besides."""

_OF_PROVIDERS = {
    r"openai": "inspect_ai.model._providers.openai",
    r"[a-z-]*openai-api[a-z-]*|openrouter|together|deepseek|moonshot|fireworks|perplexity|cloudflare|ollama|vllm"
    r"|sglang|litellm-proxy": "inspect_ai.model._providers.openai_compatible",
    r"groq|mistral|azureai|sagemaker": "inspect_ai.model._openai",
    r"anthropic": "inspect_ai.model._providers.anthropic",
}
"""First words of models' names to the module with their library; the costliest of all."""


class Preload:
    """A list of imports that gets shorter, an import a step. Whoever is in a hurry stops early.

    First what everybody needs, then what workers need, and as long as the job is not known what the big
    providers need. A module that can't be imported (an optional library) is left to whoever needs it.
    """

    def __init__(self) -> None:
        self._always: deque[Callable[[], object]] = deque(_imports(_ALWAYS))
        self._always.insert(1, _start_samples_light)
        self._workers: deque[Callable[[], object]] = deque([*_imports(_WORKERS), _model_facts])
        self._providers: deque[Callable[[], object]] = deque(_imports(_OF_PROVIDERS.values()))

    @property
    def done(self) -> bool:
        return not (self._always or self._workers or self._providers)

    def step(self) -> None:
        """The next import, if one is left."""
        steps = self._always or self._workers or self._providers
        if steps:
            with _without_docstrings(), contextlib.suppress(ImportError):
                steps.popleft()()

    def know(self, job: str) -> None:
        """Nobody else will ask: of the providers' libraries import those that this job names.

        Args:
            job: Text in which its models are named as Inspect does, `openai/gpt-5`.
        """
        if self._providers:
            self._always.extend(_imports(providers_in(job)))
            self._providers.clear()

    def finish(self, *, worker: bool) -> None:
        """Import what is left for a worker, or for an enumeration."""
        while self._always or (worker and self._workers):
            self.step()


def providers_in(job: str) -> list[str]:
    """Modules with the libraries of the providers that a text names as the first word of a model."""
    return [module for words, module in _OF_PROVIDERS.items() if re.search(rf"(?<![\w/-])(?:{words})/", job)]


def _imports(names: Iterable[str]) -> list[Callable[[], object]]:
    return [partial(importlib.import_module, name) for name in names]


def _start_samples_light() -> None:
    from hawk.bridge.samplestate import install

    install()


def _model_facts() -> None:
    """Parse Inspect's table of them; by libyaml, where there is one, instead of the parser written in Python."""
    import yaml
    from inspect_ai.model import get_model_info
    from inspect_ai.model._model_data import model_data

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with _instead(model_data, "yaml", SimpleNamespace(safe_load=partial(yaml.load, Loader=loader))):
        get_model_info("none/none")


def _without_docstrings() -> contextlib.AbstractContextManager[None]:
    """Pydantic looks for the source of each class to find its fields' docstrings, which only a schema would show."""
    from pydantic._internal import _fields

    return _instead(_fields, "extract_docstrings_from_cls", lambda *args, **kwargs: {})


@contextlib.contextmanager
def _instead(place: object, name: str, value: object) -> Iterator[None]:
    """For a while an attribute is another, if there is one."""
    missing = object()
    before = getattr(place, name, missing)
    if before is not missing:
        setattr(place, name, value)
    try:
        yield
    finally:
        if before is not missing:
            setattr(place, name, before)
