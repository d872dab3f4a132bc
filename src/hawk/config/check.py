"""What a config's types can't say: options of Inspect, things listed twice, files, fields without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hawk.config.entries import Entry, Isolation, TaskEntry
from hawk.config.eval_set import EvalSetConfig
from hawk.config.experiments import Experiment
from hawk.config.problems import FieldPath, Problem, caret, field_path
from hawk.config.scan import outline
from hawk.config.source import Source
from hawk.config.suggest import listing, nearest

PASSTHROUGH = frozenset(
    [
        "batch",
        "best_of",
        "cache",
        "cache_prompt",
        "debug_errors",
        "effort",
        "extra_body",
        "extra_headers",
        "fail_on_refusal",
        "fallback_models",
        "frequency_penalty",
        "internal_tools",
        "log_refusals",
        "logit_bias",
        "logprobs",
        "max_dataset_memory",
        "max_tokens",
        "max_tool_output",
        "modalities",
        "notification",
        "num_choices",
        "parallel_tool_calls",
        "presence_penalty",
        "prompt_logprobs",
        "reasoning_effort",
        "reasoning_history",
        "reasoning_mode",
        "reasoning_summary",
        "reasoning_tokens",
        "response_schema",
        "review",
        "sandbox_cleanup",
        "sandbox_prebuilt",
        "score_display",
        "score_on_error",
        "seed",
        "sentinel",
        "stop_seqs",
        "stream_idle_timeout",
        "system_message",
        "temperature",
        "timeout",
        "top_k",
        "top_logprobs",
        "top_p",
        "verbosity",
    ]
)
"""Options of Inspect's `eval_set()` that go to it as they are."""

RESERVED = {
    "bundle_dir": "`hawk web` shows results",
    "bundle_overwrite": "`hawk web` shows results",
    "ctl_server": "Hawk sets it",
    "display": "`hawk watch` shows progress",
    "embed_viewer": "`hawk web` shows results",
    "log_dir": "logs go into the job's run directory",
    "log_dir_allow_dirty": "logs go into the job's run directory",
    "log_format": "Hawk reads Inspect's own format only",
    "log_shared": "Hawk sets it",
    "model": "write `models`",
    "model_args": "write `models[].items[].args`",
    "model_base_url": "write `models[].items[].args.base_url`",
    "sample_id": "write `tasks[].items[].sample_ids`",
    "scanner": "scans are jobs of their own",
    "scanners": "scans are jobs of their own",
    "scans": "scans are jobs of their own",
    "solver": "write `solvers`",
    "task_args": "write `tasks[].items[].args`",
    "trace": "`hawk transcript` shows messages",
}
"""Options of `eval_set()` that Hawk decides, and what to write instead."""

WITHOUT_EFFECT = {
    "continue_on_fail": "an attempt that errors never ends the others",
    "fail_on_error": "an attempt that errors never ends the others",
    "incomplete_action": "Hawk resumes what was in flight",
    "incomplete_max": "Hawk resumes what was in flight",
    "max_tasks": "all tasks run at once; see `max_samples` and `max_connections`",
    "retry_cleanup": "Hawk deletes no logs",
    "retry_connections": "see `adaptive_connections`",
    "retry_immediate": "failed tasks are retried at once",
    "retry_wait": "failed tasks are retried at once",
}
"""Options of `eval_set()` that mean nothing here, and why."""

_DECORATORS = {
    "tasks": {"task"},
    "agents": {"agent", "solver"},
    "solvers": {"agent", "solver"},
    "models": {"modelapi"},
    "agent": {"agent", "solver"},
    "model": {"modelapi"},
}

PROMPT_FILE = "PROMPT.md"
"""What makes a directory an eval."""


def check_extra(source: Source) -> tuple[list[Problem], list[str]]:
    """Problems and warnings about top-level keys that are not fields of an eval set."""
    problems: list[Problem] = []
    warnings: list[str] = []
    fields = set(EvalSetConfig.model_fields)
    for key, value in source.data.items():
        if key in fields or value is None:
            continue
        near = nearest(str(key), fields | PASSTHROUGH)
        if key in RESERVED:
            message = f"'{key}' can't be set in an eval set; {RESERVED[key]}"
            problems.append(source.problem((key,), message))
        elif key in WITHOUT_EFFECT:
            warnings.append(f"{key} has no effect: {WITHOUT_EFFECT[key]}.")
        elif key in PASSTHROUGH:
            warnings.append(f"{key} is passed on to Inspect unchecked.")
        elif near is not None:
            problems.append(source.problem((key,), f"unknown field '{key}'", suggestion=near))
        else:
            warnings.append(f"{key} is ignored: neither Hawk nor Inspect has such a field.")
    return problems, warnings


