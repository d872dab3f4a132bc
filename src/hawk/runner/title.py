"""What a forked process is called in `ps` and `top`: without this, as the process that it is a copy of."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

_ARGUMENTS = slice(45, 47)
"""Where the bounds of the arguments' memory are in `/proc/self/stat`, after the name (proc_pid_stat(5): 48 and 49)."""


def name_process(module: str, about: str = "") -> None:
    """Give this process a name: `hawk.runner.worker 0 of <job>` in `ps`, `hawk-worker` in `top`. Linux only.

    Args:
        module: What it runs.
        about: More words; what does not fit into the room of the arguments that it was started with is left out.
    """
    with contextlib.suppress(OSError, ValueError):  # it runs as well without
        Path("/proc/self/comm").write_text(f"hawk-{module.rpartition('.')[2]}"[:15])
        bounds = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_ARGUMENTS]
        start, end = map(int, bounds)
        _overwrite(start, end - start, f"{module} {about}".strip().encode())


def _overwrite(start: int, room: int, title: bytes) -> None:
    """The kernel takes arguments that don't end with a zero for one string, up to its first zero."""
    if room > 1:
        ctypes.memmove(start, title[: room - 2].ljust(room - 1, b"\0") + b" ", room)
