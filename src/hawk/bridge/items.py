"""Making what an eval set names: tasks, solvers, agents and models from packages, files and Inspect itself.

Everything goes through Inspect's registry, so that a worker running a selection skips the tasks that are
not its own before their datasets load. What can't be found says what there is instead.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from inspect_ai import Task
from inspect_ai._eval.eval_set_pruning import TASK_PLACEHOLDER_ATTR, TaskPlaceholder, is_placeholder
from inspect_ai._eval.task.constants import TASK_FILE_ATTR, TASK_RUN_DIR_ATTR
from inspect_ai._util.entrypoints import ensure_entry_points
from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.module import load_module
from inspect_ai._util.path import chdir_python
from inspect_ai._util.registry import (
    RegistryType,
    is_registry_object,
    registry_find,
    registry_info,
    registry_unqualified_name,
)
from inspect_ai.agent import as_solver
from inspect_ai.dataset._util import normalise_sample_id
from inspect_ai.model import GenerateConfig, Model, get_model
from inspect_ai.solver import Solver

from hawk.config.entries import AgentItem, Entry, ModelItem, TaskEntry, TaskItem
from hawk.config.scan import outline
from hawk.config.suggest import did_you_mean, listing
from hawk.config.upstreams import URL_VARIABLE, redirected
from hawk.errors import ConfigError, HawkError


@dataclass(frozen=True)
class Loaded:
    """A file of the eval set that has run.

    What it defines is taken from its module and not from Inspect's registry, where two files with a task
    of one name would overwrite each other.
    """

    path: Path
    module: ModuleType


@cache
def load_file(path: Path) -> Loaded:
    """Run a file, once a process, so that what it defines exists.

    Its directory stays importable: solvers may import their neighbours while they run.

    Raises:
        ConfigError: It is missing or fails.
    """
    with explained(f"The file {path}"), chdir_python(str(path.parent)):
        module = load_module(path)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return Loaded(path, module)


def task_items(entry: Entry[TaskItem], loaded: Loaded | None) -> list[TaskItem]:
    """The tasks of an entry: those it lists, all that its file defines, or the one that its folder is."""
    if isinstance(entry, TaskEntry) and entry.folder is not None:
        return [TaskItem(name="folder_evals", args={"folder": entry.folder})]
    if entry.items or loaded is None:
        return entry.items
    return [TaskItem(name=name) for name in outline(loaded.path, {"task"}).defined]


def make_task(
    entry: Entry[TaskItem], item: TaskItem, loaded: Loaded | None, adapt: Callable[[Task], Task]
) -> Task:
    """Construct one task.

    Args:
        entry: Where it comes from.
        item: Which one, and its arguments.
        loaded: The entry's file, if it names one.
        adapt: What the eval set changes in it. Not called for a task that this worker will not run, unless
            Inspect turns out to need it after all.

    Raises:
        ConfigError: It does not exist, takes other arguments, or fails (its dataset does not load, …).
    """
    _, name, factory = _find(entry, item.name, loaded, "task")
    task: Task = _call(f"Task {name}", factory, item.args, loaded)
    if loaded is not None:
        setattr(task, TASK_FILE_ATTR, loaded.path.as_posix())
        setattr(task, TASK_RUN_DIR_ATTR, loaded.path.parent.as_posix())

    def finish(task: Task) -> Task:
        if item.sample_ids is not None:
            _keep_samples(task, item.sample_ids, name)
        if isinstance(entry, TaskEntry) and entry.folder is not None:
            _keep_evals(task, entry, name)
        return adapt(task)

    if not is_placeholder(task):
        return finish(task)
    skipped: TaskPlaceholder = getattr(task, TASK_PLACEHOLDER_ATTR)
    late = TaskPlaceholder(construct=lambda: finish(skipped.materialize()), args=(), kwargs={})
    setattr(task, TASK_PLACEHOLDER_ATTR, late)
    return task


def make_solver(
    entry: Entry[AgentItem], item: AgentItem, loaded: Loaded | None, *, agents_first: bool
) -> Solver:
    """Construct one solver, or an agent as a solver. Each call gives a fresh one: they may hold state.

    Raises:
        ConfigError: It does not exist, takes other arguments, or fails.
    """
    kinds: tuple[RegistryType, ...] = ("agent", "solver") if agents_first else ("solver", "agent")
    kind, name, factory = _find(entry, item.name, loaded, *kinds)
    what = f"{kind.capitalize()} {name}"
    made = _call(what, factory, item.args, loaded)
    with explained(what):
        return as_solver(made) if kind == "agent" else cast(Solver, made)


def make_model(entry: Entry[ModelItem], item: ModelItem, defaults: dict[str, Any]) -> Model:
    """Construct one model.

    Args:
        entry: Where it comes from; a file has been loaded before.
        item: Which one, and its arguments.
        defaults: Generation options to use where the item has none.

    Raises:
        ConfigError: There is no such provider, its package is missing, an option is wrong.
    """
    name = entry.qualified(item.name)
    args = item.args.model_dump(exclude_unset=True) if item.args is not None else {}
    if entry.entry_point is not None:
        ensure_entry_points(entry.entry_point)
    with explained(f"Model {name}"):
        options = {**defaults, **(args.pop("config", None) or {})}
        unknown = next((key for key in options if key not in GenerateConfig.model_fields), None)
        if unknown is not None:
            raise ConfigError(
                f"Model {name}: config has no option {unknown!r}.{did_you_mean(unknown, GenerateConfig.model_fields)}"
            )
        if args.get("base_url") and (middleman := os.environ.get(URL_VARIABLE)):
            args["base_url"] = redirected(middleman, name, args["base_url"]) or args["base_url"]
        try:
            return get_model(name, config=GenerateConfig.model_validate(options), **args)
        except ValueError as ex:
            if why := _no_provider(name):
                raise ConfigError(f"Model {name}: {why}") from ex
            raise


def _no_provider(model: str) -> str | None:
    """What is wrong with the first word of a model's name; None: that there is such a provider."""
    word = model.partition("/")[0]
    known = [registry_info(o).name for o in registry_find(lambda info: info.type == "modelapi")]
    offered = {name.rpartition("/")[2] for name in known}
    if word in offered:
        return None
    of_package = sorted(name.removeprefix(f"{word}/") for name in known if name.startswith(f"{word}/"))
    if of_package:
        return (
            f"{word} is a package, not a model provider. It has: {listing(of_package)}. Say that as `name:`."
        )
    return f"there is no model provider {word!r}.{did_you_mean(word, offered)}"


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn whatever the eval set's own code raises into an error that names what was being made."""
    try:
        yield
    except (HawkError, PrerequisiteError):
        raise
    except Exception as ex:
        traceback.print_exc()  # into the worker's output: the place in the person's code
        where = traceback.extract_tb(ex.__traceback__)[-1]
        reason = f"{type(ex).__name__}: {ex}".rstrip(": ")
        raise ConfigError(f"{what} can't be made: {reason} ({where.filename}:{where.lineno})") from ex


