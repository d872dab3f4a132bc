"""Reading an eval set from a file or a request, with every problem said at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hawk.config.check import (
    check_experiments,
    check_extra,
    check_files,
    check_promises,
    check_repeated,
    notes,
)
from hawk.config.eval_set import EvalSetConfig
from hawk.config.experiments import Found, read_experiments
from hawk.config.explain import explain
from hawk.config.paths import check_inside, check_patterns
from hawk.config.problems import Problem, caret, config_error
from hawk.config.scan import outline
from hawk.config.source import Source, parse_yaml
from hawk.config.suggest import nearest


@dataclass(frozen=True)
class LoadedEvalSet:
    """An eval set that passed every check that needs no package.

    Attributes:
        config: The validated config; None for a script.
        source: The text as written: variables not filled in, secrets never.
        base_dir: What relative paths are relative to; None when a request did not say.
        warnings: One line each, for the person who submits.
        script: The Python file that calls `eval_set()`, absolute, instead of a config.
    """

    config: EvalSetConfig | None
    source: str
    base_dir: Path | None
    warnings: list[str] = field(default_factory=list)
    script: Path | None = None


def load_eval_set(
    path: Path, *, environ: Mapping[str, str], secret_names: Collection[str] = ()
) -> LoadedEvalSet:
    """Read an eval-set YAML, or a Python file that calls `eval_set()`.

    Args:
        path: The file.
        environ: Where `${VAR}` comes from.
        secret_names: Secrets given on the command line: like those the file declares, their values are
            refused in the config.

    Raises:
        ConfigError: Anything is wrong with it; says everything that is.
    """
    text = read_text(path)
    base_dir = path.absolute().parent
    if path.suffix == ".py":
        return _load_script(path, text, base_dir)
    source = parse_yaml(text, str(path), environ, secret_names)
    return _validate(source, text, base_dir, read_experiments(source, base_dir, environ, secret_names))


def parse_eval_set(
    data: Any, *, base_dir: Path | None = None, name: str = "eval set", inside: bool = False
) -> LoadedEvalSet:
    """Check a config that arrived as data. Variables are not filled in: that is the submitter's environment.

    Args:
        data: Decoded JSON.
        base_dir: What relative paths are relative to.
        name: How messages call it.
        inside: Nothing that it names may be outside of that directory, and nothing there is looked at.

    Raises:
        ConfigError: Anything is wrong with it.
    """
    if not isinstance(data, dict):
        raise config_error(name, [Problem("An eval set is a mapping of fields to values", name)])
    source = Source(name, dict(data))
    if inside and (problems := check_patterns(source)):
        raise config_error(name, problems)
    return _validate(source, "", base_dir, read_experiments(source, base_dir), inside=inside)


def read_text(path: Path) -> str:
    """The content of a file that a person wrote.

    Raises:
        ConfigError: It is missing, can't be read, or is not text.
    """
    name = str(path)
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as ex:
        raise config_error(name, [Problem("This is not a text file in UTF-8", name)]) from ex
    except OSError as ex:
        reason = "There is no such file" if isinstance(ex, FileNotFoundError) else str(ex.strerror)
        raise config_error(name, [Problem(reason, name, suggestion=nearest_file(path))]) from ex


def nearest_file(path: Path) -> str | None:
    """Name of the file that was most likely meant, beside one that does not exist."""
    try:
        beside = [other.name for other in path.parent.iterdir()]
    except OSError:
        return None
    return None if path.name in beside else nearest(path.name, beside)


def _load_script(path: Path, text: str, base_dir: Path) -> LoadedEvalSet:
    try:
        found = outline(path)
    except SyntaxError as ex:
        lines = text.splitlines()
        shown = (
            caret(lines[ex.lineno - 1], (ex.offset or 1) - 1)
            if ex.lineno and ex.lineno <= len(lines)
            else None
        )
        problem = Problem(f"not valid Python: {ex.msg}", str(path), ex.lineno, excerpt=shown)
        raise config_error(str(path), [problem]) from ex
    warnings = [] if "eval_set" in found.calls else [f"{path} does not seem to call eval_set()."]
    return LoadedEvalSet(None, text, base_dir, warnings, path.absolute())


def _validate(
    source: Source, text: str, base_dir: Path | None, experiments: Found, *, inside: bool = False
) -> LoadedEvalSet:
    problems, warnings = check_extra(source)
    problems += experiments.problems
    if experiments.data is not None:
        source.data["experiments"] = experiments.data
    try:
        config = EvalSetConfig.model_validate(source.data)
    except ValidationError as ex:
        raise config_error(source.name, [*problems, *explain(ex, source, EvalSetConfig)]) from None
    problems += check_repeated(config, source) + check_experiments(config, source)
    outside = check_inside(config, source) if inside else []
    problems += outside or check_files(config, source, base_dir, experiments.sources)
    problems += check_promises(config, source)
    if problems:
        raise config_error(source.name, problems)
    warnings = [*source.warnings, *experiments.warnings, *warnings, *notes(config)]
    return LoadedEvalSet(config, text, base_dir, warnings)
