"""Reading folder evals: a directory for each, with everything that is wrong with any of them said at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hawk.config.check import PROMPT_FILE
from hawk.config.choose import choose
from hawk.config.load import nearest_file
from hawk.config.problems import FieldPath, Problem, config_error
from hawk.config.source import Source
from hawk.config.suggest import nearest
from hawk.errors import ConfigError, UsageError
from hawk.evals.frontmatter import WORD, FrontMatter
from hawk.evals.prompt import front_matter, read_prompt, split
from hawk.evals.script import Script, read_script
from hawk.evals.tree import Tree, read_tree
from hawk.sandbox.config import BubblewrapConfig, Common, load, setup_key

LOCAL, TESTS, SOLUTION = "local", "tests", "solution"
_REMEDY = "docs/folder-evals.md says what an eval is made of; `hawk eval new NAME` makes one."


@dataclass(frozen=True)
class FolderEval:
    """One eval, read and checked.

    Attributes:
        name: Its directory's name: the sample's id.
        path: Its directory, absolute.
        prompt: The task, as the agent is told it.
        front: What its front matter says.
        sandbox: Its sandbox, services included, with absolute local paths.
        local: Files that the agent finds in its workspace.
        tests: Files that only the scorer finds.
        script: The scorer.
        text: `PROMPT.md` as it was written.
    """

    name: str
    path: Path
    prompt: str
    front: FrontMatter
    sandbox: BubblewrapConfig
    local: Tree
    tests: Tree
    script: Script
    text: str

    @cached_property
    def digest(self) -> str:
        """Of everything that may change an outcome. Reads the files that its sandbox is set up from.

        Raises:
            ConfigError: One of them can't be read.
        """
        script = Path(self.script.path).name
        parts: list[str | bytes] = [
            self.text,
            self.local.digest(),
            self.tests.digest(),
            script,
            self.script.content,
        ]
        if isinstance(self.front.sandbox, str):
            parts.append((self.path / self.front.sandbox).read_bytes())
        for config in (self.sandbox, *self.sandbox.services.values()):
            parts.append(setup_key(config, "", "") or "")
        return _digest(parts)

    @property
    def has_solution(self) -> bool:
        return (self.path / SOLUTION).is_dir()

    def solution(self) -> Tree:
        """Files that make it pass, to be laid over `local`.

        Raises:
            ConfigError: They can't be read.
        """
        shown = f"{self.path.name}/{SOLUTION}"
        tree, problems = read_tree(self.path / SOLUTION, shown)
        if problems:
            raise config_error(shown, problems)
        return tree


def is_eval(path: Path) -> bool:
    """Whether a directory is an eval."""
    return (path / PROMPT_FILE).is_file()


def find_evals(folder: Path) -> list[Path]:
    """The evals of a folder, by name; of a directory that is itself one, that one."""
    if is_eval(folder):
        return [folder]
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and _meant(path))
    except OSError:
        return []


def read_folder(folder: Path, shown: str | None = None) -> list[FolderEval]:
    """Read all evals of a folder.

    Args:
        folder: A directory of evals, or one eval.
        shown: How messages call it.

    Raises:
        ConfigError: Anything is wrong with any of them.
    """
    shown = shown or str(folder)
    if not folder.is_dir():
        reason = "is not a directory" if folder.exists() else "does not exist"
        raise ConfigError(f"The folder {shown} {reason}.", remedy=_REMEDY)
    evals, problems = [], []
    for path in find_evals(folder):
        where = shown if path == folder else f"{shown}/{path.name}"
        try:
            evals.append(read_eval(path, where))
        except ConfigError as ex:
            problems += _problems_of(ex, where)
    if problems:
        raise config_error(shown, problems, _REMEDY)
    if not evals:
        raise ConfigError(f"The folder {shown} holds no evals.", remedy=_REMEDY)
    return evals


def read_eval(path: Path, shown: str | None = None) -> FolderEval:
    """Read one eval.

    Args:
        path: Its directory.
        shown: How messages call it.

    Raises:
        ConfigError: Anything is wrong with it.
    """
    shown, path = shown or str(path), path.absolute()
    problems = _check_names(path, shown)
    front, text, prompt, sandbox = FrontMatter(), "", "", BubblewrapConfig()
    try:
        text = read_prompt(path, f"{shown}/{PROMPT_FILE}")
        source, prompt = split(text, f"{shown}/{PROMPT_FILE}")
        front = front_matter(source)
        sandbox = _sandbox(front, path)
        problems += _missing_files(front, source, path)
    except ConfigError as ex:
        problems += _problems_of(ex, shown)
    script, wrong = read_script(path, shown)
    local, wrong_local = read_tree(path / LOCAL, f"{shown}/{LOCAL}")
    tests, wrong_tests = read_tree(path / TESTS, f"{shown}/{TESTS}")
    problems += [*wrong, *wrong_local, *wrong_tests]
    if problems or script is None:
        raise config_error(shown, problems, _REMEDY)
    return FolderEval(path.name, path, prompt, front, sandbox, local, tests, script, text)


def select(evals: Sequence[FolderEval], names: Sequence[str], suites: Sequence[str]) -> list[FolderEval]:
    """The evals that any of the names and any of the suites match; an empty list of either matches all.

    Raises:
        ConfigError: One of them matches nothing.
    """
    try:
        named = set(choose((e.name for e in evals), names, "eval"))
        there = set(choose((e.front.suite for e in evals if e.front.suite), suites, "suite"))
    except UsageError as ex:
        raise ConfigError(ex.message, remedy=ex.remedy) from ex
    chosen = [e for e in evals if e.name in named and (not suites or e.front.suite in there)]
    if not chosen:
        raise ConfigError("None of the evals that are named is in a suite that is named.")
    return chosen


def _meant(path: Path) -> bool:
    """Whether somebody meant a directory to be an eval, complete or not."""
    if not path.is_dir():
        return False
    return is_eval(path) or any((path / name).is_file() for name in ("EVAL.py", "EVAL"))


def _check_names(path: Path, shown: str) -> list[Problem]:
    """What the directory and the entries in it are called."""
    problems = []
    if not _is_word(path.name):
        message = f"{path.name!a} can't be an eval's name: letters, digits, '.', '_' and '-', at most 100"
        problems.append(Problem(message, ascii(shown)[1:-1]))
    there = {entry.name for entry in path.iterdir()}
    for name in (LOCAL, TESTS, SOLUTION):
        near = nearest(name, there) if name not in there else None
        if near is not None and (path / near).is_dir():
            problems.append(Problem("has no meaning in an eval", f"{shown}/{near}", suggestion=f"{name}/"))
    return problems


def _is_word(name: str) -> bool:
    return len(name) <= 100 and re.fullmatch(WORD, name) is not None


def _sandbox(front: FrontMatter, directory: Path) -> BubblewrapConfig:
    """The whole configuration of the sandbox.

    Raises:
        ConfigError: The file that it names is wrong.
    """
    if isinstance(front.sandbox, str):
        return load(front.sandbox, directory)
    config = front.sandbox or BubblewrapConfig()
    if front.services:
        config = config.model_copy(update={"services": front.services})
    return config.resolved(directory)


def _missing_files(front: FrontMatter, source: Source, directory: Path) -> list[Problem]:
    """Files that a sandbox written in the front matter is set up from, and that are not there."""
    named: list[tuple[FieldPath, Common]] = [(("services", name), s) for name, s in front.services.items()]
    if isinstance(front.sandbox, BubblewrapConfig):
        named.append((("sandbox",), front.sandbox))
        named += [(("sandbox", "services", name), s) for name, s in front.sandbox.services.items()]
    problems = []
    for at, config in named:
        paths = [(("setup", "files", place), file.path) for place, file in config.setup.files.items()]
        for field, path in (*paths, (("setup", "script_file"), config.setup.script_file)):
            if path is not None and not (directory / Path(path).expanduser()).exists():
                near = nearest_file(directory / path)
                problems.append(source.problem((*at, *field), f"there is no file {path}", suggestion=near))
    return problems


def _problems_of(ex: ConfigError, shown: str) -> list[Problem]:
    return [Problem(**problem) for problem in ex.fields.get("problems", [])] or [Problem(ex.message, shown)]


def _digest(parts: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()[:32]
