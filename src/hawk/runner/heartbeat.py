"""What a worker's recorder writes, as its readers see it. Imports no Inspect."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hawk.bridge.tracesegments import read_beat
from hawk.core.recorder.trace import Beat
from hawk.core.snapshot import SandboxFacts

RECORDER_SOCKET = "recorder.sock"
"""Name of the socket, in a worker's data directory, at which its recorder is asked for stacks."""


STACKS_SOCKET = "stacks.sock"
"""Name of the socket, in the data directory of a worker with a pod of its own, at which its stacks are asked for, as they
are seen in its pod."""


class Heartbeat(Beat, omit_defaults=True):
    """All of it.

    Attributes:
        loop_lag: Seconds since the event loop last ran a callback that it was given; 0 when it answers.
        rss: Resident memory, bytes.
        cpu: CPU seconds so far.
        open_files: File descriptors in use.
        http_retries: By `<sample id>/<epoch>@<eval id>`.
        uuids: Of the attempts in flight, by the same.
        sandboxes: Those that live, by the same.
        sandbox_waits: What attempts wait for whose sandbox is being made, by the same.
        preparing: What is being made that sandboxes need, whichever.
    """

    loop_lag: float = 0.0
    rss: int = 0
    cpu: float = 0.0
    open_files: int = 0
    http_retries: dict[str, int] = msgspec.field(default_factory=dict)
    uuids: dict[str, str] = msgspec.field(default_factory=dict)
    sandboxes: dict[str, SandboxFacts] = msgspec.field(default_factory=dict)
    sandbox_waits: dict[str, str] = msgspec.field(default_factory=dict)
    preparing: str | None = None


class TaskStarted(msgspec.Struct):
    """Which log belongs to which task of the plan."""

    at: str
    identifier: str
    task_id: str
    eval_id: str


class SandboxEnded(msgspec.Struct):
    """A sandbox that hit a limit or was lost: a line of `sandboxes.jsonl`, written at its end."""

    at: str
    attempt: str
    facts: SandboxFacts


def attempt_name(sample_id: str, epoch: int, eval_id: str) -> str:
    """By which a worker names an attempt."""
    return f"{sample_id}/{epoch}@{eval_id}"


def split_name(attempt: str) -> tuple[str, int, str]:
    """The reverse: (sample id, epoch, eval id). Raises: ValueError when it is no such name."""
    first, _, eval_id = attempt.rpartition("@")
    sample_id, _, epoch = first.rpartition("/")
    return sample_id, int(epoch), eval_id


def read_heartbeat(home: Path) -> Heartbeat | None:
    """The last heartbeat of a worker; None where there is none that can be read."""
    return read_beat(home, Heartbeat)
