"""Where the timeline of an attempt is read from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hawk.bridge.evallog import LogUnreadable
from hawk.bridge.timeline import LogSamples, buffers, read_buffered
from hawk.core.timeline.build import Sources
from hawk.core.timeline.records import Blocked, Ongoing, SampleRecord, iso, milliseconds
from hawk.server.services.registry import now
from hawk.store import spans
from hawk.store.rundir import RunDir


class Place(NamedTuple):
    """Where an attempt is.

    Attributes:
        log: Name of its log.
        status: As the index has it; empty of one in flight.
    """

    run: RunDir
    uuid: str
    sample_id: str
    epoch: int
    eval_id: str
    task: str
    model: str
    log: str
    status: str

    @property
    def attempt(self) -> str:
        """Its name, as in the journal."""
        return f"{self.task}/{self.sample_id}/{self.epoch}"


class Found(NamedTuple):
    """What is recorded of an attempt.

    Attributes:
        logged: It is in its log, and will not change.
        writer: Process that wrote the buffer it was found in.
    """

    record: SampleRecord
    logged: bool
    writer: int | None = None


def read(place: Place, log: LogSamples | None = None) -> Found:
    """What is recorded of an attempt. Without any record, what others noted still makes a timeline.

    Args:
        log: Its log, where it is open already.
    """
    problem = None
    has_sandbox = False
    try:
        if log is not None:
            return Found(log.read(place.sample_id, place.epoch), True)
        with LogSamples(place.run.logs / place.log) as opened:
            has_sandbox = opened.has_sandbox
            record = opened.read(place.sample_id, place.epoch)
            if record.uuid in (place.uuid, ""):
                record.uuid = place.uuid
                return Found(record, True)
    except LogUnreadable as ex:
        problem = ex.message if place.status else None
    for db in buffers(place.run.buffers, place.log or None):
        buffered = read_buffered(db, place.sample_id, place.epoch)
        if buffered is not None and buffered.uuid == place.uuid:
            buffered.has_sandbox = has_sandbox
            return Found(buffered, False, _writer(db))
    return Found(SampleRecord(place.uuid, None, None, [], has_sandbox=has_sandbox, problem=problem), False)


def joined(place: Place, found: Found, ongoing: Ongoing | None = None) -> Sources:
    """An attempt's record with what others noted of it."""
    worker = spans.worker_of(place.run, place.eval_id) if place.eval_id else None
    noted = spans.noted_of(place.run, place.uuid)
    stalls: list[Blocked] = spans.stalls(place.run).get(worker.number, []) if worker is not None else []
    known = known_until(place, found, worker)
    return Sources(found.record, noted.requests, noted.notes, stalls, known, place.attempt, ongoing)


def known_until(place: Place, found: Found, worker: spans.Worker | None) -> float:
    """Milliseconds since 1970: now, while its worker lives, else the last that is known of that one."""
    present = now().timestamp() * 1000.0
    if found.record.completed_at is not None:
        return present
    if found.writer is not None:
        alive = spans.lives(place.run, found.writer)
    else:
        alive = not found.logged and (worker is None or worker.pid is not None)
    if alive:
        return present
    if worker is not None and worker.last_seen and worker.beat_by == found.writer:
        return milliseconds(worker.last_seen) or present
    last = max(
        (at for row in found.record.events for at in map(milliseconds, (row.completed, row.timestamp)) if at),
        default=milliseconds(found.record.started_at) or present,
    )
    number = worker.number if worker is not None else None
    return milliseconds(spans.noticed(place.run, number, iso(last))) or last


def _writer(db: Path) -> int | None:
    """The process of a buffer, which its name ends with."""
    pid = db.name.rsplit(".", 2)[1]
    return int(pid) if pid.isdigit() else None
