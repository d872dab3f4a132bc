"""Which evals and experiments of an eval set run, and what is found wrong before anything does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hawk.cli.selection import Selection
from hawk.cli.submission import Submission, prepare
from hawk.errors import ConfigError, HawkError, UsageError
from tests.commandline import EXAMPLES
from tests.evals.making import make, python

SET = """\
tasks: [evals, {folder: more, suites: [core]}, problems.py@easy]
experiments: [experiments/*.yaml]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, suite in {"a-1": "core", "a-2": "slow", "b": "core"}.items():
        make(tmp_path / "evals", name, f"suite: {suite}")
    make(tmp_path / "more", "c", "suite: core")
    make(tmp_path / "more", "d", "suite: slow")
    (tmp_path / "problems.py").write_text("from inspect_ai import task\n@task\ndef easy(): ...\n")
    (tmp_path / "experiments").mkdir()
    for name in ("careful", "hasty"):
        (tmp_path / "experiments" / f"{name}.yaml").write_text("model: openai/x\n")
    (tmp_path / "set.yaml").write_text(SET)
    return tmp_path


def submission(folder: Path, **chosen: list[str]) -> Submission:
    selection = Selection(**chosen)
    return prepare(
        folder / "set.yaml", name=None, runs=None, secrets=(), secrets_files=(), selection=selection
    )


def tasks(folder: Path, **chosen: list[str]) -> Any:
    config = submission(folder, **chosen).config
    assert config is not None
    return [(task.get("folder"), task.get("evals")) for task in config["tasks"]]


def test_without_a_choice_everything_runs(folder: Path) -> None:
    assert tasks(folder) == [("evals", None), ("more", None), (None, None)]
    assert submission(folder).warnings == []


def test_evals_are_chosen_by_name_by_pattern_and_by_suite(folder: Path) -> None:
    assert tasks(folder, evals=["a-1,b", "c"]) == [("evals", ["a-1", "b"]), ("more", ["c"])]
    assert tasks(folder, evals=["a-*"]) == [("evals", ["a-1", "a-2"])]
    assert tasks(folder, suites=["core"]) == [("evals", ["a-1", "b"]), ("more", ["c"])]
    assert tasks(folder, evals=["a-*"], suites=["core"]) == [("evals", ["a-1"])]
    [warning] = submission(folder, evals=["b"]).warnings
    assert "left out" in warning


def test_what_the_eval_set_leaves_out_can_not_be_chosen(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no eval 'd'"):
        tasks(folder, evals=["d"])


def test_experiments_are_chosen_by_name(folder: Path) -> None:
    config = submission(folder, experiments=["care*"]).config
    assert config is not None
    assert [experiment["name"] for experiment in config["experiments"]] == ["careful"]
    assert len(config["tasks"]) == 3


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"evals": ["a-1x"]}, "There is no eval 'a-1x'. Did you mean 'a-1'?"),
        ({"suites": ["cor"]}, "There is no suite 'cor'. Did you mean 'core'?"),
        ({"experiments": ["careful,hasti"]}, "There is no experiment 'hasti'. Did you mean 'hasty'?"),
        ({"evals": ["b"], "suites": ["slow"]}, "None of the evals"),
    ],
)
def test_an_unknown_name_is_an_error_with_what_was_meant(
    folder: Path, chosen: dict[str, list[str]], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        submission(folder, **chosen)
    assert words in caught.value.message


def test_there_must_be_something_to_choose_from(folder: Path) -> None:
    (folder / "set.yaml").write_text("tasks: [problems.py@easy]\nmodels: [openai/x]\n")
    for chosen in ({"evals": ["a"]}, {"suites": ["a"]}, {"experiments": ["a"]}):
        with pytest.raises(UsageError, match=r"has no(ne| folder)"):
            submission(folder, **chosen)
    with pytest.raises(UsageError, match="--suite applies to a config"):
        prepare(
            EXAMPLES / "script.py",
            name=None,
            runs=None,
            secrets=(),
            secrets_files=(),
            selection=Selection(suites=["x"]),
        )


def test_a_mistake_in_any_eval_is_found_at_submit(folder: Path) -> None:
    make(folder / "evals", "b")
    (folder / "evals" / "b" / "PROMPT.md").write_text("---\nsuit: x\n---\nDo it.")
    with pytest.raises(ConfigError, match=r"evals/b/PROMPT.md:2: suit: unknown field"):
        submission(folder)
    (folder / "evals" / "b" / "PROMPT.md").write_text("Do it.")
    (folder / "set.yaml").write_text("tasks: [{folder: evals, suites: [cor]}]\nmodels: [openai/x]\n")
    with pytest.raises(ConfigError, match="Did you mean 'core'"):
        submission(folder)


def test_evals_that_ask_a_judge_need_one(folder: Path) -> None:
    asks = python("return {'passed': (await sandbox.judge('a', 'b')).passed}")
    make(folder / "evals", "judged", "suite: core", **{"EVAL.py": asks})
    with pytest.raises(HawkError) as caught:
        submission(folder)
    assert "judged" in caught.value.message
    assert "model_roles" in (caught.value.remedy or "")
    submission(folder, evals=["b"])
    (folder / "set.yaml").write_text(SET + "model_roles: {grader: openai/judge}\n")
    submission(folder)


def test_only_secrets_of_what_was_chosen_are_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    model = "{package: inspect-ai, items: [{name: openai/x, secrets: [SOME_KEY]}]}"
    (folder / "experiments" / "hasty.yaml").write_text(f"model: {model}\n")
    with pytest.raises(HawkError, match="SOME_KEY"):
        submission(folder)
    submission(folder, experiments=["careful"])


def test_a_dry_run_names_evals_and_experiments(folder: Path) -> None:
    said = submission(folder, evals=["a-*"]).describe()
    assert "evals (2 evals: a-1, a-2)" in said
    assert "careful (openai/x), hasty (openai/x)" in said
    assert "2 combinations" in said