def entries(config: EvalSetConfig) -> Iterator[tuple[str, int, Entry[Any]]]:
    """Every entry of the four lists, with the list's name and its place there."""
    for kind in ("tasks", "models", "agents", "solvers"):
        for i, entry in enumerate(getattr(config, kind)):
            yield kind, i, entry


def check_repeated(config: EvalSetConfig, source: Source) -> list[Problem]:
    """The same task, model or agent twice with the same arguments: they could not be told apart."""
    problems: list[Problem] = []
    first: dict[Any, str] = {}
    for kind, i, entry in entries(config):
        for j, item in enumerate(entry.items):
            args = item.args.model_dump_json() if hasattr(item.args, "model_dump_json") else repr(item.args)
            key = (kind, entry.file, entry.qualified(item.name), args)
            path = (kind, i, "items", j)
            if key in first:
                message = f"{item.name!r} is listed twice with the same arguments (also {first[key]})"
                problems.append(source.problem(path, message))
            first.setdefault(key, field_path(path))
    for i, task in enumerate(config.tasks):
        if task.folder is None:
            continue
        at: FieldPath = ("tasks", i)
        if task.folder_name in first:
            message = f"two folders are called {task.folder_name!r} in results: rename one"
            problems.append(source.problem(at, message))
        first.setdefault(task.folder_name, field_path(at))
    return problems


def check_experiments(config: EvalSetConfig, source: Source) -> list[Problem]:
    """What is given both for all and by the experiments, so that nobody could say which counts."""
    if not config.experiments:
        return []
    problems = []
    for name in ("models", "agents", "solvers"):
        if source.data.get(name):
            message = (
                f"experiments name their agents and models themselves: leave out '{name}', or 'experiments'"
            )
            problems.append(source.problem((name,), message))
    for experiment in config.experiments:
        for option in sorted(_options_of(experiment) & set(source.data)):
            message = f"is given here for all and by the experiment {experiment.name!r}: give it once"
            problems.append(source.problem((option,), message))
    return problems


def _options_of(experiment: Experiment) -> set[str]:
    """Generation options of an experiment's model."""
    args = experiment.model.items[0].args
    return {*experiment.config, *(args.config if args is not None else ())}


def check_files(
    config: EvalSetConfig, source: Source, base_dir: Path | None, experiments: Mapping[str, Source]
) -> list[Problem]:
    """Files that are missing, are not Python, or do not define what the config takes from them.

    Args:
        experiments: Files that experiments came from, by their names.
    """
    problems: list[Problem] = []
    for kind, i, entry in entries(config):
        if isinstance(entry, TaskEntry) and entry.folder is not None:
            problems += _check_folder(entry, source, (kind, i, "folder"), base_dir)
        else:
            problems += _check_file(kind, (kind, i), entry, source, base_dir)
            problems += _check_slash(entry, source, (kind, i), base_dir)
    for i, experiment in enumerate(config.experiments):
        own = experiments.get(experiment.name)
        for what, entry in experiment.entries.items():
            at: FieldPath = (what,) if own is not None else ("experiments", i, what)
            problems += _check_file(what, at, entry, own or source, base_dir)
    return problems


def _check_folder(
    entry: TaskEntry, source: Source, at: FieldPath, base_dir: Path | None
) -> Iterator[Problem]:
    written = str(entry.folder)
    if base_dir is None and not Path(written).is_absolute():
        message = f"{written} can't be found: nothing says which directory it is relative to"
        yield source.problem(at, message)
        return
    folder = (base_dir or Path("/")) / written
    if not folder.is_dir():
        beside = [p.name for p in folder.parent.iterdir() if p.is_dir()] if folder.parent.is_dir() else []
        yield source.problem(
            at,
            f"there is no directory {written!r}",
            allowed="a folder of evals, 'path.py', 'path.py@task', 'package/task', or an entry with items",
            suggestion=nearest(folder.name, beside),
        )
    elif not (folder / PROMPT_FILE).is_file() and not any(folder.glob(f"*/{PROMPT_FILE}")):
        yield source.problem(at, f"{written} holds no evals: none of its directories has a {PROMPT_FILE}")


def _check_slash(
    entry: Entry[Any], source: Source, at: FieldPath, base_dir: Path | None
) -> Iterator[Problem]:
    """A folder that was taken for a package and its task."""
    if not isinstance(entry, TaskEntry) or entry.package is None or len(entry.items) != 1 or base_dir is None:
        return
    written = f"{entry.package}/{entry.items[0].name}"
    if any((base_dir / written).glob(f"*/{PROMPT_FILE}")) or (base_dir / written / PROMPT_FILE).is_file():
        message = f"{written} is a directory of evals here, and is taken for a package with a task"
        yield source.problem(at, message, suggestion=f"{written}/")


