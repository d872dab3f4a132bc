"""What a worker runs: the config as one call of Inspect's `eval_set()`, or the person's own script.

The call is the same in every process of a job; Inspect's capture and selection variables decide whether it
enumerates the tasks or runs a share of them.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, Task, eval_set, task_with
from inspect_ai._util.notgiven import NOT_GIVEN
from inspect_ai.approval._policy import ApprovalPolicyConfig, ApproverPolicyConfig
from inspect_ai.model import GenerateConfig, Model
from inspect_ai.model._model import init_active_model, init_model_roles
from inspect_ai.model._model_data.model_data import ModelCost
from inspect_ai.solver import Solver
from inspect_ai.util import AdaptiveConcurrency, SandboxEnvironmentSpec

from hawk.bridge.items import Loaded, explained, load_file, make_model, make_solver, make_task, task_items
from hawk.bridge.selection import SELECTION_ENV
from hawk.config.check import PASSTHROUGH
from hawk.config.entries import AgentEntry, AgentItem, Entry
from hawk.config.eval_set import EvalSetConfig

_AS_THEY_ARE = [
    "limit",
    "sample_shuffle",
    "message_limit",
    "token_limit",
    "turn_limit",
    "time_limit",
    "working_limit",
    "cost_limit",
    "score",
    "retry_attempts",
    "retry_on_error",
    "max_retries",
    "attempt_timeout",
    "max_connections",
    "max_samples",
    "max_sandboxes",
    "max_subprocesses",
    "log_realtime",
    "log_model_api",
    "log_images",
    "log_samples",
    "log_level",
    "log_level_transcript",
    "log_buffer",
]
_OF_MODELS = frozenset({"max_retries", "attempt_timeout"})
"""Defaults that a model's own `config` may answer as well."""


def run_definition(
    config: dict[str, Any], *, job_id: str, base_dir: str, log_dir: str, defaults: dict[str, Any]
) -> None:
    """Build tasks x agents x models and call `eval_set()` once.

    Changes to `base_dir`: the working directory is part of a task's identity.

    Args:
        config: A config as `EvalSetConfig.to_data` gives it.
        job_id: The eval set id.
        base_dir: What files are relative to.
        log_dir: Inspect's log directory.
        defaults: `max_retries`, `attempt_timeout`, `retry_on_error`, where the config says nothing.

    Raises:
        ConfigError: Something the config names does not exist or can't be made.
        SystemExit: Code 0 after enumerating.
    """
    parsed = EvalSetConfig.model_validate(config)
    base = Path(base_dir).absolute()
    os.chdir(base)
    os.environ.update(parsed.runner.environment)
    everywhere, for_models = _defaults(parsed, defaults)
    models, roles = _models(parsed, base, for_models)
    init_model_roles(dict(roles))
    each_model: list[Model | None] = [*models] or [None]
    tasks = [task for model in each_model for task in _tasks(parsed, base, model)]
    ambient = not models and os.environ.get("INSPECT_EVAL_MODEL")
    eval_set(
        tasks,
        log_dir=log_dir,
        eval_set_id=job_id,
        log_dir_allow_dirty=True,
        fail_on_error=False,
        model=NOT_GIVEN if ambient else None,  # each task carries its own
        model_roles=dict(roles) or None,
        **{**everywhere, **_options(parsed, base)},
    )


def run_script(path: Path, argv: Sequence[str]) -> None:
    """Run a Python file that calls `eval_set()` as its own interpreter would.

    Args:
        path: The file.
        argv: Its arguments.

    Raises:
        SystemExit: Code 0 after enumerating, or whatever the script says.
    """
    sys.argv = [str(path), *argv]
    sys.path[0] = str(path.parent)
    runpy.run_path(str(path), run_name="__main__")


def _tasks(config: EvalSetConfig, base: Path, model: Model | None) -> Iterator[Task]:
    """Every task with every agent, for one model.

    They are made anew for each model, as Inspect's own command does: a task may ask for the model that it
    is made for (`get_model()`), and what it builds with it must not reach another model's attempts.
    """
    if model is not None:
        init_active_model(model, GenerateConfig())
    for entry in config.tasks:
        loaded = _load(entry, base)
        for item in task_items(entry, loaded):
            for agent in _agents(config):

                def adapt(task: Task, agent: _Agent | None = agent) -> Task:
                    if agent is not None:
                        task_with(task, solver=_solver(agent, base))
                    if model is not None:
                        task_with(task, model=model)
                    return task

                yield make_task(entry, item, loaded, adapt)


