from pathlib import Path

import click

from hawk.cli import COMMANDS
from hawk.cli.docs import commands, markdown

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == markdown(), "run: python -m hawk.cli.docs"


def test_every_command_and_option_is_documented() -> None:
    for path, command in commands():
        assert f"`{path}`" in markdown()
        assert command.help, path
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, f"{path} {option.name}"


def test_the_table_of_commands_says_what_the_commands_say() -> None:
    found = {path: command.short_help for path, command in commands()}
    for name, (_, short_help) in COMMANDS.items():
        assert found[f"hawk {name}"] == short_help
