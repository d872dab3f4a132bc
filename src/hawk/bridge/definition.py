"""What a worker runs: the config as one call of Inspect's `eval_set()`, or the person's own script.

The call is the same in every process of a job; Inspect's capture and selection variables decide whether it
enumerates the tasks or runs a share of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from hawk.bridge.solvers import in_the_name_of, renamed
from hawk.config.check import PASSTHROUGH
from hawk.config.entries import AgentEntry, AgentItem, Entry, ModelArgs, TaskEntry
from hawk.config.eval_set import EvalSetConfig
from hawk.config.experiments import LIMITS, Experiment
from hawk.config.upstreams import URL_VARIABLE

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
CONNECTIONS = 1000
"""As many as the providers' SDKs themselves allow."""

_OF_MODELS = frozenset({"max_retries", "attempt_timeout", "max_connections"})
"""Defaults that a model's own `config` may answer as well."""


def run_definition(
    config: dict[str, Any],
    *,
    job_id: str,
    base_dir: str,
    log_dir: str,
    defaults: dict[str, Any],
    prices: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Build tasks x agents x models and call `eval_set()` once.

    Changes to `base_dir`: the working directory is part of a task's identity.

    Args:
        config: A config as `EvalSetConfig.to_data` gives it.
        job_id: The eval set id.
        base_dir: What files are relative to.
        log_dir: Inspect's log directory.
        defaults: `max_retries`, `attempt_timeout`, `retry_on_error`, where the config says nothing.
        prices: What models cost, for those of which the config says nothing; as `ModelCost` has them.

    Raises:
        ConfigError: Something the config names does not exist or can't be made.
        SystemExit: Code 0 after enumerating.
    """
    parsed = EvalSetConfig.model_validate(config)
    if URL_VARIABLE in os.environ:
        defaults = {**defaults, "max_connections": _connections(parsed)}
    base = Path(base_dir).absolute()
    os.chdir(base)
    if (
        URL_VARIABLE not in os.environ
    ):  # else the supervisor has: some of it must not lead around the middleman
        os.environ.update(parsed.runner.environment)
    everywhere, for_models = _defaults(parsed, defaults)
    ways, roles = _ways(parsed, base, for_models)
    init_model_roles(dict(roles))
    tasks = [task for way in ways for task in _tasks(parsed, base, way)]
    ambient = all(way.model is None for way in ways) and os.environ.get("INSPECT_EVAL_MODEL")
    eval_set(
        tasks,
        log_dir=log_dir,
        eval_set_id=job_id,
        log_dir_allow_dirty=True,
        fail_on_error=False,
        model=NOT_GIVEN if ambient else None,  # each task carries its own
        model_roles=dict(roles) or None,
        **{**everywhere, **_options(parsed, base, job_id, prices or {})},
    )


def _connections(config: EvalSetConfig) -> int | None:
    """Calls in flight a worker may have, where the config does not say: the middleman's queue is fair and can be seen."""
    entries = [*config.models, *(experiment.model for experiment in config.experiments)]
    own = any(item.args and "adaptive_connections" in item.args.config for e in entries for item in e.items)
    return None if own or config.adaptive_connections is not None else CONNECTIONS


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


_Agent = tuple[AgentEntry, AgentItem, bool]


@dataclass(frozen=True)
class _Way:
    """How every task is attempted: once with each of the agents, by one model.

    Attributes:
        model: None: the task's own.
        agents: Agents and solvers, one after the other; None is the task's own.
        experiment: What this way is called, where it has a name.
        limits: Limits of every attempt.
    """

    model: Model | None
    agents: list[_Agent | None]
    experiment: str | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)


def _ways(config: EvalSetConfig, base: Path, defaults: dict[str, Any]) -> tuple[list[_Way], dict[str, Model]]:
    """Every way to attempt a task, for the models of a worker's share; and the models of the roles."""
    named = [*config.models, *(experiment.model for experiment in config.experiments)]
    sources: list[Entry[Any]] = [*config.tasks, *named, *config.model_roles.values()]
    for source in sources:
        _load(source, base)  # any of these files may register the model's provider
    roles = {role: make_model(e, e.items[0], {}) for role, e in config.model_roles.items()}
    if config.experiments:
        ways = [_way(experiment, config, defaults) for experiment in config.experiments]
    else:
        agents = _agents(config)
        models = [make_model(entry, item, defaults) for entry in config.models for item in entry.items]
        ways = [_Way(model, agents) for model in models] or [_Way(None, agents)]
    return _selected(ways), roles


