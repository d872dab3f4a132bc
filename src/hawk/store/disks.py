"""How much room a file system has, and whether it may be written to."""

from __future__ import annotations

import os
from pathlib import Path

from hawk.core.diagnosis.evidence import Disk


def look(what: str, path: Path) -> Disk:
    """The file system that a path is on; one that can't be asked is not writable, and says why."""
    try:
        disk = os.statvfs(path)
    except OSError as ex:
        return Disk(what, str(path), writable=False, why=ex.strerror or str(ex))
    found = Disk(
        what,
        str(path),
        free=disk.f_bavail * disk.f_frsize,
        total=disk.f_blocks * disk.f_frsize,
        free_files=disk.f_favail if disk.f_files else None,
    )
    if disk.f_flag & os.ST_RDONLY:
        found.writable, found.why = False, "it is mounted read-only"
    elif not os.access(path, os.W_OK):
        found.writable, found.why = False, "permission denied"
    return found
