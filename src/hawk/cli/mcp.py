"""`hawk mcp`: Hawk's answers as tools for an agent, over standard input and output."""

from __future__ import annotations

import sys

import click

from hawk.cli.context import App, note, pass_app
from hawk.errors import HawkError

INSTALL = "pip install 'hawk-evals[mcp]'"
OLDEST = 2
"""Major version of the SDK: before it, servers were made in another way."""


@click.command(short_help="Serve tools for coding agents over MCP.")
@click.option(
    "--transcripts",
    is_flag=True,
    help="Offer hawk_transcript too: what evaluated models wrote, hostile maybe.",
)
@click.option(
    "--allow-fixes", is_flag=True, help="Offer hawk_fix and hawk_stop_sample too: they change a job."
)
@pass_app
def mcp(app: App, transcripts: bool, allow_fixes: bool) -> None:
    """Serve tools for coding agents: the Model Context Protocol over standard input and output.

    An agent's program starts it; docs/mcp.md says how to set that up. The tools read, and change nothing without
    --allow-fixes.
    """
    _require_sdk()
    from hawk.cli.mcp_server import offered, serve

    if sys.stdin.isatty():
        note("This speaks MCP, to a program. How to set one up: docs/mcp.md. Ctrl-D ends it.")
    serve(app, offered(transcripts=transcripts, fixes=allow_fixes))


def _require_sdk() -> None:
    """Raises: HawkError when the SDK is missing or too old."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("mcp")
    except PackageNotFoundError:
        raise HawkError("hawk mcp needs the package mcp, which is not installed.", remedy=INSTALL) from None
    if int(found.partition(".")[0]) < OLDEST:
        raise HawkError(
            f"hawk mcp needs the package mcp in version {OLDEST} or newer; {found} is installed.",
            remedy=INSTALL,
        )
