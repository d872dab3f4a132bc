"""What a place to run jobs must offer. Local processes and a cluster are the same to everything above."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from hawk.core.recorder.stacks import StackRecord
from hawk.core.states import StopAction


class Liveness(msgspec.Struct, frozen=True):
    """Whether a job's runner lives.

    Attributes:
        alive: A supervisor holds the job.
        pid: Its process id where there is one.
        detail: When it is not alive, what is known about the end.
        final: Starting it again is no use.
        remedy: What to do about that.
        tries: Times that the engine itself has started it again since it was launched.
        mine: This server is the one to act on it; another may hold the lease.
        problem: Why this may be out of date: the cluster can't be asked.
        elsewhere: Not on this machine: its locks say nothing here.
    """

    alive: bool
    pid: int | None = None
    detail: str | None = None
    final: bool = False
    remedy: str | None = None
    tries: int = 0
    mine: bool = True
    problem: str | None = None
    elsewhere: bool = False


class Engine(Protocol):
    """Starts, watches and ends the runners of jobs. Every method is safe to call twice."""

    name: str

    def launch(self, job_id: str, secrets: Mapping[str, str]) -> None:
        """Start the supervisor of a job whose run directory holds `job.json`; no-op while one lives.

        Secrets go by pipe and are written nowhere.
        """

    def liveness(self, job_id: str) -> Liveness:
        """Cheap enough to ask every second for every running job."""

    def settle(self, job_id: str) -> None:
        """After a runner died: collect what is on disk once and write the last snapshot."""

    def stop(self, job_id: str, action: StopAction, sample_uuid: str | None) -> str:
        """Ask the runner to stop the job or one sample. Returns the request's id (found in the journal)."""

    def kill(self, job_id: str) -> None:
        """End every process of a job now and wait until none is left."""

    def sweep(self) -> None:
        """Remove what killed processes left outside of their run directories. Cheap when there is nothing."""

    def report(self, job_id: str) -> dict[str, Any]:
        """Processes (or pods) of a job with CPU seconds, memory bytes and state, for `hawk status`."""

    def stacks(self, job_id: str, *, native: bool) -> list[StackRecord] | None:
        """The stacks of a job's workers that live, now; None when nobody is there to take them.

        Args:
            native: Frames of C code too.
        """

    def close(self) -> None:
        """Let go of what the engine itself holds. Jobs run on."""
