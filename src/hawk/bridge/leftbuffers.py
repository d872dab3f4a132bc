"""What a dead worker's realtime buffer still holds is recovered, whatever its process was called.

Inspect takes a buffer for a living process's as long as a process has the pid in its name: one that was killed and is
not collected yet, or another that got its number, as in every new pod. Finished attempts that only the buffer holds
would be made again. A log has one worker at a time, so whoever goes on from it owns its buffer.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

from pathlib import Path

from inspect_ai.log._recorders.buffer import buffer as cleaning
from inspect_ai.log._recorders.buffer.database import sample_buffer_dbs
from inspect_ai.log._recover import _buffer as recovering

from hawk.bridge.buffer import rows

__all__ = ["install"]

_PATIENCE = 10.0  # seconds for a lock


def install() -> None:
    """From now on this process recovers from any buffer of a log it goes on from. Once in a process.

    Nor does it delete buffers by their age and pid at its end: another worker may have yet to recover from them.
    """
    recovering._find_crashed_buffer_db = _newest
    cleaning.cleanup_sample_buffer_databases = _none  # type: ignore[attr-defined]


def _newest(location: str, db_dir: str | Path | None = None) -> Path | None:
    found = sample_buffer_dbs(location, Path(db_dir) if db_dir is not None else None)
    return max(filter(_whole, found), key=lambda path: path.stat().st_mtime, default=None)


def _whole(db: Path) -> bool:
    """Not so the copies of a buffer in another pod, which have no more than a supervisor reads."""
    return rows(db, "SELECT 1 FROM task_database LIMIT 1", wait=_PATIENCE) is not None


def _none(db_dir: Path | None = None) -> None:
    pass
