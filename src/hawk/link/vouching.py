"""Locks that a server holds in a run directory for processes that live elsewhere, so that `store.locks.holder` finds them.

They are locks of an open file, not of a process: whoever asks within this process sees them too, and the kernel drops them
with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import threading
from collections.abc import Mapping
from pathlib import Path

_LOCK = re.compile(r"supervisor\.lock|workers/[0-9a-z]{1,16}/lock")
_WHOLE_FILE = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def may_hold(path: str) -> bool:
    """Whether a path below a run directory is that of a lock."""
    return _LOCK.fullmatch(path) is not None


class Vouched:
    """The locks of one run directory. From any thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[str, tuple[int, int]] = {}
        self._guard = threading.Lock()

    def hold(self, locks: Mapping[str, int]) -> None:
        """Hold exactly these, with the pids that their holders have there."""
        with self._guard:
            for path in [p for p, (pid, _) in self._held.items() if locks.get(p) != pid]:
                os.close(self._held.pop(path)[1])
            for path, pid in locks.items():
                if path not in self._held and may_hold(path) and pid > 0:
                    self._take(path, pid)

    def _take(self, path: str, pid: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            for folder in (self._root / path).relative_to(self._root).parents[-2::-1]:
                (self._root / folder).mkdir(mode=0o700, exist_ok=True)  # it may not have come yet
            fd = os.open(self._root / path, flags, 0o600)
        except OSError:
            return  # deleted meanwhile, or a full disk
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(pid).encode(), 0)
        except OSError:  # a process of this machine has it
            os.close(fd)
            return
        self._held[path] = pid, fd

    def release(self) -> None:
        """Hold none."""
        with self._guard, contextlib.suppress(OSError):
            for _, fd in self._held.values():
                os.close(fd)
            self._held.clear()
