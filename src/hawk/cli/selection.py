"""Which evals and experiments of an eval set run: `--eval`, `--experiment`, `--suite`; and whether the evals are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hawk.config.choose import choose, split
from hawk.config.entries import TaskEntry
from hawk.config.eval_set import EvalSetConfig
from hawk.errors import ConfigError, UsageError
from hawk.evals.folder import FolderEval, read_folder, select

JUDGE_ROLE = "grader"


@dataclass(frozen=True)
class Selection:
    """Options as they were given: each may be repeated, and hold several names with commas between them."""

    evals: Sequence[str] = ()
    experiments: Sequence[str] = ()
    suites: Sequence[str] = ()

    @property
    def first(self) -> str | None:
        """The first option that was given, for messages."""
        given = {"--eval": self.evals, "--experiment": self.experiments, "--suite": self.suites}
        return next((option for option, values in given.items() if values), None)


def apply(
    config: EvalSetConfig, data: dict[str, Any], base_dir: Path, selection: Selection
) -> tuple[dict[str, Any], list[str]]:
    """The config with what was chosen alone, and warnings about it.

    Reads the evals of all folders, so that a mistake in one is found before anything runs.

    Args:
        config: The eval set.
        data: The same as plain data.
        base_dir: What its folders are relative to.

    Raises:
        ConfigError: Something is wrong with an eval.
        UsageError: A name that was chosen does not exist.
    """
    if selection.experiments:
        data = {**data, "experiments": _experiments(config, data, split(selection.experiments))}
    folders = {i: _evals(entry, base_dir) for i, entry in enumerate(config.tasks) if entry.folder is not None}
    warnings = []
    if selection.evals or selection.suites:
        if not folders:
            option = "--eval" if selection.evals else "--suite"
            raise UsageError(
                f"{option} chooses among the evals of folders, and this eval set has no folder.",
                remedy="Write `tasks: [{folder: evals}]`, or leave the option out.",
            )
        folders = _chosen(folders, split(selection.evals), split(selection.suites))
        data = {**data, "tasks": [_only(data["tasks"][i], evals) for i, evals in folders.items()]}
        if len(folders) < len(config.tasks):
            warnings.append("Only what was chosen runs; other tasks and folders are left out.")
    _check_judge(config, [eval for evals in folders.values() for eval in evals])
    return data, warnings


def _experiments(config: EvalSetConfig, data: dict[str, Any], patterns: list[str]) -> list[Any]:
    if not config.experiments:
        raise UsageError(
            "--experiment chooses among the experiments of an eval set, and this one has none.",
            remedy="Write `experiments: [experiments/*.yaml]`, or leave the option out.",
        )
    names = [experiment.name for experiment in config.experiments]
    chosen = choose(names, patterns, "experiment")
    return [entry for name, entry in zip(names, data["experiments"], strict=True) if name in chosen]


def _evals(entry: TaskEntry, base_dir: Path) -> list[FolderEval]:
    """The evals of one folder that the eval set itself chooses."""
    return select(read_folder(base_dir / str(entry.folder), str(entry.folder)), entry.evals, entry.suites)


def _chosen(
    folders: dict[int, list[FolderEval]], names: list[str], suites: list[str]
) -> dict[int, list[FolderEval]]:
    """Of each folder what the options choose; folders of which nothing is left are left out."""
    everything = [eval for evals in folders.values() for eval in evals]
    kept = {id(eval) for eval in select(everything, names, suites)}
    chosen = {i: [eval for eval in evals if id(eval) in kept] for i, evals in folders.items()}
    return {i: evals for i, evals in chosen.items() if evals}


def _only(entry: dict[str, Any], evals: list[FolderEval]) -> dict[str, Any]:
    return {"folder": entry["folder"], "evals": [eval.name for eval in evals]}


def _check_judge(config: EvalSetConfig, evals: list[FolderEval]) -> None:
    """Whether there is a judge for those that ask one: without it every attempt ends with an error, paid for."""
    asking = [eval.name for eval in evals if eval.script.asks_judge]
    if asking and JUDGE_ROLE not in config.model_roles:
        raise ConfigError(
            f"{', '.join(asking[:5])}{' …' if len(asking) > 5 else ''}: the scorer asks a judge, and the eval set names "
            "none.",
            remedy=f"Add `model_roles: {{{JUDGE_ROLE}: provider/model}}`: a model that is not under evaluation.",
        )
