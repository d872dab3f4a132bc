"""An engine without processes: the tests decide who lives and what a runner has written."""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hawk.core.recorder.stacks import StackRecord
from hawk.core.snapshot import Snapshot
from hawk.core.states import StopAction
from hawk.core.status import revision
from hawk.engine.protocol import Liveness
from hawk.errors import HawkError
from hawk.store.rundir import JournalEntry, RunDir, write_json


class FakeEngine:
    """Implements `hawk.engine.protocol.Engine`.

    Attributes:
        alive: Jobs whose runner lives.
        launches: Every real launch: job and secrets.
        stillborn: Launched runners die at once.
        refusal: What `launch` raises.
        deaf: Stops are not acknowledged.
    """

    name = "fake"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.alive: set[str] = set()
        self.launches: list[tuple[str, dict[str, str]]] = []
        self.settled: list[str] = []
        self.killed: list[str] = []
        self.stops: list[tuple[str, StopAction, str | None]] = []
        self.stillborn = False
        self.refusal: HawkError | None = None
        self.deaf = False
        self.on_kill: Callable[[str], None] = lambda job_id: None
        self._lock = threading.Lock()

    def run(self, job_id: str) -> RunDir:
        return RunDir(self.root / job_id)

    def write(self, snapshot: Snapshot) -> None:
        """What the runner of a job says."""
        snapshot.revision = revision(snapshot)
        write_json(self.run(snapshot.job_id).snapshot_file, snapshot)

    def end(self, snapshot: Snapshot) -> None:
        """The runner says its last word and is gone."""
        self.write(snapshot)
        self.alive.discard(snapshot.job_id)

    def launch(self, job_id: str, secrets: Mapping[str, str]) -> None:
        with self._lock:
            if job_id in self.alive:
                return
            if self.refusal is not None:
                raise self.refusal
            assert self.run(job_id).read_spec().job_id == job_id
            self.launches.append((job_id, dict(secrets)))
            if not self.stillborn:
                self.alive.add(job_id)

    def liveness(self, job_id: str) -> Liveness:
        alive = job_id in self.alive
        return Liveness(alive=alive, detail=None if alive else "its supervisor was killed by SIGKILL")

    def settle(self, job_id: str) -> None:
        self.settled.append(job_id)

    def stop(self, job_id: str, action: StopAction, sample_uuid: str | None) -> str:
        self.stops.append((job_id, action, sample_uuid))
        request = f"request-{len(self.stops)}"
        if not self.deaf:
            at = datetime.now(UTC).isoformat()
            self.run(job_id).append_journal(JournalEntry(at, "stop", request, "acknowledged"))
        return request

    def kill(self, job_id: str) -> None:
        self.on_kill(job_id)
        self.killed.append(job_id)
        self.alive.discard(job_id)

    def sweep(self) -> None:
        pass

    def report(self, job_id: str) -> dict[str, Any]:
        return {"engine": self.name, "processes": []}

    def stacks(self, job_id: str, *, native: bool) -> list[StackRecord] | None:
        return None

    def close(self) -> None:
        pass
