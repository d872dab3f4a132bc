"""What goes wrong with sandboxes."""

from __future__ import annotations

import os

from hawk.errors import HawkError


class SandboxError(HawkError):
    """A sandbox could not be made or used."""

    title = "Sandbox failed"


class SandboxUnsupportedError(SandboxError):
    """This machine does not let us isolate anything. Fields: `reason`."""

    title = "No sandboxes on this machine"


class KeeperGoneError(SandboxError):
    """The process that keeps a worker's sandboxes has ended, and all of them with it."""


class KeeperRefusedError(SandboxError):
    """The keeper could not do what it was asked.

    Args:
        number: errno.
        stage: What it was doing.
        detail: What the kernel or bwrap said.
    """

    def __init__(self, number: int, stage: str, detail: str = "") -> None:
        super().__init__(f"{stage}: {detail or os.strerror(number)}", errno=number, stage=stage)
        self.number, self.stage, self.detail = number, stage, detail
