"""The supervisor's watch over its workers' heartbeats: who stands still is recorded, and the journal says so.

A thread of its own: to take stacks may take seconds, in which the supervisor has to obey stops.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from hawk.core.recorder.stacks import StackRecord, own_frame
from hawk.core.recorder.stalls import BLOCKED, Pace, Signs, Stall, stalls
from hawk.errors import StorageError
from hawk.runner import memory
from hawk.runner.heartbeat import Heartbeat, read_heartbeat
from hawk.runner.processes import Worker
from hawk.runner.stacktaking import take
from hawk.store import stacks

PERIOD = 1.0
"""Seconds between looks."""

RECENT = 30.0
"""Seconds for which a look at memory counts as one just before the end."""

_HOLDING = (Stall.LOOP_BLOCKED, Stall.SILENT)
"""Stalls in which one thing runs and nothing else."""

Note = Callable[[str, str, str, str, dict[str, Any]], None]
"""Writes a line of the journal: kind, subject, state, reason, data."""


class _Watched:
    """What is remembered of one process."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.since: dict[Stall, datetime] = {}
        self.where: dict[Stall, dict[str, Any]] = {}
        self.memory: memory.Memory | None = None
        self.kills = 0
        self.seen_at = 0.0

    def remember(self, now: memory.Memory | None) -> None:
        if now is None:
            return
        if self.memory is None or self.memory.events != now.events:
            self.kills = now.kills  # those of others, before
        self.memory, self.seen_at = now, time.monotonic()


class StallWatch:
    """Looks once a second.

    Args:
        note: Called on the watch's thread.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._watched: dict[int, _Watched] = {}  # by pid
        self._end = threading.Event()
        self._workers: Sequence[Worker] = ()
        self._idle: dict[int, float] = {}
        self._longest = 0.0

    def follow(self, workers: Sequence[Worker], idle: dict[int, float], longest: float) -> None:
        """What to watch from here on.

        Args:
            workers: Those that live.
            idle: By worker, seconds since the attempt of it that last did something.
            longest: The longest such wait of the job that came to an end, in seconds.
        """
        self._workers, self._idle, self._longest = tuple(workers), idle, longest

    def start(self) -> None:
        threading.Thread(target=self._run, name="stalls", daemon=True).start()

    def close(self) -> None:
        self._end.set()

    def stacks(self, *, native: bool) -> list[StackRecord]:
        """The stacks of all workers that live, now; each is kept too."""
        workers = list(self._workers)
        if not workers:
            return []
        with ThreadPoolExecutor(len(workers)) as threads:
            records = list(threads.map(lambda worker: take(worker, "asked", native=native), workers))
        for worker, record in zip(workers, records, strict=True):
            if record.live:
                _keep(worker, record)
        return [record for record in records if record.live]

    def killed_for_memory(self, worker: Worker) -> str | None:
        """Whether the kernel ended a worker because it had no memory left for it, in words."""
        watched = self._watched.pop(worker.pid, None)
        if watched is None or watched.memory is None or time.monotonic() - watched.seen_at > RECENT:
            return None
        last = watched.memory
        if memory.kills(last) <= watched.kills:
            return None
        used, limit = last.used / 2**20, last.limit / 2**20
        return (
            f"out of memory: the kernel killed it, {used:,.0f} of {limit:,.0f} MiB were in use ({last.where})"
        )

    # --- the thread

    def _run(self) -> None:
        while not self._end.wait(PERIOD):
            for worker in self._workers:
                try:
                    self._look(worker)
                except Exception as ex:  # a watch that has died would not be missed until it is needed
                    self._note("worker", str(worker.index), "not watched", f"{type(ex).__name__}: {ex}", {})
                    self._end.wait(60)

    def _look(self, worker: Worker) -> None:
        beat = read_heartbeat(worker.home)
        if beat is not None and not worker.wrote(beat.pid):
            beat = None  # of the process before
        watched = self._watched.get(worker.pid)
        if watched is None:
            watched = self._watched[worker.pid] = _Watched()
        watched.remember(None if worker.remote else memory.look(worker.pid))
        found = stalls(self._signs(worker, beat, watched.memory))
        for stall in watched.pace.going_on:
            if stall not in found:
                self._over(worker, watched, stall)
        for stall, (seconds, reason) in found.items():
            if watched.pace.due(stall, time.monotonic()):
                self._record(worker, watched, stall, seconds, reason)

    def _signs(self, worker: Worker, beat: Heartbeat | None, used: memory.Memory | None) -> Signs:
        signs = Signs(idle=self._idle.get(worker.index), longest=self._longest)
        if beat is not None:
            silence = datetime.now(UTC) - datetime.fromisoformat(beat.at)
            signs.silence, signs.loop_lag = silence.total_seconds(), beat.loop_lag
        if used is not None:
            signs.memory, signs.limit, signs.limit_by = used.used, used.limit, used.where
        return signs

    def _record(self, worker: Worker, watched: _Watched, stall: Stall, seconds: float, reason: str) -> None:
        record = take(worker, stall)
        if stall is Stall.SILENT and "await chains" not in record.missing and record.loop_lag <= BLOCKED:
            reason = f"{reason}, though it lives: its heartbeat can't be written (is the disk full?)"
        path = _keep(worker, record)
        first = stall not in watched.since
        since = watched.since.setdefault(stall, datetime.now(UTC) - timedelta(seconds=seconds))
        where = _where(record) if stall in _HOLDING else {}
        watched.where[stall] = where
        if stall in _HOLDING:
            worker.held_by = where.get("where")
        data = {"stall": stall, "worker": worker.index, "since": since.isoformat(), **where}
        if path is not None:
            data["record"] = path
        if said := where.get("where"):
            reason = f"{reason}, in {said}"
        self._note("worker", str(worker.index), "stalled" if first else "still stalled", reason, data)

    def _over(self, worker: Worker, watched: _Watched, stall: Stall) -> None:
        watched.pace.over(stall)
        if stall in _HOLDING:
            worker.held_by = None
        since, until = watched.since.pop(stall, datetime.now(UTC)), datetime.now(UTC)
        where = watched.where.pop(stall, {})
        data = {"stall": stall, "worker": worker.index, "since": since.isoformat(), **where}
        reason = f"{stall.replace('_', ' ')} for {(until - since).total_seconds():.0f} s"
        self._note("worker", str(worker.index), "goes on", reason, {**data, "until": until.isoformat()})


def _where(record: StackRecord) -> dict[str, Any]:
    """What the event loop's thread executes, and for which attempt."""
    loop = next((thread for thread in record.threads if thread.loop), None)
    if loop is None or not loop.frames:
        return {}
    frame = own_frame(loop.frames) or loop.frames[-1]
    inner = loop.frames[-1]
    data = {"where": f"{frame.place} {frame.function}", "file": frame.file, "line": frame.line}
    data["innermost"] = f"{inner.place} {inner.function}"
    if loop.attempt is not None:
        data["attempt"] = loop.attempt.name
    return data


def _keep(worker: Worker, record: StackRecord) -> str | None:
    with contextlib.suppress(StorageError, OSError):  # a full disk: the journal tries too
        return stacks.keep(worker.home, record).name
    return None
