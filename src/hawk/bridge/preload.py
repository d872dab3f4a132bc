"""What a worker imports on its way to the first model call, so that it can be imported beforehand.

Inspect imports much of it lazily, in every worker and on the way to the first attempt: the control server and
its FastAPI, the ACP schemas, both large provider libraries whatever the model, a table of model facts that
takes half a second to parse. Found by comparing `sys.modules` before and after a run.

Not numpy: its BLAS starts threads, and threads do not survive a fork.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

_MODULES = (
    "inspect_ai._eval.evalset",
    "hawk.bridge.capture",
    "hawk.bridge.definition",
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
    "inspect_ai.model._openai",
    "inspect_ai.model._openai_responses",
    "inspect_ai.model._providers.anthropic",
    "hawk.bridge.sandboxtools",
    "hawk.evals.registry",
    "hawk.runner.evidence",  # with it the sandbox provider: its keeper starts in the worker, at the first sandbox
)


def preload() -> Iterator[None]:
    """Import it all, a module a step, the costliest last. Whoever is in a hurry stops early.

    A module that can't be imported (an optional library) is left to whoever needs it.
    """
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
        yield
    from inspect_ai.model import get_model_info

    get_model_info("none/none")  # parses the table of model facts
    yield
