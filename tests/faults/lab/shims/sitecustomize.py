"""Breaks parts of Hawk in processes whose environment asks for it. On the path of nobody but the lab's own systems."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def _short_lived(module: ModuleType) -> None:
    module.mint.__kwdefaults__["lifetime"] = float(os.environ["LAB_TOKEN_LIFETIME"])


def _broken(module: Any) -> None:
    right = module._ask

    async def ask(*args: object) -> object:
        if os.path.exists(os.environ["LAB_BREAK_MIDDLEMAN"]):  # noqa: PTH110  # light: it runs in every process
            raise RuntimeError(os.environ["LAB_SAYS"])
        return await right(*args)

    module._ask = ask


_CHANGES: dict[str, tuple[str, Callable[[ModuleType], None]]] = {
    "hawk.middleman.tokens": ("LAB_TOKEN_LIFETIME", _short_lived),
    "hawk.middleman.forward": ("LAB_BREAK_MIDDLEMAN", _broken),
}


class _Finder(importlib.abc.MetaPathFinder):
    """Changes a module right after it was loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _CHANGES or _CHANGES[name][0] not in os.environ:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        loader, change = spec.loader, _CHANGES[name][1]
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            change(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())
