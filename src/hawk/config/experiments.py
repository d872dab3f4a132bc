"""Experiments: named ways to attempt every task, each an agent, a model and settings.

An eval set lists them as files (`experiments/*.yaml`) or writes them out. Files are read where the eval set is, and
become part of its config: what was submitted is what runs, whatever happens to the files later.
"""

# ruff: noqa: RUF012 - pydantic copies mutable defaults

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, JsonValue, ValidationError, model_validator

from hawk.config.entries import Actor, Entry, Role, Strict
from hawk.config.explain import explain
from hawk.config.options import Count
from hawk.config.problems import Problem
from hawk.config.source import Source, parse_yaml
from hawk.config.suggest import nearest
from hawk.errors import ConfigError

LIMITS = ("message_limit", "token_limit", "turn_limit", "time_limit", "working_limit", "cost_limit")
"""Fields that end an attempt, here and in an eval set."""

_WHAT = "An experiment"


class Experiment(Strict):
    """One way to attempt every task."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    """What reports call it, in the agent's place; in a file of its own, the file's name when left out."""

    description: str | None = None
    """What it is for."""

    agent: Actor | None = None
    """The agent or solver; each task's own when left out."""

    model: Role
    """The model."""

    config: dict[str, JsonValue] = {}
    """Generation options of the model (temperature, max_tokens, …)."""

    message_limit: Count | None = None
    """Messages an attempt may have, instead of the eval set's number."""

    token_limit: Count | str | None = None
    """Tokens an attempt may use: a number, or Inspect's longer forms (`500k`, `output:1m`)."""

    turn_limit: Count | None = None
    """Model calls an attempt may make."""

    time_limit: Count | None = None
    """Seconds an attempt may take."""

    working_limit: Count | None = None
    """Seconds an attempt may take, waiting for others not counted."""

    cost_limit: Annotated[float, Field(gt=0)] | None = None
    """Dollars an attempt may cost; needs `model_cost_config`."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Experiment:
        for what, entry in self.entries.items():
            if len(entry.items) != 1:
                raise ValueError(f"'{what}' names {len(entry.items)} items; an experiment has one")
        return self

    @property
    def entries(self) -> dict[str, Entry[Any]]:
        """What it takes from elsewhere, by field."""
        both: dict[str, Entry[Any] | None] = {"agent": self.agent, "model": self.model}
        return {what: entry for what, entry in both.items() if entry is not None}

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that it sets."""
        return {name: value for name in LIMITS if (value := getattr(self, name)) is not None}


def _not_text(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError(f"{value!r} names a file: such a config has to be read with its directory")
    return value


Experiments = list[Annotated[Experiment, BeforeValidator(_not_text, json_schema_input_type=str | Experiment)]]


@dataclass
class Found:
    """What became of an eval set's `experiments`.

    Attributes:
        data: The list with every file in the place of its name; None where nothing is to be changed.
        sources: The file that each came from, and the field paths in it begin at its top; by name.
        problems, warnings: What is wrong, and what is worth a second look.
    """

    data: list[Any] | None = None
    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_experiments(
    source: Source,
    base_dir: Path | None,
    environ: Mapping[str, str] | None = None,
    secrets: Collection[str] = (),
) -> Found:
    """Read the experiment files that an eval set names.

    Args:
        source: The eval set.
        base_dir: Its directory; patterns are relative to it.
        environ: Where `${VAR}` comes from.
        secrets: Names whose values must not get into a config.
    """
    given, found = source.data.get("experiments"), Found()
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list):
        return found
    found.data = []
    for i, entry in enumerate(given):
        if not isinstance(entry, str):
            found.data.append(entry)
            continue
        try:
            paths = _matching(entry, base_dir)
        except ValueError as ex:
            found.problems.append(source.problem(("experiments", i), str(ex)))
            continue
        for path in paths:
            _read(path, base_dir or Path("/"), environ, secrets, found)
    _check_names(source, found)
    return found


def _matching(pattern: str, base_dir: Path | None) -> list[Path]:
    """Files of a pattern, in order of their names.

    Raises:
        ValueError: There are none.
    """
    if base_dir is None and not Path(pattern).is_absolute():
        raise ValueError(f"{pattern} can't be found: nothing says which directory it is relative to")
    base = Path("/") if base_dir is None or Path(pattern).is_absolute() else base_dir
    if (base / pattern).is_dir():
        pattern = f"{pattern}/*.yaml"
    files = sorted(path for path in base.glob(pattern.lstrip("/")) if path.is_file())
    if not files:
        written = base / pattern
        beside = [p.name for p in written.parent.iterdir()] if written.parent.is_dir() else []
        near = nearest(written.name, beside)
        hint = f"; did you mean {written.with_name(near).name!r}?" if near else ""
        raise ValueError(f"no file matches {pattern!r} in {base}{hint}")
    return files


def _read(
    path: Path, base: Path, environ: Mapping[str, str] | None, secrets: Collection[str], found: Found
) -> None:
    shown = os.path.relpath(path, base)
    try:
        text = path.read_text("utf-8")
        source = parse_yaml(text, shown, environ, secrets, what=_WHAT)
        data = {"name": path.stem, **source.data}
        experiment = Experiment.model_validate(data)
    except (UnicodeDecodeError, OSError) as ex:
        reason = ex.strerror if isinstance(ex, OSError) else "this is not a text file in UTF-8"
        found.problems.append(Problem(str(reason), shown))
    except ValidationError as ex:
        found.problems += explain(ex, Source(shown, data, source.lines), Experiment)
    except ConfigError as ex:
        found.problems += [Problem(**problem) for problem in ex.fields.get("problems", [])]
    else:
        moved = _moved(experiment, path.parent, base)
        assert found.data is not None
        found.data.append(moved.model_dump(mode="json", exclude_unset=True))
        found.sources[experiment.name] = source
        found.warnings += source.warnings


def _moved(experiment: Experiment, folder: Path, base: Path) -> Experiment:
    """The same with files relative to the eval set's directory, not to the experiment's own."""
    changes = {
        what: entry.model_copy(update={"file": os.path.relpath(folder / entry.file, base)})
        for what, entry in experiment.entries.items()
        if entry.file is not None and not Path(entry.file).is_absolute()
    }
    return experiment.model_copy(update=changes)


def _check_names(source: Source, found: Found) -> None:
    first: set[str] = set()
    for entry in found.data or []:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue  # a problem of another kind
        if name in first:
            message = f"two experiments are called {name!r}"
            found.problems.append(source.problem(("experiments",), message))
        first.add(name)
