"""Solvers around solvers that are known to Inspect, to logs and to plans as what is inside them, or by another name."""

from __future__ import annotations

from typing import Any

from inspect_ai._util.registry import (
    RegistryInfo,
    has_registry_params,
    is_registry_object,
    registry_info,
    registry_params,
    registry_unqualified_name,
    set_registry_info,
    set_registry_params,
)
from inspect_ai.solver import Generate, Solver, TaskState
from inspect_ai.solver._constants import SOLVER_ALL_PARAMS_ATTR


def in_the_name_of(inner: Solver, outer: Solver) -> Solver:
    """A solver that wraps another, made to pass for it: same name, same arguments.

    Args:
        inner: The one inside.
        outer: The one around it, a plain function.
    """
    if is_registry_object(inner):
        set_registry_info(outer, registry_info(inner))
        set_registry_params(outer, _params(inner))
        setattr(outer, SOLVER_ALL_PARAMS_ATTR, getattr(inner, SOLVER_ALL_PARAMS_ATTR, {}))
    return outer


def renamed(inner: Solver, name: str) -> Solver:
    """The same solver under another name; what it is itself becomes its arguments.

    Args:
        inner: Any solver, a chain of several too.
        name: Part of the task's identity, and what plans and logs call it.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        return await inner(state, generate)

    params = _params(inner)
    if is_registry_object(inner):
        params = {"agent": registry_unqualified_name(registry_info(inner).name), **params}
    set_registry_info(solve, RegistryInfo(type="solver", name=name))
    set_registry_params(solve, params)
    setattr(solve, SOLVER_ALL_PARAMS_ATTR, params)
    return solve


def _params(inner: Solver) -> dict[str, Any]:
    return dict(registry_params(inner)) if has_registry_params(inner) else {}