def check_promises(config: EvalSetConfig, source: Source) -> list[Problem]:
    """What a run would not keep though its author relies on it: such a run must not start."""
    problems: list[Problem] = []
    strict: list[FieldPath] = [("isolation",)] if _is_strict(config.isolation) else []
    for i, entry in enumerate(config.tasks):
        for j, item in enumerate(entry.items):
            if _is_strict(item.isolation):
                strict.append(("tasks", i, "items", j, "isolation"))
    for path in strict:
        message = "strict isolation can't be kept: no sandbox of this version enforces it"
        problems.append(source.problem(path, message, found="'strict'", allowed="'standard'"))
    return problems


def _is_strict(isolation: Isolation | None) -> bool:
    return isolation is not None and isolation.level == "strict"


def _check_file(
    kind: str, path: FieldPath, entry: Entry[Any], source: Source, base_dir: Path | None
) -> Iterator[Problem]:
    """What is wrong with the file of one entry, if it has any.

    Args:
        kind: The field that it is in.
        path: Where it is written in `source`.
    """
    if entry.file is None:
        return
    at = (*path, "file")
    if base_dir is None and not Path(entry.file).is_absolute():
        message = f"{entry.file} can't be found: nothing says which directory it is relative to"
        yield source.problem(at, message)
        return
    file = (base_dir or Path("/")) / entry.file
    try:
        found = outline(file, _DECORATORS[kind])
    except SyntaxError as ex:
        excerpt = caret(ex.text.rstrip(), (ex.offset or 1) - 1) if ex.text else None
        yield Problem(f"not valid Python: {ex.msg}", str(entry.file), ex.lineno, excerpt=excerpt)
        return
    except OSError as ex:
        beside = [p.name for p in file.parent.glob("*.py")] if file.parent.is_dir() else []
        reason = "there is no such file" if isinstance(ex, FileNotFoundError) else str(ex.strerror)
        yield source.problem(at, f"{file}: {reason}", suggestion=nearest(file.name, beside))
        return
    what = " or ".join(f"@{name}" for name in sorted(_DECORATORS[kind]))
    if isinstance(entry, TaskEntry) and not entry.items and not found.defined:
        yield source.problem(at, f"{entry.file} defines no {what}")
    if kind in ("models", "model"):  # it may register a provider in ways that only running it shows
        return
    for j, item in enumerate(entry.items):
        if item.name not in found.defined and item.name not in found.imported:
            yield source.problem(
                (*path, "items", j, "name"),
                f"{entry.file} defines no {what} named {item.name!r}",
                allowed=listing(found.defined),
                suggestion=nearest(item.name, found.defined),
            )


def notes(config: EvalSetConfig) -> list[str]:
    """One line for each field that does nothing here, or less than its author may think."""
    said: list[str] = []
    if config.isolation is not None or any(item.isolation for entry in config.tasks for item in entry.items):
        said.append(
            "isolation has no effect on this machine: sandboxes are as open as their provider leaves them."
        )
    if config.engine == "kubernetes" and config.sandbox is not None and config.sandbox.type == "docker":
        said.append("there is no Docker in a pod: write `sandbox: pod`.")
    if config.sandbox is not None and config.sandbox.type == "local":
        said.append(
            "sandbox local is no isolation: commands that a model writes run as you, with your files and your "
            "network. For a model that you don't trust, write `sandbox: bubblewrap`."
        )
    for name in ("checkpoint", "scan", "human_eval"):
        value = getattr(config, name)
        if value and getattr(value, "enabled", True):
            said.append(f"{name} has no effect here.")
    for name in ("monitor", "acp_server", "approval_timeout_minutes"):
        if getattr(config, name):
            said.append(f"{name} has no effect here.")
    cluster = config.runner.model_fields_set - {"secrets", "environment"}
    if config.runner.workers == "processes":
        cluster.discard("workers")
    if cluster and config.engine == "local":
        said.append(f"runner: {', '.join(sorted(cluster))} only act on a cluster.")
    if config.cost_limit is not None and not config.model_cost_config:
        said.append("cost_limit needs prices: without model_cost_config every call costs nothing.")
    if any(secret.type != "env" for secret in config.required_secrets):
        said.append("secrets of other types than env are taken from your environment or --secrets-file too.")
    return said