_Agent = tuple[AgentEntry, AgentItem, bool]


def _agents(config: EvalSetConfig) -> list[_Agent | None]:
    """Agents and solvers to run every task with; None is the task's own."""
    named: list[_Agent | None] = [
        (entry, item, agents_first)
        for entries, agents_first in ((config.agents, True), (config.solvers, False))
        for entry in entries
        for item in entry.items
    ]
    return named or [None]


def _solver(agent: _Agent, base: Path) -> Solver:
    entry, item, agents_first = agent
    return make_solver(entry, item, _load(entry, base), agents_first=agents_first)


def _load(entry: Entry[Any], base: Path) -> Loaded | None:
    return load_file(Path(os.path.normpath(base / entry.file))) if entry.file is not None else None


def _models(
    config: EvalSetConfig, base: Path, defaults: dict[str, Any]
) -> tuple[list[Model], dict[str, Model]]:
    sources: list[Entry[Any]] = [*config.tasks, *config.models, *config.model_roles.values()]
    for source in sources:
        _load(source, base)  # any of these files may register the model's provider
    roles = {role: make_model(e, e.items[0], {}) for role, e in config.model_roles.items()}
    models = [make_model(entry, item, defaults) for entry in config.models for item in entry.items]
    return _selected(models), roles


def _selected(models: list[Model]) -> list[Model]:
    """The models of a worker's share. Pruning goes by task alone and would load datasets for the others too."""
    path = os.environ.get(SELECTION_ENV)
    if not path:
        return models
    identifiers = [task["identifier"] for task in json.loads(Path(path).read_bytes())["tasks"]]
    return [m for m in models if any(f"/{m}/" in identifier for identifier in identifiers)] or models


def _defaults(config: EvalSetConfig, defaults: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hawk's limits where the config says nothing: for the whole call, and for models one by one.

    An option of the call beats a model's own, so where any model has its own, the others get the default
    each for itself.
    """
    own = {key for e in config.models for item in e.items if item.args for key in item.args.config}
    unsaid = {k: v for k, v in defaults.items() if v is not None and getattr(config, k) is None}
    for_models = {k: v for k, v in unsaid.items() if k in _OF_MODELS & own}
    return {k: v for k, v in unsaid.items() if k not in for_models}, for_models


def _options(config: EvalSetConfig, base: Path) -> dict[str, Any]:
    """The config's other fields as arguments of `eval_set()`; only what it says."""
    said = config.model_fields_set
    options = {name: getattr(config, name) for name in _AS_THEY_ARE if name in said}
    options |= {key: value for key, value in config.passthrough.items() if key in PASSTHROUGH}
    if config.tags:
        options["tags"] = config.tags
    if config.metadata:
        options["metadata"] = config.metadata
    if config.epochs is not None:
        options["epochs"] = Epochs(config.epochs.epochs, config.epochs.reducer)
    elif config.runs is not None:
        options["epochs"] = config.runs
    if config.model_cost_config:
        costs = config.model_cost_config.items()
        options["model_cost_config"] = {name: ModelCost(**cost.model_dump()) for name, cost in costs}
    if config.adaptive_connections is not None:
        bounds = config.adaptive_connections
        options["adaptive_connections"] = (
            AdaptiveConcurrency.model_validate(bounds) if isinstance(bounds, str | dict) else bounds
        )
    if config.sandbox is not None:
        options["sandbox"] = _sandbox(config.sandbox.type, config.sandbox.config, base)
    if config.approval is not None:
        options["approval"] = _approval(config, base)
    return options


def _sandbox(type_: str, config: Any, base: Path) -> SandboxEnvironmentSpec:
    if isinstance(config, str) and (base / config).exists():
        config = str(base / config)
    with explained(f"The sandbox {type_}"):
        return SandboxEnvironmentSpec.model_validate({"type": type_, "config": config})


def _approval(config: EvalSetConfig, base: Path) -> str | ApprovalPolicyConfig:
    approval = config.approval
    if isinstance(approval, str):
        return str(base / approval) if (base / approval).exists() else approval
    assert approval is not None
    approvers = [
        ApproverPolicyConfig(name=a.name, tools=a.tools, params={**(a.__pydantic_extra__ or {}), **a.args})
        for a in approval.approvers
    ]
    return ApprovalPolicyConfig(approvers=approvers)
