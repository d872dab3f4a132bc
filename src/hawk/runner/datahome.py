"""Short paths for sockets.

Inspect binds its control socket below the data directory, and a socket path may have about 100 bytes. The data
lives in the run directory, however deep; what the worker is told is a short link to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

from hawk.errors import StorageError
from hawk.runner.heartbeat import RECORDER_SOCKET
from hawk.store.rundir import RunDir, storage_error

LONGEST = 107 - len("/inspect_ai/control/12345678.sock")
"""Characters of a data directory such that a socket's path fits the kernel's 107."""


def make(run_base: Path, run_dir: RunDir, home: Path) -> Path:
    """Make a worker's data directory and the short link to it.

    All workers of a job share one sample buffer, so that any of them can recover what a dead one held.

    Args:
        run_base: Directory of the links; made for this user alone.
        home: The worker's directory.

    Returns:
        The link: what `XDG_DATA_HOME` should be.

    Raises:
        StorageError: `run_base` belongs to somebody else, or a directory can't be made.
    """
    link = link_path(run_base, home)
    if len(str(link)) > LONGEST:
        raise StorageError(
            f"{run_base} is too long for sockets: {len(str(link))} characters with its links, {LONGEST} are possible.",
            remedy="Set HAWK_RUN_BASE to a short directory, such as /tmp/hawk.",
        )
    data = home / "data"
    shared = run_dir.buffers
    try:
        (data / "inspect_ai").mkdir(parents=True, exist_ok=True)
        shared.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (data / "inspect_ai" / "samplebuffer").symlink_to(shared)
        run_base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if run_base.stat().st_uid != os.getuid():
            raise StorageError(
                f"{run_base} belongs to another user.",
                remedy="Set HAWK_RUN_BASE to a short path of your own.",
            )
        link.unlink(missing_ok=True)
        link.symlink_to(data)
    except OSError as ex:
        raise storage_error(data, ex) from ex
    return link


def link_path(run_base: Path, home: Path) -> Path:
    """Where the link of a worker is: from the path alone, so that a later supervisor finds it."""
    return run_base / hashlib.sha256(str(home).encode()).hexdigest()[:12]


def clear(home: Path) -> None:
    """Remove the sockets that a worker left, with the files that announce them: a killed one can't."""
    data = home / "data"
    for pattern in (RECORDER_SOCKET, "inspect_ai/control/*", "inspect_ai/acp/*"):
        for file in data.glob(pattern):
            file.unlink(missing_ok=True)


def drop_buffers(run_dir: RunDir) -> None:
    """Remove what killed workers left in their buffers, once all of it is in logs: it can be large."""
    shutil.rmtree(run_dir.buffers, ignore_errors=True)


def remove(run_base: Path, run_dir: RunDir) -> None:
    """Remove the links and sockets of all workers of a job that has ended; an empty `run_base` goes too."""
    for home in (run_dir.path / "workers").glob("*"):
        link_path(run_base, home).unlink(missing_ok=True)
        clear(home)
    with contextlib.suppress(OSError):
        run_base.rmdir()
