"""The pages about agents can't go out of date: every tool and argument is there, and every command in them parses."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import click
import pytest
import yaml

from hawk.cli import COMMANDS, cli, main
from hawk.cli.mcp import INSTALL
from hawk.cli.mcp_base import Tool
from hawk.cli.mcp_server import FIXES, offered

ROOT = Path(__file__).parents[2]
SKILL = (ROOT / "docs" / "skill" / "SKILL.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "mcp.md").read_text("utf-8")
EVERY = offered(transcripts=True, fixes=True)

LATER = {"diagnose", "fix"} - set(COMMANDS)
"""Commands that the pages name and that are not there yet."""


@pytest.mark.parametrize("tool", EVERY, ids=lambda tool: tool.name)
def test_every_tool_is_in_the_table_with_its_arguments(tool: Tool) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{tool.name}` |"))
    assert set(re.findall(r"`(\w+)`", row.split("|")[3])) == {*tool.args.model_fields}
    assert tool.name in SKILL
    for name, field in tool.args.model_fields.items():
        assert field.description, name
    if tool in FIXES:
        assert "--allow-fixes" in row


def test_the_pages_name_no_tool_that_is_not_there() -> None:
    named = set(re.findall(r"\bhawk_[a-z_]+\b", SKILL + PAGE))
    assert named == {tool.name for tool in EVERY}


def command_lines(page: str) -> list[str]:
    """Every `hawk …` in blocks and between backticks, without what the shell does around it."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.S)
    found = [line.strip() for block in blocks for line in block.splitlines()]
    found += re.findall(r"`(hawk [^`]+)`", re.sub(r"```.*?```", "", page, flags=re.S))
    parts = [part.strip() for line in found for part in re.split(r"\|\||&&|[|>;]", line.split(" #")[0])]
    return [part for part in parts if part.startswith("hawk ") and part != "hawk …"]


def parse(line: str) -> None:
    """As the command line does, without running it. Raises: click.UsageError."""
    command: click.Command = cli
    context = cli.make_context("hawk", shlex.split(line)[1:])
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None, line
        command, context = found, found.make_context(name, list(rest), parent=context)


@pytest.mark.parametrize("line", sorted({*command_lines(SKILL), *command_lines(PAGE)}))
def test_every_command_line_parses(line: str) -> None:
    if shlex.split(line)[1] in LATER:
        pytest.skip("not built yet")
    parse(line)


def test_a_command_line_that_is_wrong_does_not_parse() -> None:
    for line in ("hawk sandbox ls", "hawk watch ID --nofollow", "hawk timeline A B", "hawk tracee"):
        with pytest.raises(click.UsageError):
            parse(line)
    assert len(command_lines(SKILL)) > 30


def test_the_skill_has_what_agents_look_for() -> None:
    _, head, body = SKILL.split("---\n", 2)
    front = yaml.safe_load(head)
    assert front.keys() == {"name", "description"}
    assert front["name"] == "hawk"
    assert 50 < len(front["description"]) <= 1024
    assert len(body.splitlines()) < 200


@pytest.mark.parametrize("block", re.findall(r"```json\n(.*?)```", SKILL + PAGE, re.S))
def test_configurations_start_the_server(block: str) -> None:
    server = json.loads(block)["mcpServers"]["hawk"]
    parse(shlex.join([server["command"], *server["args"]]))


def test_the_extra_is_named_as_the_distribution_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"pip install '{project['name']}[mcp]'" == INSTALL
    assert any(need.startswith("mcp") for need in project["optional-dependencies"]["mcp"])
    assert INSTALL in PAGE


@pytest.mark.parametrize("installed", [None, "1.9.4"])
def test_without_the_sdk_it_says_how_to_install_it(
    installed: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(SystemExit) as ended:
        main(["mcp"])
    assert ended.value.code == 1
    assert INSTALL in capsys.readouterr().err
