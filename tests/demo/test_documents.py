"""The prose is true: what it links to is there, and the commands in it are spelt right."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hawk.cli import cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
OUTSIDE = ("http://", "https://", "#")


def commands(document: Path) -> Iterator[list[str]]:
    """Every line of a shell block that calls `hawk`, in words."""
    for block in re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("hawk "):
                words = shlex.split(line.replace("<", "").replace(">", ""), comments=True)[1:]
                yield list(itertools.takewhile(lambda word: word not in ("|", "&&", "&", ";"), words))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    broken = [
        link
        for link in links
        if not link.startswith(OUTSIDE) and not (document.parent / link.partition("#")[0]).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_options_exist(document: Path) -> None:
    for words in commands(document):
        command: click.Command = cli
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            default = getattr(command, "default", None)
            found = command.get_command(click.Context(command), words[0])
            assert found or default, f"no command {words[0]!r} in {words}"
            command = found or command.commands[str(default)]
            words = words[1:] if found else words
        known = {option for param in command.params for option in param.opts + param.secondary_opts}
        assert {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"} <= known, (
            words
        )


def test_shell_blocks_call_hawk_at_all() -> None:
    assert sum(1 for document in DOCUMENTS for _ in commands(document)) > 20
