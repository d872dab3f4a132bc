"""Timelines of single attempts, finished, in flight, or of a worker that died. Finished ones are kept in memory for a while."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from hawk.bridge.evallog import LogUnreadable, read_header
from hawk.bridge.timeline import buffered
from hawk.core.snapshot import Activity
from hawk.core.states import ActivityType
from hawk.core.timeline.build import answer, build
from hawk.core.timeline.model import SampleTimeline
from hawk.core.timeline.records import Ongoing, milliseconds
from hawk.errors import NotFoundError
from hawk.server.services import samples
from hawk.server.services.feeds import Feeds
from hawk.server.services.registry import Registry, now
from hawk.server.services.timeline_sources import Place, joined, read
from hawk.store import queries
from hawk.store.database import Database
from hawk.store.rundir import RunDir

KEPT_BYTES = 64 * 1024 * 1024
"""Answers in memory, all together; that about an attempt of 10,000 events takes 3 MB."""

SETTLED = 5.0
"""Seconds after the end of an attempt until all that the middleman noted of it is on the disk for certain."""

_PHASES = {"init": "init", "solvers": "running", "scorers": "scoring"}
_WAITS = frozenset({ActivityType.APPROVAL, ActivityType.QUESTION})

_encoder = msgspec.json.Encoder()


class Timelines:
    """Timelines of the attempts under one root. Safe from any thread."""

    def __init__(self, registry: Registry, database: Database, feeds: Feeds) -> None:
        self._registry, self._database, self._feeds = registry, database, feeds
        self._kept = Kept(KEPT_BYTES, len)

    def sample(self, uuid: str) -> bytes:
        """A `SampleTimeline` as JSON.

        Raises:
            NotFoundError: No attempt has that uuid.
        """
        place = self.find(uuid)
        body = self._kept.get(uuid)
        if body is None:
            made, final = self.make(place)
            body = _encoder.encode(made)
            if final:
                self._kept.put(uuid, body)
        return body

    def find(self, uuid: str) -> Place:
        """Where an attempt is.

        Raises:
            NotFoundError: No attempt has that uuid.
        """
        try:
            found = samples.find(self._database, self._registry, self._feeds, uuid)
        except NotFoundError:
            place = self._left(uuid)
            if place is None:
                raise
            return place
        return Place(
            run=self._registry.run(found.eval_set_id),
            uuid=uuid,
            sample_id=found.id,
            epoch=found.epoch,
            eval_id=found.eval_id,
            task=found.task_name,
            model=found.model,
            log=found.filename,
            status="" if found.is_provisional else found.status,
        )

    def make(self, place: Place) -> tuple[SampleTimeline, bool]:
        """A timeline, and whether it will stay as it is."""
        found = read(place)
        in_flight = not place.status and not found.logged
        sources = joined(place, found, self._ongoing(place) if in_flight else None)
        made = answer(build(sources), sources, place.run.job_id, place.eval_id or None)
        made.task, made.sample_id, made.epoch, made.model = (
            place.task,
            place.sample_id,
            place.epoch,
            place.model,
        )
        made.phase = _phase(place.status, made)
        ended = milliseconds(found.record.completed_at) or sources.now
        settled = now().timestamp() * 1000.0 - ended > 1000.0 * SETTLED
        return made, found.logged and bool(place.status) and settled

    def _ongoing(self, place: Place) -> Ongoing | None:
        """What an attempt in flight waits for that no event tells, as its job's status has it."""
        with contextlib.suppress(NotFoundError):
            for task in self._feeds.status(place.run.job_id).tasks():
                for sample in task.samples if task.eval_id == place.eval_id else ():
                    if sample.uuid == place.uuid and sample.phase.in_flight:
                        return _wait(sample.activity)
        return None

    def _left(self, uuid: str) -> Place | None:
        """An attempt in flight when its job ended: nobody logged it, and only the buffer of a dead worker knows of it."""
        for db in sorted(
            self._registry.root.glob("*/buffer/*/*.db"), key=lambda path: path.name, reverse=True
        ):
            for known, sample_id, epoch in buffered(db):
                run = RunDir(db.parents[2])
                if known == uuid and self._there(run.job_id):
                    return _place_of(run, db.name.rsplit(".", 2)[0], uuid, sample_id, epoch)
        return None

    def _there(self, job_id: str) -> bool:
        with self._database.read() as session:
            job = queries.find_job(session, job_id)
        return job is not None and job.deleted_at is None


class Kept:
    """Answers in memory, those that were not asked for longest dropped first. Safe from any thread.

    Args:
        most: What all of them together may measure.
        measure: Of one.
    """

    def __init__(self, most: int, measure: Callable[[bytes], int]) -> None:
        self._most, self._measure = most, measure
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, bytes] = OrderedDict()
        self._total = 0

    def get(self, key: str) -> bytes | None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: str, value: bytes) -> None:
        with self._lock:
            old = self._entries.pop(key, None)
            self._total += self._measure(value) - (self._measure(old) if old is not None else 0)
            self._entries[key] = value
            while self._total > self._most:
                self._total -= self._measure(self._entries.popitem(last=False)[1])


def _place_of(run: RunDir, log: str, uuid: str, sample_id: str, epoch: int) -> Place:
    """What the attempt's log says of it, which may have been begun only."""
    try:
        header = read_header(run.logs / log)
        eval_id, task, model = header.eval_id, header.task, header.model
    except LogUnreadable:
        eval_id = task = model = ""
    return Place(run, uuid, sample_id, epoch, eval_id, task, model, log, status="")


def _wait(activity: Activity | None) -> Ongoing | None:
    if activity is None or activity.type not in _WAITS or not activity.since:
        return None
    return Ongoing(activity.type.value, activity.since, activity.detail or "")


def _phase(status: str, made: SampleTimeline) -> str:
    """Where the attempt stands, in the words of a job's status."""
    if status:
        return {"success": "completed", "error": "errored"}.get(
            status, "limit" if "limit" in status else status
        )
    phase = "waiting"
    for span in made.spans:
        phase = _PHASES.get(str(span.attributes.get("hawk.kind")), phase)
    return phase
