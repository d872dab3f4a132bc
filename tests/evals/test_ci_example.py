"""The continuous-integration example is a workflow, and its commands are spelt right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml

from hawk.cli import cli
from tests.commandline import EXAMPLES

FILE = EXAMPLES / "ci" / "evals.yml"
WORKFLOW: dict[Any, Any] = yaml.safe_load(FILE.read_text("utf-8"))


def scripts() -> Iterator[str]:
    for job in WORKFLOW["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                yield step["run"]


def commands() -> Iterator[list[str]]:
    """Every call of `hawk`, in words, without what the shell does around it."""
    for script in scripts():
        for line in script.splitlines():
            for part in re.split(r"\s(?:\||\|\||>>?|<)\s", line.strip()):
                if part.startswith("hawk "):
                    yield shlex.split(re.sub(r"\$\{SUITE:\+(.*?)\}", r"\1", part))[1:]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_its_commands_and_options_exist(words: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        default = getattr(command, "default", None)
        found = command.get_command(click.Context(command), words[0])
        assert found or default, words
        command, words = (found, words[1:]) if found else (command.commands[str(default)], words)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_it_runs_parallel_attempts_and_publishes_the_report() -> None:
    text = "\n".join(scripts())
    for needed in (
        "--parallel-attempts",
        "--wait",
        "--dry-run",
        "GITHUB_STEP_SUMMARY",
        "--junit",
        "hawk eval check",
    ):
        assert needed in text


def test_nothing_from_outside_reaches_a_shell_as_its_text() -> None:
    assert not [script for script in scripts() if "${{" in script]


def test_publishing_happens_after_a_failure_too() -> None:
    steps = {step.get("name", step.get("uses")): step for step in WORKFLOW["jobs"]["run"]["steps"]}
    for name in ("Report", "actions/upload-artifact@v4", "Stop"):
        assert steps[name]["if"] == "always()"
