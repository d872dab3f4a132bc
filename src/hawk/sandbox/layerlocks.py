"""Locks of the layer store: files under `flock`, which the kernel lets go when their holder dies.

A lock file can be deleted by whoever holds it exclusively: who waited for it sees that it is not the file of that
name any more, and opens the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import threading
from pathlib import Path

_log = logging.getLogger(__name__)

ALONE = fcntl.LOCK_EX | fcntl.LOCK_NB
"""Exclusively, now or not at all."""

_FIRST_WAIT = 0.01
_LONGEST_WAIT = 0.25


def take(path: Path, operation: int) -> int | None:
    """Open and lock a file.

    Args:
        operation: As `fcntl.flock` takes it.

    Returns:
        The descriptor, which is the lock and closes with exec; None when another holds it and `LOCK_NB` is set.

    Raises:
        OSError: The file can't be made.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, operation)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        if _is_there(path, fd):
            return fd
        os.close(fd)


def _is_there(path: Path, fd: int) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def is_held(path: Path) -> bool:
    """Whether anybody holds a lock of any kind, this process included. Another who asks just now counts too."""
    if not path.exists():
        return False
    fd = take(path, ALONE)
    if fd is None:
        return True
    os.close(fd)
    return False


async def take_in_turn(path: Path, purpose: str) -> int:
    """Lock a file exclusively, after waiting for it without blocking the event loop. Returns the descriptor.

    Args:
        purpose: What for; whoever waits meanwhile reads it in the log.
    """
    wait = _FIRST_WAIT
    while (fd := take(path, ALONE)) is None:
        if wait == _FIRST_WAIT:
            _log.info("%s: waiting for process %s", purpose, _said_by_holder(path))
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, _LONGEST_WAIT)
    with contextlib.suppress(OSError):  # a full disk: it is a lock all the same
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} ({purpose})".encode("utf-8", "backslashreplace"), 0)
    return fd


def _said_by_holder(path: Path) -> str:
    try:
        return path.read_text(errors="replace") or "?"
    except OSError:
        return "?"


class SharedLocks:
    """Shared locks of this process: one descriptor a file, however many use it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held: dict[Path, tuple[int, int]] = {}

    def acquire(self, path: Path) -> None:
        """Hold it once more, and note the time. Waits only while another process decides whether to delete."""
        with self._mutex:
            fd, count = self._held.get(path, (-1, 0))
            if count == 0:
                taken = take(path, fcntl.LOCK_SH)
                assert taken is not None
                fd = taken
            self._held[path] = fd, count + 1
            os.utime(fd)

    def release(self, path: Path) -> None:
        """Hold it once less, and note the time."""
        with self._mutex:
            fd, count = self._held[path]
            with contextlib.suppress(OSError):  # a full or failing disk must not keep us from letting go
                os.utime(fd)
            if count > 1:
                self._held[path] = fd, count - 1
            else:
                del self._held[path]
                os.close(fd)
