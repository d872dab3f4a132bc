"""What is known of each worker process: heartbeat, memory, control socket, ends, stalls."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Change, Evidence, Exit, Stalled, Worker
from hawk.core.snapshot import Snapshot
from hawk.runner import memory, processes
from hawk.runner.heartbeat import Heartbeat, read_heartbeat
from hawk.runner.sources.context import Context

BEATS = 12
"""Looks whose lateness is remembered."""

PERIOD = 1.5
"""Seconds within which a heartbeat is not late: it comes once a second."""

EXITS = 8
"""Ends of a worker's processes that are kept."""


class _Seen:
    """What is remembered of one process between looks."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.beats: deque[tuple[float, float, float]] = deque(maxlen=BEATS)  # when, lateness, CPU seconds
        self.preparing: tuple[str, str] | None = None  # what, since when

    def add(self, beat: Heartbeat, age: float) -> None:
        """Take in the heartbeat that a look found, so many seconds old."""
        when = datetime.fromisoformat(beat.at).timestamp()
        late = round(max(beat.loop_lag, age - PERIOD, 0.0), 1)
        if not self.beats or when > self.beats[-1][0]:
            self.beats.append((when, late, beat.cpu))
        else:
            self.beats[-1] = (when, late, beat.cpu)

    @property
    def lags(self) -> list[float]:
        """How late its loop, or the heartbeat itself, was at each look."""
        return [late for _, late, _ in self.beats]

    @property
    def cpu(self) -> float | None:
        if len(self.beats) < 2:
            return None
        (then, _, used_then), (now, _, used) = self.beats[0], self.beats[-1]
        return round((used - used_then) / (now - then), 2) if now > then else None


class WorkerReader:
    """See the module."""

    source = Source.RECORDER

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def fill(self, evidence: Evidence, context: Context) -> None:
        rows = {row.index: row for row in context.snapshot.workers}
        living = {worker.index: worker for worker in context.workers}
        for index in sorted({*rows, *living}):
            found = Worker(index)
            if row := rows.get(index):
                found.state, found.restarts, found.pid = row.state, row.restarts, row.pid
            if (worker := living.get(index)) is not None:
                self._living(found, worker, context)
            evidence.workers.append(found)
        _from_journal(evidence.workers, evidence.journal, context.snapshot)

    def _living(self, found: Worker, worker: processes.Worker, context: Context) -> None:
        found.pid = worker.pid
        found.control, found.control_error = worker.control, worker.control_error
        found.control_since, found.answered = worker.control_since, worker.answered
        seen = self._seen.get(worker.index)
        if seen is None or seen.pid != worker.pid:
            seen = self._seen[worker.index] = _Seen(worker.pid)
        beat = read_heartbeat(worker.home)
        if beat is not None and worker.wrote(beat.pid):
            found.beat = round((context.now - datetime.fromisoformat(beat.at)).total_seconds(), 1)
            seen.add(beat, found.beat)
            found.lag, found.open_files = beat.loop_lag, beat.open_files
            found.lags, found.cpu = seen.lags, seen.cpu
            self._preparing(found, seen, beat)
        used = None if worker.remote else memory.look(worker.pid)
        if used is not None:
            found.memory, found.memory_limit, found.memory_by = used.used, used.limit, used.where
        elif beat is not None:
            found.memory = beat.rss

    def _preparing(self, found: Worker, seen: _Seen, beat: Heartbeat) -> None:
        if beat.preparing is None:
            seen.preparing = None
        elif seen.preparing is None or seen.preparing[0] != beat.preparing:
            seen.preparing = beat.preparing, datetime.now(UTC).isoformat()
        if seen.preparing is not None:
            found.preparing, found.preparing_since = seen.preparing


def _from_journal(workers: list[Worker], journal: list[Change], snapshot: Snapshot) -> None:
    """Ends, and the stalls that go on."""
    by_index = {str(worker.index): worker for worker in workers}
    for change in journal:
        worker = by_index.get(change.subject) if change.kind == "worker" else None
        if worker is None:
            continue
        if change.state == "exited":
            worker.exits = [*worker.exits, Exit(change.at, change.reason)][-EXITS:]
            worker.stalled = []
        elif change.state == "started":
            worker.stalled = []
        elif change.state in ("stalled", "still stalled", "goes on"):
            stall = str(change.data.get("stall", ""))
            worker.stalled = [s for s in worker.stalled if s.stall != stall]
            if change.state != "goes on":
                worker.stalled.append(_stalled(stall, change))


def _stalled(stall: str, change: Change) -> Stalled:
    def text(name: str) -> str:
        return str(change.data.get(name) or "")

    since = text("since") or change.at
    return Stalled(stall, since, change.reason, text("where"), text("innermost"), text("attempt"))
