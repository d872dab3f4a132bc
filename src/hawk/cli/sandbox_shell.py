"""`hawk sandbox shell`: a terminal in a sandbox, a fresh one or one that lives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hawk.cli.context import complete_sandbox
from hawk.errors import UsageError

if TYPE_CHECKING:
    from hawk.sandbox.door import Door

COMMAND = f"{__name__}.command"
"""Where the words after `--` are kept until the command runs."""

FIND_SHELL = r"""
if command -v bash >/dev/null 2>&1; then PS1='\u@\h:\w\$ ' exec bash; fi
exec sh
"""


class WithCommand(click.Command):
    """What stands after `--` is a command line of its own, and no argument of this one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[COMMAND] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND ...]"]


@click.command(cls=WithCommand, short_help="Open a shell in a sandbox, or run a command there.")
@click.argument("target", metavar="[CONFIG|LABEL]", required=False, shell_complete=complete_sandbox)
@click.option("--user", metavar="NAME", help="Who: user, root, or a name or number of the root file system.")
@click.option(
    "--network",
    type=click.Choice(["none", "host"]),
    help="What a fresh sandbox may reach, instead of CONFIG's.",
)
@click.pass_context
def shell(ctx: click.Context, target: str | None, user: str | None, network: str | None) -> None:
    """Open a shell in a fresh sandbox of CONFIG, which goes with it; or in one that lives, by its LABEL.

    CONFIG is a sandbox.yaml, or an eval set with a bubblewrap sandbox.  [default: a sandbox with the defaults]
    'hawk sandbox list' shows the labels; the part before the dot is enough. Without a terminal, COMMAND is run, or
    the script on standard input. The exit code is the command's.

    \b
    hawk sandbox shell                                 with the defaults
    hawk sandbox shell sandbox.yaml --user root        as its root
    hawk sandbox shell 1f2e3d4c                        in the sandbox of a running attempt
    hawk sandbox shell -- ls -la /                     one command
    """
    from hawk.sandbox.door import door_of
    from hawk.sandbox.names import store_path

    argv = ctx.meta[COMMAND]
    if target is not None and not _is_file(target):
        if network is not None:
            raise UsageError("A sandbox that lives keeps the network it has.", remedy="Leave --network out.")
        with door_of(store_path(), target) as (door, row):
            code = _run(door, row, argv, user)
    else:
        with _fresh(target, network) as label, door_of(store_path(), label) as (door, row):
            code = _run(door, row, argv, user)
    raise click.exceptions.Exit(code)


def _is_file(target: str) -> bool:
    """Whether a file is meant: there is one, or it is written like one."""
    return Path(target).is_file() or "/" in target or target.endswith((".yaml", ".yml"))


@contextlib.contextmanager
def _fresh(target: str | None, network: str | None) -> Iterator[str]:
    from hawk.cli.sandbox_configs import configs_of
    from hawk.sandbox.config import load
    from hawk.sandbox.handheld import own_sandbox

    [config, *more] = configs_of(Path(target)) if target is not None else [load(None)]
    if more:
        raise UsageError(
            f"The tasks of {target} have {len(more) + 1} different sandboxes.",
            remedy="Name the sandbox.yaml of one.",
        )
    changes: dict[str, Any] = {
        "inspect_tools": False
    }  # those are for agents, and take seconds the first time
    if network is not None:
        changes["network"] = network
    with own_sandbox(config.model_copy(update=changes)) as label:
        yield label


def _run(door: Door, row: dict[str, Any], argv: list[str], user: str | None) -> int:
    import os
    import sys

    from hawk.cli.sandbox_terminal import interactive, piped

    request = {
        "op": "exec",
        "kind": "exec",
        "label": row["label"],
        "cwd": row["workspace_directory"],
        "user": user,
        "env": dict(row["environment"]),
    }
    if sys.stdin.isatty() and sys.stdout.isatty():
        request["env"]["TERM"] = os.environ.get("TERM", "dumb")
        return interactive(door, {**request, "argv": argv or ["/bin/sh", "-c", FIND_SHELL]})
    return piped(door, {**request, "argv": argv or ["/bin/sh"]})
