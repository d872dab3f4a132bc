"""What the clients of OpenAI and Anthropic remember of a sample, made when one of them first asks.

At the start of each sample Inspect imports both SDKs, whatever the model, to give the sample a fresh memory of
each (`inspect_ai.model._assistant_internal`): seconds of CPU and 65 MB in every process. Here a sample starts
with an empty table, and a client's module, imported then or later, finds its memory there.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_VARIABLES = {
    "inspect_ai.model._openai_responses": "_openai_assistant_internal",
    "inspect_ai.model._providers.anthropic": "_anthropic_assistant_internal",
}
"""Module to its context variable; the class of what it holds is called `_AssistantInternal` in each."""

_MEMORIES: ContextVar[dict[str, Any] | None] = ContextVar("hawk_sample_memories", default=None)
"""Of the sample that runs: variable to what it holds. Bound in the sample's first task, so all of its tasks share it."""


def install() -> None:
    """From now on no sample imports an SDK that nobody uses. Once in a process."""
    run = importlib.import_module("inspect_ai._eval.task.run")
    start = run.init_sample_assistant_internal

    def begin(value: Any = None) -> None:
        if value is not None:  # a checkpoint's: it belongs into the memories that the sample began with
            start(value)
        else:
            _MEMORIES.set({})

    run.init_sample_assistant_internal = begin  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder())
    for name in _VARIABLES:
        if name in sys.modules:
            _bind(sys.modules[name])


class _OfSample:
    """Stands for a module's context variable: `get` and `set` as it has them, by sample."""

    def __init__(self, name: str, outside: ContextVar[Any], make: Callable[[], Any]) -> None:
        self._name = name
        self._outside = outside
        self._make = make

    def get(self) -> Any:
        memories = _MEMORIES.get()
        if memories is None:
            return self._outside.get()
        if self._name not in memories:
            memories.setdefault(self._name, self._make())
        return memories[self._name]

    def set(self, value: Any) -> None:
        _MEMORIES.set({**(_MEMORIES.get() or {}), self._name: value})


def _bind(module: ModuleType) -> None:
    name = _VARIABLES[module.__name__]
    variable = getattr(module, name)
    if not isinstance(variable, _OfSample):
        setattr(module, name, _OfSample(name, variable, module._AssistantInternal))


class _Finder(MetaPathFinder):
    """Finds nothing itself: sees to it that the modules are bound as soon as they have been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _VARIABLES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((s for f in others if (s := f.find_spec(fullname, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_bind(module: ModuleType) -> None:
                execute(module)
                _bind(module)

            spec.loader.exec_module = execute_and_bind  # type: ignore[method-assign]
        return spec