def _find(
    entry: Entry[Any], item: str, loaded: Loaded | None, *kinds: RegistryType
) -> tuple[RegistryType, str, Callable[..., Any]]:
    """Kind, registry name and factory of an item.

    Raises:
        ConfigError: It does not exist; says what does.
    """
    if isinstance(entry, TaskEntry) and entry.folder is not None:
        from hawk.evals.task import folder_evals

        return "task", registry_info(folder_evals).name, folder_evals
    if loaded is not None:
        offered = {
            registry_unqualified_name(o): o for o in vars(loaded.module).values() if _is_one_of(o, kinds)
        }
    else:
        prefix = entry.entry_point
        if prefix is not None:
            _check_entry_point(prefix)
        start = f"{prefix or 'inspect_ai'}/"
        found = registry_find(lambda info: info.type in kinds and info.name.startswith(start))
        offered = {registry_info(o).name.removeprefix(start): o for o in found}
    factory = offered.get(item.removeprefix(f"{entry.entry_point}/"))
    if factory is None:
        raise ConfigError(
            f"{entry.file or entry.package} has no {' or '.join(kinds)} {item!r}."
            f"{did_you_mean(item, offered)} It has: {listing(offered)}."
        )
    info = registry_info(factory)
    return info.type, info.name, cast(Callable[..., Any], factory)


def _is_one_of(o: object, kinds: Collection[RegistryType]) -> bool:
    return callable(o) and any(is_registry_object(o, kind) for kind in kinds)


def _call(what: str, factory: Callable[..., Any], args: dict[str, Any], loaded: Loaded | None) -> Any:
    _check_args(what, factory, args)
    with explained(what), chdir_python(str(loaded.path.parent)) if loaded is not None else nullcontext():
        return factory(**args)


def _check_entry_point(prefix: str) -> None:
    points = entry_points(group="inspect_ai")
    if prefix not in points.names:
        raise ConfigError(
            f"No installed package is called {prefix!r} among Inspect's entry points."
            f"{did_you_mean(prefix, points.names)} Installed: {listing(points.names)}. "
            "Put the package under `packages:` or correct `name:`."
        )
    with explained(f"The package {prefix}"):  # Inspect itself only logs that it does not import
        for point in points.select(name=prefix):
            point.load()


def _check_args(what: str, factory: Callable[..., Any], args: dict[str, Any]) -> None:
    """Inspect drops arguments it does not know with a warning; a run with the wrong task is worse than none."""
    signature = inspect.signature(factory)
    known = [p.name for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    takes_any = len(known) < len(signature.parameters)
    unknown = [name for name in args if name not in known and not takes_any]
    if unknown:
        raise ConfigError(
            f"{what} takes no argument {unknown[0]!r}.{did_you_mean(unknown[0], known)} It takes: {listing(known)}."
        )
    try:
        signature.bind(**args)
    except TypeError as ex:
        raise ConfigError(f"{what}: {ex}; it takes: {listing(known)}.") from ex


def _keep_evals(task: Task, entry: TaskEntry, name: str) -> None:
    """Keep the evals of a folder that its entry chooses.

    Not by arguments of the task: they are part of its identity, and the same job with another choice would find
    nothing of what it has done.
    """
    from hawk.evals.folder import select
    from hawk.evals.scorer import evals_of

    if entry.evals or entry.suites:
        chosen = select(list(evals_of(str(entry.folder)).values()), entry.evals, entry.suites)
        _keep_samples(task, [eval.name for eval in chosen], name)


def _keep_samples(task: Task, sample_ids: Sequence[str | int], name: str) -> None:
    if task.sample_source is not None:
        raise ConfigError(f"Task {name} makes its samples while it runs: sample_ids can't choose among them.")
    for position, sample in enumerate(task.dataset, start=1):
        if sample.id is None:  # Inspect would number them only later, after our choice
            sample.id = position
    have = {normalise_sample_id(sample.id): str(sample.id) for sample in task.dataset}
    wanted = {normalise_sample_id(i): str(i) for i in sample_ids}
    for key, written in wanted.items():
        if key not in have:
            raise ConfigError(
                f"Task {name} has no sample {written!r}.{did_you_mean(written, have.values())} "
                f"It has: {listing(have.values())}."
            )
    task.dataset = task.dataset.filter(lambda sample: normalise_sample_id(sample.id) in wanted)