def _way(experiment: Experiment, config: EvalSetConfig, defaults: dict[str, Any]) -> _Way:
    entry = experiment.model
    item = entry.items[0]
    given = item.args or ModelArgs()
    args = given.model_copy(update={"config": {**experiment.config, **given.config}})
    model = make_model(entry, item.model_copy(update={"args": args}), defaults)
    agent = experiment.agent
    named: _Agent | None = None if agent is None else (agent, agent.items[0], True)
    everybody = {name: getattr(config, name) for name in LIMITS if name in config.model_fields_set}
    return _Way(model, [named], experiment.name, {**everybody, **experiment.limits})


def _tasks(config: EvalSetConfig, base: Path, way: _Way) -> Iterator[Task]:
    """Every task with every agent, for one model.

    They are made anew for each model, as Inspect's own command does: a task may ask for the model that it
    is made for (`get_model()`), and what it builds with it must not reach another model's attempts.
    """
    if way.model is not None:
        init_active_model(way.model, GenerateConfig())
    for entry in config.tasks:
        loaded = _load(entry, base)
        for item in task_items(entry, loaded):
            for agent in way.agents:

                def adapt(task: Task, entry: TaskEntry = entry, agent: _Agent | None = agent) -> Task:
                    return _adapted(task, entry, way, agent, base)

                yield make_task(entry, item, loaded, adapt)


def _adapted(task: Task, entry: TaskEntry, way: _Way, agent: _Agent | None, base: Path) -> Task:
    """A task with what the eval set changes in it."""
    if agent is not None:
        solver = _solver(agent, base)
        task_with(task, solver=_limited(solver) if entry.folder is not None else solver)
    if way.experiment is not None:
        metadata = {**(task.metadata or {}), "experiment": way.experiment}
        task_with(task, solver=renamed(task.solver, way.experiment), metadata=metadata)
    if way.limits:
        task_with(task, **way.limits)
    if way.model is not None:
        task_with(task, model=way.model)
    return task


def _limited(solver: Solver) -> Solver:
    """An agent that keeps to the limits that a folder's eval sets itself, as the folder's own agent does."""
    from hawk.evals.task import within_limits

    return in_the_name_of(solver, within_limits(solver))


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


def _selected(ways: list[_Way]) -> list[_Way]:
    """Those whose models a worker's share has. Pruning goes by task alone and would load datasets for all of them."""
    path = os.environ.get(SELECTION_ENV)
    if not path:
        return ways
    identifiers = [task["identifier"] for task in json.loads(Path(path).read_bytes())["tasks"]]
    here = [way for way in ways if any(f"/{way.model}/" in identifier for identifier in identifiers)]
    return here or ways


def _defaults(config: EvalSetConfig, defaults: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hawk's limits where the config says nothing: for the whole call, and for models one by one.

    An option of the call beats a model's own, so where any model has its own, the others get the default
    each for itself.
    """
    entries = [*config.models, *(experiment.model for experiment in config.experiments)]
    own = {key for e in entries for item in e.items if item.args for key in item.args.config}
    own |= {key for experiment in config.experiments for key in experiment.config}
    unsaid = {k: v for k, v in defaults.items() if v is not None and getattr(config, k) is None}
    for_models = {k: v for k, v in unsaid.items() if k in _OF_MODELS & own}
    return {k: v for k, v in unsaid.items() if k not in for_models}, for_models


def _options(
    config: EvalSetConfig, base: Path, job_id: str, prices: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """The config's other fields as arguments of `eval_set()`; only what it says."""
    said = config.model_fields_set
    elsewhere = (
        LIMITS if config.experiments else ()
    )  # each task has its experiment's: one of the call beats them
    options = {name: getattr(config, name) for name in _AS_THEY_ARE if name in said and name not in elsewhere}
    options |= {key: value for key, value in config.passthrough.items() if key in PASSTHROUGH}
    if config.sample_shuffle is True:  # the same order in every process of the job, and in every resume
        options["sample_shuffle"] = int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:4])
    if config.tags:
        options["tags"] = config.tags
    if config.metadata:
        options["metadata"] = config.metadata
    if config.epochs is not None:
        options["epochs"] = Epochs(config.epochs.epochs, config.epochs.reducer)
    elif config.attempts_per_pair is not None:
        options["epochs"] = config.attempts_per_pair
    costs = {**prices, **{name: cost.model_dump() for name, cost in config.model_cost_config.items()}}
    if costs:
        options["model_cost_config"] = {name: ModelCost(**cost) for name, cost in costs.items()}
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
