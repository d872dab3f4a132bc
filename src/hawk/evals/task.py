"""The Inspect task of folder evals: one task, one sample for each eval."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.agent import as_solver, react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import bash, text_editor
from inspect_ai.util import (
    Limit,
    SandboxEnvironmentSpec,
    apply_limits,
    cost_limit,
    message_limit,
    sandbox,
    time_limit,
    token_limit,
    turn_limit,
    working_limit,
)

from hawk.config.choose import split
from hawk.config.entries import TaskEntry
from hawk.evals.folder import FolderEval, select
from hawk.evals.placing import begin, data_uris
from hawk.evals.scorer import evals_of, verdict

PROVIDER = "bubblewrap"
_TOOL_TIMEOUT = 180  # seconds

_LIMITS: dict[str, Callable[[Any], Limit]] = {
    "time_limit": time_limit,
    "working_limit": working_limit,
    "message_limit": message_limit,
    "turn_limit": turn_limit,
    "token_limit": token_limit,
    "cost_limit": cost_limit,
}


# Inspect puts the package's name before it, but not in an editable install whose project is called otherwise.
_INSTALLED = {"site-packages", "dist-packages"} & set(Path(__file__).parts)


@task(name="folder_evals" if _INSTALLED else "hawk/folder_evals")
def folder_evals(
    folder: str, evals: str | list[str] | None = None, suites: str | list[str] | None = None
) -> Task:
    """Evals that are directories: `PROMPT.md`, `local/`, `tests/`, `EVAL.py` or `EVAL`.

    Args:
        folder: The directory that holds them, or one of them.
        evals: Only these, by name; `*` and `?` stand for any text.
        suites: Only those of these suites.
    """
    chosen = select(list(evals_of(folder, again=True).values()), _names(evals), _names(suites))
    return Task(
        dataset=MemoryDataset([_sample(eval) for eval in chosen], name=folder),
        setup=prepare(folder),
        solver=shell_agent(),
        scorer=verdict(folder),
        name=TaskEntry(folder=folder).folder_name,
        metadata={"folder": folder},
    )


def _names(given: str | list[str] | None) -> list[str]:
    return split([given] if isinstance(given, str) else [str(name) for name in given or []])


def _sample(eval: FolderEval) -> Sample:
    metadata: dict[str, Any] = {"digest": eval.digest}
    if eval.front.suite is not None:
        metadata["suite"] = eval.front.suite
    if eval.front.tags:
        metadata["tags"] = eval.front.tags
    if eval.front.limits:
        metadata["limits"] = eval.front.limits
    return Sample(
        id=eval.name,
        input=eval.prompt,
        description=eval.front.description,
        files=data_uris(eval.local) or None,
        sandbox=SandboxEnvironmentSpec(PROVIDER, eval.sandbox),
        metadata=metadata,
    )


@solver
def prepare(folder: str) -> Solver:
    """What an attempt needs before its agent begins: modes and links of its files, and the eval's `start`.

    Args:
        folder: The folder of the evals.
    """
    evals = evals_of(folder)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await begin(evals[str(state.sample_id)], sandbox())
        return state

    return solve


@solver
def shell_agent() -> Solver:
    """The agent of evals that are given no other: Inspect's `react` with a shell and an editor."""
    return within_limits(as_solver(react(tools=[bash(_TOOL_TIMEOUT), text_editor(_TOOL_TIMEOUT)])))


def within_limits(inner: Solver) -> Solver:
    """A solver that ends when a limit of the sample's own is passed; its attempt is scored as it is then."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        given = state.metadata.get("limits") or {}
        with apply_limits([_LIMITS[name](value) for name, value in given.items()]):
            return await inner(state, generate)

    return solve
