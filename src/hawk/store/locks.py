"""Who lives: a lock file that its owner holds until death, however it dies.

POSIX record locks: the kernel drops them with the process, and a forked child does not inherit them (a
sandbox process that outlives its worker must not look like the worker). The owner's pid is the content.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path


def hold(path: Path) -> int | None:
    """Take the lock for the rest of this process's life.

    Returns:
        The descriptor, to be kept open; None when another process holds it.

    Raises:
        OSError: The file can't be made.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as ex:
        os.close(fd)
        if ex.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock, or None when nobody does.

    Must not be asked by the holder itself: closing any descriptor of the file would drop its lock.
    """
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as ex:
        if ex.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        text = os.pread(fd, 32, 0).decode("ascii", "ignore").strip()
        return int(text) if text.isdigit() else -1
    else:
        return None
    finally:
        os.close(fd)
