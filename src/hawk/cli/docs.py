"""`python -m hawk.cli.docs`: docs/cli.md from the commands' own help, so that the two can't differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from hawk.cli import COMMANDS, cli

_HEAD = """# The `hawk` command

<!-- Made by `python -m hawk.cli.docs`. Change the help texts in src/hawk/cli, not this file. -->

Without `HAWK_API_URL`, a server is started on this machine when a command needs one. Where `[ID]` may be left
out, `watch`, `status`, `logs`, `trace`, `stacktrace`, `bundle` and `delete` take the last job; `stop`, `list`,
`transcripts`, `report` and `eval-set resume` the last eval set.

Exit codes: `0` done as asked; `1` the job failed, or an error; `2` wrong usage or unknown id; `3` `watch
--exit-status`: stuck; `report --exit-status`: `1` a pair failed, `2` one has no result; `130` Ctrl-C, which never stops a job.
"""
COLUMNS = 100


def markdown() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_sections()])


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with its full name, groups before what is in them."""
    context = click.Context(cli, info_name="hawk")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield from _within(f"hawk {name}", command)


def _within(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for sub, child in command.commands.items():
            yield from _within(f"{name} {sub}", child)


def _sections() -> Iterator[str]:
    for path, command in commands():
        yield f"{'#' * len(path.split())} `{path}`\n"
        yield f"```text\n{_help(path, command)}\n```\n"


def _help(path: str, command: click.Command) -> str:
    settings = {
        "terminal_width": COLUMNS,
        "max_content_width": COLUMNS,
        "help_option_names": ["-h", "--help"],
    }
    context = click.Context(command, info_name=path, **settings)  # type: ignore[arg-type]
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/cli.md")
    target.write_text(markdown(), "utf-8")
