"""Processes below the first one of a worker's pod, which is the parent of every orphan."""

from __future__ import annotations

import contextlib
import os
import time

import psutil

from hawk.runner.processes import Reaper

SETTLED = 3.0
"""Seconds after which a dead child is nobody's: whoever started it would have asked how it ended."""


LOOK = 1.0
"""Seconds between looks for them."""


class Children:
    """Buries orphans, and leaves to others what they started themselves and wait for."""

    def __init__(self) -> None:
        self.reaper = Reaper()
        self._dead: dict[int, float] = {}
        self._next = 0.0

    def ended(self, pid: int) -> int | None:
        """The wait status of a child, once it has ended."""
        self._bury(pid)
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 9  # somebody else buried it: it was killed, as far as anybody can say
        return status if found else None

    def collect(self) -> None:
        """Take the status of every child; only while nobody else waits for one."""
        self.reaper.collect()

    def _bury(self, spared: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK
        dead = set()
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if process.pid != spared and process.status() == psutil.STATUS_ZOMBIE:
                    dead.add(process.pid)
        self._dead = {pid: self._dead.get(pid, now) for pid in dead}
        for pid, since in self._dead.items():
            if now - since > SETTLED:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def kill_all(self) -> None:
        """End everything below this process."""
        family = psutil.Process().children(recursive=True)
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(family, timeout=5.0)
