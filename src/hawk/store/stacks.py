"""Stack records in a worker's directory: `stacks/last.json`, `stacks/<when>-<why>.json`, `stacks/fatal.txt`.

The last one is written again every few seconds while the worker lives, for what can't be asked any more; the
others are kept: of stalls, and of every time that somebody looked. `fatal.txt` is what Python itself writes when
the process dies of a fault in C.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hawk.core.recorder.fatal import read_fatal
from hawk.core.recorder.stacks import StackRecord
from hawk.errors import StorageError
from hawk.store.rundir import read_json, write_json

MOST = 24
"""Records that are kept of a worker: a stall is recorded at growing intervals, so this is several stalls' worth."""

DIED = "died"
"""Why a record is kept that was the last of a process which another one followed."""

_UNSAFE = re.compile(r"[^a-z_]+")


def folder(home: Path) -> Path:
    return home / "stacks"


def last_file(home: Path) -> Path:
    return folder(home) / "last.json"


def fatal_file(home: Path) -> Path:
    return folder(home) / "fatal.txt"


def keep(home: Path, record: StackRecord) -> Path:
    """Write a record beside the others; the oldest beyond `MOST` go.

    Raises:
        StorageError: The disk is full or read-only.
    """
    stamp = datetime.fromisoformat(record.at).strftime("%Y%m%dT%H%M%S.%f")
    path = folder(home) / f"{stamp}-{_UNSAFE.sub('_', record.why)}.json"
    write_json(path, record, durable=False)
    for old in kept(home)[:-MOST]:
        old.unlink(missing_ok=True)
    return path


def bury(home: Path) -> None:
    """Keep what the process before this one wrote last: it died without a word, or it would not be followed."""
    before = _read(last_file(home))
    if before is not None:
        keep(home, msgspec.structs.replace(before, why=DIED))
        last_file(home).unlink(missing_ok=True)


def died(home: Path) -> StackRecord | None:
    """The last record of the process before the present one; None where there was none."""
    found = [path for path in kept(home) if path.stem.endswith(f"-{DIED}")]
    return _read(found[-1]) if found else None


def kept(home: Path) -> list[Path]:
    """Files of the records that are kept, oldest first."""
    return sorted(folder(home).glob("[0-9]*.json"))


def last_record(home: Path) -> StackRecord | None:
    """The newest record of a worker, whatever wrote it; None where there is none that can be read."""
    found = [r for r in (_read(path) for path in [last_file(home), *kept(home)[-1:]]) if r is not None]
    newest = max(found, key=lambda record: record.at, default=None)
    fatal = fatal_record(home)
    if fatal is None:
        return newest
    if newest is not None:
        fatal.chains, fatal.chains_at = newest.chains, newest.chains_at or newest.at
        fatal.worker, fatal.pid, fatal.tasks = newest.worker, newest.pid, newest.tasks
    return fatal


def fatal_record(home: Path) -> StackRecord | None:
    """What the process wrote as it died of a fault, as a record without chains; None when it did not."""
    path = fatal_file(home)
    try:
        text = path.read_text("utf-8", "replace")
        died = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None
    return read_fatal(text, at=died.isoformat())


def _read(path: Path) -> StackRecord | None:
    with contextlib.suppress(StorageError):  # damaged by a full disk: as good as none
        return read_json(path, StackRecord)
    return None
