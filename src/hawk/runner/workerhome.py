"""A worker's directory in the run directory, and what is said there of its share and of its end."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hawk.runner.wire import ENUMERATE
from hawk.store.rundir import RunDir


class Exit(msgspec.Struct, omit_defaults=True):
    """How a worker ended, in its own words (`exit.json`); missing when it was killed.

    Attributes:
        code: Exit code: 0 done, 1 failed, 2 the eval set itself is wrong, 130 interrupted.
        reason: One line.
        kind: Class of the exception, or empty.
        remedy: What to do about it, or empty.
    """

    code: int
    at: str
    reason: str = ""
    kind: str = ""
    remedy: str = ""


class Share(msgspec.Struct):
    """`worker.json`: what a worker was told to run; `slots` attempts at once."""

    identifiers: tuple[str, ...]
    started_at: str
    generation: int = 1
    slots: int = 0


def directory(run_dir: RunDir, mode: str, index: int) -> Path:
    """Where a worker keeps what it produces."""
    return run_dir.path / "workers" / (ENUMERATE if mode == ENUMERATE else str(index))
