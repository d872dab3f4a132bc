"""What a worker's recorder writes, as its readers see it. Imports no Inspect."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hawk.errors import StorageError
from hawk.store.rundir import read_json


class Heartbeat(msgspec.Struct, omit_defaults=True):
    """The worker at one moment.

    Attributes:
        loop_lag: Seconds since the event loop last ran a callback that it was given; 0 when it answers.
        rss: Resident memory, bytes.
        cpu: CPU seconds so far.
        http_retries: By `<sample id>/<epoch>@<eval id>`.
    """

    at: str
    pid: int
    loop_lag: float = 0.0
    rss: int = 0
    cpu: float = 0.0
    http_retries: dict[str, int] = {}


class TaskStarted(msgspec.Struct):
    """Which log belongs to which task of the plan."""

    at: str
    identifier: str
    task_id: str
    eval_id: str


def read_heartbeat(home: Path) -> Heartbeat | None:
    """The last heartbeat of a worker; None where there is none that can be read."""
    try:
        return read_json(home / "heartbeat.json", Heartbeat)
    except StorageError:  # damaged by a full disk: as good as none
        return None
