"""The nearest rival: bwrap by itself, with the mounts that a sandbox of ours has."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from hawk.sandbox import mounts, pool
from hawk.sandbox.base import make_base
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.group import create_message
from hawk.sandbox.prepare import Lower


def bare(base: Path, config: BubblewrapConfig, *, single_id: bool) -> Callable[[], float]:
    """A call that runs `bwrap … true` and says how many seconds it took.

    Args:
        base: Directory in which the lowest layer is made.
        config: Without setup and rootfs.
        single_id: As our sandboxes have it on this machine: it decides about bwrap's arguments.

    Raises:
        RuntimeError: It does not work here.
    """
    sources = base / "bwrap"
    lowest = mounts.BASE.replace(mounts.KEEP, str(sources))
    Path(lowest).mkdir(parents=True)
    make_base(lowest, single_id=single_id)
    command = _command(config, sources, single_id=single_id)
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        raise RuntimeError(f"bare bwrap ended with {tried.returncode}: {tried.stderr.strip()}")

    def run() -> float:
        began = time.perf_counter()
        _, status = os.waitpid(os.posix_spawn(command[0], command, os.environ), 0)
        took = time.perf_counter() - began
        if status:
            raise RuntimeError(f"bare bwrap ended with {os.waitstatus_to_exitcode(status)}")
        return took

    return run


def _command(config: BubblewrapConfig, sources: Path, *, single_id: bool) -> list[str]:
    """Our own arguments; only the tmpfs that is written to is bwrap's, where ours is the keeper's."""
    message = create_message(config, Lower(), "bare", config.network)
    args = mounts.arguments(message, mounts.upper_of({"kind": "memory"}), single_id=single_id)
    upper = args.index("--overlay")
    args[upper : upper + 3] = ["--tmp-overlay"]
    return [str(pool.find_bwrap()), *(a.replace(mounts.KEEP, str(sources)) for a in args), "--", "true"]
