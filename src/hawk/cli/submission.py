"""From a file and options to the body of a submit: checked here, so that mistakes are found before anything runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hawk.cli.selection import Selection
from hawk.cli.selection import apply as choose_what_runs
from hawk.cli.text import clean, plural
from hawk.config.entries import TaskEntry
from hawk.config.eval_set import EvalSetConfig
from hawk.config.ids import MAX_LENGTH, check_id, new_id
from hawk.config.load import LoadedEvalSet, load_eval_set
from hawk.config.providers import hidden_variables
from hawk.config.secrets import gather_secrets
from hawk.config.upstreams import FALLBACK, providers_of
from hawk.errors import UsageError
from hawk.evals.folder import read_folder, select

SHOWN = 12  # names in one line of a description


@dataclass(frozen=True)
class Submission:
    """What will be submitted.

    Attributes:
        loaded: The config or script.
        config: The config as data, options applied; None for a script.
        eval_set_id: The id where the command line says one.
        secrets: Values by name.
        access: Keys and addresses of model providers that this shell has, by variable: for the middleman, and only the
            one of this machine.
        chosen: Warnings about what was chosen of the config.
        engine: Where it runs, whatever the config says.
    """

    loaded: LoadedEvalSet
    config: dict[str, Any] | None
    eval_set_id: str | None
    secrets: dict[str, str]
    access: dict[str, str] = field(default_factory=dict)
    chosen: list[str] = field(default_factory=list)
    engine: str | None = None

    @property
    def warnings(self) -> list[str]:
        return [*self.loaded.warnings, *self.chosen]

    def body(self) -> dict[str, Any]:
        """The body of `POST /eval_sets/`."""
        return {
            "eval_set_config": self.config,
            "eval_set_id": self.eval_set_id,
            "secrets": self.secrets,
            "access": self.access,
            "source": self.loaded.source,
            "base_dir": str(self.loaded.base_dir),
            "script": None if self.loaded.script is None else str(self.loaded.script),
            "engine": self.engine,
        }

    def describe(self) -> str:
        """What would run, for `--dry-run`. Samples are counted only when tasks are loaded, in the job."""
        if self.loaded.config is None:
            lines = [f"Would run the script {self.loaded.script}."]
        else:
            config = EvalSetConfig.model_validate(self.config)
            base = self.loaded.base_dir or Path()
            lines = ["The eval set is valid. Would run:", *_grid(config, base), *_bounds(config)]
        where = self.engine or (self.config or {}).get("engine") or "local"
        if where != "local":
            lines.append(f"  engine    {where}")
        lines.append(f"  id        {self.eval_set_id or self._config_id() or 'made at submit'}")
        if self.secrets:
            lines.append(f"  secrets   {', '.join(sorted(self.secrets))} (given)")
        return "\n".join(clean(line, lines=True) for line in lines)

    def _config_id(self) -> str | None:
        return None if self.config is None else self.config.get("eval_set_id")


def prepare(
    path: Path,
    *,
    name: str | None,
    runs: int | None,
    secrets: Sequence[str],
    secrets_files: Sequence[Path],
    parallel: bool = False,
    selection: Selection | None = None,
    engine: str | None = None,
) -> Submission:
    """Load a file and apply the options.

    Args:
        parallel: Run all attempts of a pair at once, whatever the config says.
        selection: Which of its evals and experiments run; all when left out.
        engine: Where it runs, whatever the config says.

    Raises:
        ConfigError: The file is wrong.
        UsageError: An option is, or a secret is missing.
    """
    loaded = load_eval_set(path, environ=os.environ, secret_names=secrets)
    eval_set_id = _id_from(name)
    selection, chosen = selection or Selection(), list[str]()
    if loaded.config is None:
        if selection.first is not None:
            raise UsageError(
                f"{selection.first} applies to a config; a script chooses itself.",
                remedy="Leave the option out.",
            )
        if runs is not None or parallel:
            raise UsageError(
                f"{'--runs' if runs is not None else '--parallel-attempts'} applies to a config; a script says epochs itself.",
                remedy="Set epochs in the script.",
            )
        config, needed = None, []
    else:
        config, chosen = choose_what_runs(
            loaded.config, loaded.config.to_data(), loaded.base_dir or Path(), selection
        )
        needed = [secret.name for secret in EvalSetConfig.model_validate(config).required_secrets]
    if config is not None and runs is not None:
        config = _with_runs(config, runs)
    if config is not None and (parallel or _parallel_by_default(config)):
        config = {**config, "attempts": {**(config.get("attempts") or {}), "policy": "parallel"}}
    given = gather_secrets(needed, names=secrets, files=secrets_files, environ=os.environ)
    return Submission(loaded, config, eval_set_id, given, access_of(config), chosen, engine)


def access_of(config: dict[str, Any] | None) -> dict[str, str]:
    """Variables of this shell that the middleman of this machine can use: keys and addresses of providers.

    A server that others run has keys of its own, and is not sent a person's.
    """
    if os.environ.get("HAWK_API_URL"):
        return {}
    if config is not None and (config.get("middleman") or {}).get("off"):
        return {}
    names = {*hidden_variables(providers_of(config or {}, os.environ).values()), FALLBACK}
    return {name: value for name in sorted(names) if (value := os.environ.get(name))}


def _id_from(name: str | None) -> str | None:
    """`--name` as an id if it is one, else a fresh id that begins with it."""
    if name is None:
        return None
    try:
        return check_id(name)
    except UsageError:
        if len(name) > MAX_LENGTH or not any(c.isalnum() for c in name):
            raise
        return new_id(name)


def _with_runs(config: dict[str, Any], runs: int) -> dict[str, Any]:
    """The number of attempts where the config says it: beside its reducer, if it has one."""
    epochs = config.get("epochs")
    if isinstance(epochs, dict):
        return {
            **config,
            "epochs": {**epochs, "epochs": runs},
            **({"runs": runs} if "runs" in config else {}),
        }
    return {**{k: v for k, v in config.items() if k != "epochs"}, "runs": runs}


def _parallel_by_default(config: dict[str, Any]) -> bool:
    """Whether the environment asks for attempts at once, where the config does not say."""
    wanted = os.environ.get("HAWK_PARALLEL_ATTEMPTS", "").strip().lower() in ("1", "true", "yes", "on")
    return wanted and (config.get("attempts") or {}).get("policy") is None


def _grid(config: EvalSetConfig, base: Path) -> list[str]:
    tasks = [name for entry in config.tasks for name in _task_names(entry, base)]
    models = [entry.qualified(item.name) for entry in config.models for item in entry.items]
    agents = [
        entry.qualified(item.name) for entry in (*config.agents, *config.solvers) for item in entry.items
    ]
    experiments = [
        f"{experiment.name} ({experiment.model.qualified(experiment.model.items[0].name)})"
        for experiment in config.experiments
    ]
    count = len(tasks) * (len(experiments) or max(1, len(models)) * max(1, len(agents)))
    attempts = config.attempts_per_pair
    runs = plural(attempts, "attempt") if attempts else "each task's own number of attempts"
    ways = (
        [f"  experiments {_names(experiments)}"]
        if experiments
        else [
            f"  models    {_names(models) or 'each task’s own'}",
            f"  agents    {_names(agents) or 'each task’s own'}",
        ]
    )
    return [
        f"  tasks     {_names(tasks)}",
        *ways,
        f"  grid      {plural(count, 'combination')}, {runs} of each sample",
    ]


def _task_names(entry: TaskEntry, base: Path) -> list[str]:
    if entry.folder is None:
        return [entry.qualified(item.name) for item in entry.items] or [str(entry.file)]
    evals = select(read_folder(base / entry.folder, entry.folder), entry.evals, entry.suites)
    return [f"{entry.folder_name} ({plural(len(evals), 'eval')}: {_names([eval.name for eval in evals])})"]


def _bounds(config: EvalSetConfig) -> list[str]:
    names = (
        "limit",
        "message_limit",
        "token_limit",
        "turn_limit",
        "time_limit",
        "working_limit",
        "cost_limit",
    )
    said = [f"{name} {value}" for name in names if (value := getattr(config, name)) is not None]
    needs = [f"  packages  {_names(config.requirements)}"] if config.requirements else []
    return needs + ([f"  limits    {', '.join(said)}"] if said else [])


def _names(names: list[str]) -> str:
    more = f", … {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
