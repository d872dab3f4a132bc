"""Worker processes."""

from __future__ import annotations

import msgspec


class Stalled(msgspec.Struct, omit_defaults=True):
    """A stall of a worker that goes on, as the journal has it. `stall` is of `core.recorder.stalls.Stall`."""

    stall: str
    since: str
    reason: str = ""
    where: str = ""
    innermost: str = ""
    attempt: str = ""


class Exit(msgspec.Struct, omit_defaults=True):
    """How a worker process ended."""

    at: str
    reason: str


class Worker(msgspec.Struct, omit_defaults=True):
    """One worker process.

    Attributes:
        state: `starting`, `running`, `exited`.
        control: `ok`, `busy` (no answer in time), `gone` (nobody listens), `unknown`.
        control_since: Since when it is not ok.
        answered: It has answered before.
        beat: Seconds since its last heartbeat; None before the first.
        lag: Seconds for which its event loop had not answered at that heartbeat.
        lags: The longest such lag of each of the last looks, newest last.
        cpu: Share of a core over the last looks.
        memory, memory_limit, memory_by: Near which limit it is.
        exits: Ends of its processes, newest last.
        stalled: What stands still now.
        preparing: What is being made that its sandboxes need.
        preparing_since: Since when.
        dropped: Trace lines that could not be written.
        complaints: Known patterns in its output: `database is locked` → how often, in the last minutes.
        complaint_at: When the newest of each was seen.
    """

    index: int
    pid: int | None = None
    state: str = "running"
    restarts: int = 0
    control: str = "unknown"
    control_since: str | None = None
    control_error: str = ""
    answered: bool = False
    beat: float | None = None
    lag: float = 0.0
    lags: list[float] = []
    cpu: float | None = None
    memory: int = 0
    memory_limit: int = 0
    memory_by: str = ""
    open_files: int = 0
    exits: list[Exit] = []
    stalled: list[Stalled] = []
    preparing: str | None = None
    preparing_since: str | None = None
    dropped: int = 0
    complaints: dict[str, int] = {}
    complaint_at: dict[str, str] = {}
