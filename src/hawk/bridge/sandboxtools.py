"""Inspect's in-sandbox tools (bash_session, text_editor, exec_remote, the agent bridge), put in ahead of time."""

from __future__ import annotations

from inspect_ai.tool._sandbox_tools_utils.sandbox import (
    _get_sandbox_tools_version,
    sandbox_with_injected_tools,
)
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox._cli import SANDBOX_TOOLS_DIR

__all__ = ["SANDBOX_TOOLS_DIR", "SERVER_DIR", "inject", "share_root_access", "version"]

SERVER_DIR = f"{SANDBOX_TOOLS_DIR}/.server"
"""What the tools' running server keeps: of no use in another sandbox."""


def version() -> str:
    """Of the tools; another one is another program."""
    return _get_sandbox_tools_version()


async def inject(sandbox: SandboxEnvironment) -> None:
    """Install the tools as Inspect itself would at their first use.

    Raises:
        Exception: Whatever Inspect raises; there may be no tools for the sandbox's system.
    """
    await sandbox_with_injected_tools(sandbox=sandbox)


def share_root_access(known: SandboxEnvironment, fresh: SandboxEnvironment) -> None:
    """Spare a sandbox Inspect's probe for root: it is made exactly as one of which the answer is known.

    Inspect runs a command in every sandbox to find out, which is a third of what a start costs. Only a good answer is
    passed on: a probe that failed may succeed in the next.
    """
    access = known._root_access
    if access is not None and access.state == "usable":
        fresh._root_access = access
