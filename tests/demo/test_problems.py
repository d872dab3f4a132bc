"""The coding eval is sound: what its files say about each problem is so."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commandline import EXAMPLES

PROBLEMS: dict[str, dict[str, Any]] = yaml.safe_load((EXAMPLES / "coding" / "problems.yaml").read_text())
UNSOLVED = {"semver", "csv_line"}  # by the scripted model


def passes(tmp_path: Path, solution: str, tests: str) -> bool:
    (tmp_path / "solution.py").write_text(solution)
    (tmp_path / "tests.py").write_text(tests)
    done = subprocess.run([sys.executable, "-B", "tests.py"], cwd=tmp_path, capture_output=True, check=False)
    return done.returncode == 0


def test_there_are_a_dozen_problems() -> None:
    assert len(PROBLEMS) == 12


@pytest.mark.parametrize("name", PROBLEMS)
def test_starter_passes_neither_tests(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    assert not passes(tmp_path, problem["starter"], problem["tests"])
    assert not passes(tmp_path, problem["starter"], problem["hidden"])


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name not in UNSOLVED])
def test_last_draft_passes_all_tests(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    assert passes(tmp_path, problem["drafts"][-1], problem["tests"])
    assert passes(tmp_path, problem["drafts"][-1], problem["hidden"])


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "csv_line"])
def test_earlier_drafts_fail_the_tests_that_the_agent_sees(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    assert not any(passes(tmp_path, draft, problem["tests"]) for draft in problem["drafts"][:-1])


def test_semver_passes_its_tests_and_fails_the_hidden_ones(tmp_path: Path) -> None:
    problem = PROBLEMS["semver"]
    assert passes(tmp_path, problem["drafts"][-1], problem["tests"])
    assert not passes(tmp_path, problem["drafts"][-1], problem["hidden"])


def test_no_draft_of_csv_line_passes_the_tests_that_the_agent_sees(tmp_path: Path) -> None:
    problem = PROBLEMS["csv_line"]
    assert not any(passes(tmp_path, draft, problem["tests"]) for draft in problem["drafts"])
