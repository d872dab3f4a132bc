"""Commands in sandboxes, in the trace: what runs, since when, and how long it may take.

Inspect notes such a command when it has ended. One that does not end is what somebody wants to know of, and the time-out
that it was given is nowhere to be seen from outside.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

import logging
import shlex
from functools import wraps
from typing import Any

from inspect_ai._util.trace import trace_action
from inspect_ai.util import ExecResult
from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy
from inspect_ai.util._sandbox.service import is_sandbox_service_command

ACTION = "Sandbox Exec"

_SHOWN = 300
"""Characters of a command: it may hold a whole program."""

_log = logging.getLogger("inspect_ai.hawk.sandbox")  # only below that name is everything traced


def install() -> None:
    """From now on every command that a task, an agent or a tool runs in a sandbox is in the trace. Once in a process."""
    run = SandboxEnvironmentProxy.exec

    @wraps(run)
    async def traced(
        self: SandboxEnvironmentProxy, cmd: list[str], *args: Any, **kwargs: Any
    ) -> ExecResult[str]:
        if is_sandbox_service_command(
            cmd
        ):  # asked for several times a second, for as long as the attempt lives
            return await run(self, cmd, *args, **kwargs)
        limit = kwargs.get("timeout", args[4] if len(args) > 4 else None)
        with trace_action(_log, ACTION, "%s", described(cmd, limit)):
            return await run(self, cmd, *args, **kwargs)

    SandboxEnvironmentProxy.exec = traced  # type: ignore[method-assign]


def described(cmd: list[str], limit: float | None) -> str:
    """A command as the trace shows it: `exec(timeout=180, bash -c make)`."""
    bound = "" if limit is None else f"timeout={limit:g}, "
    shown: list[str] = []
    length = 0
    for word in cmd:
        length += len(word) + 1
        shown.append(shlex.quote(word[:_SHOWN]))
        if length > _SHOWN:
            break
    text = " ".join(shown)
    return f"exec({bound}{text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'})"
