"""The machine and its file systems."""

from __future__ import annotations

import msgspec


class Disk(msgspec.Struct, omit_defaults=True):
    """A file system that matters. `what`: `run directory`, `temporary files`, `sandboxes`."""

    what: str
    path: str
    free: int = 0
    total: int = 0
    free_files: int | None = None
    writable: bool = True
    why: str = ""


class Host(msgspec.Struct, omit_defaults=True):
    """The machine. `pressure` is the share of time in which something waited for a CPU, over ten seconds (PSI)."""

    cores: int = 0
    load: float = 0.0
    pressure: float | None = None
    throttled: float | None = None
    memory: int = 0
    memory_free: int = 0
    disks: list[Disk] = []
