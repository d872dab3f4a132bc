"""The stacks of a job's workers: of those that live, as they are now; of the others, what was kept."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from hawk.core.recorder.stacks import StackRecord, only
from hawk.engine.protocol import Engine
from hawk.errors import NotFoundError
from hawk.store import stacks
from hawk.store.rundir import RunDir


class Kept(msgspec.Struct):
    """A record of before that is still there; `file` lies in the run directory."""

    worker: int
    at: str
    why: str
    file: str


class Stacks(msgspec.Struct):
    """The body of `GET /monitoring/jobs/{id}/stacktrace?format=json`; `live`: at least one record is of now."""

    job_id: str
    as_of: str
    live: bool
    records: list[StackRecord]
    kept: list[Kept] = []


def look(engine: Engine, run: RunDir, *, native: bool, sample: str | None, worker: int | None) -> Stacks:
    """All that is known.

    Args:
        native: Frames of C code too, for workers that live.
        sample: Only chains of this attempt: uuid, sample id, `sample/attempt` or `task/sample/attempt`.
        worker: Only this one.

    Raises:
        NotFoundError: Nothing was ever recorded, or no record knows that attempt.
    """
    records = engine.stacks(run.job_id, native=native) or []
    living = {record.worker for record in records}
    records += [
        record for index in run.worker_indices() if index not in living for record in _before(run, index)
    ]
    if living:  # workers that ended as they should say nothing that matters while others run
        records = [record for record in records if record.live or record.ended]
    records = [record for record in records if worker is None or record.worker == worker]
    if not records:
        raise NotFoundError(
            f"No stacks of {run.job_id!r} are kept: none of its workers has run for a second yet.",
            remedy=f"hawk watch {run.job_id}",
        )
    if sample is not None:
        what = f"No worker of {run.job_id!r} has a task of sample {sample!r}: it waits for its turn, or has ended."
        records = _about(records, sample, what, f"hawk list samples {run.job_id}")
    live = any(record.live for record in records)
    return Stacks(run.job_id, datetime.now(UTC).isoformat(), live, records, _kept(run))


def look_before(run: RunDir, *, sample: str | None, worker: int | None) -> Stacks:
    """What processes of workers that were started again did last, before they died.

    Args:
        sample, worker: As for `look`.

    Raises:
        NotFoundError: None was, or none of them was at that attempt.
    """
    records = []
    for index in run.worker_indices():
        record = stacks.died(run.worker(index)) if worker in (None, index) else None
        if record is not None:
            record.live, record.ended = False, _end(run, index, earlier=True)
            records.append(record)
    if not records:
        raise NotFoundError(
            f"No worker of {run.job_id!r} was started again after its process had died.",
            remedy=f"hawk stacktrace {run.job_id}",
        )
    if sample is not None:
        what = f"No process of {run.job_id!r} that died had a task of sample {sample!r}."
        records = _about(records, sample, what, f"hawk stacktrace {run.job_id} --before")
    return Stacks(run.job_id, datetime.now(UTC).isoformat(), False, records, _kept(run))


def _about(records: list[StackRecord], sample: str, without: str, remedy: str) -> list[StackRecord]:
    found = [its for record in records if (its := only(record, sample)).chains]
    if not found:
        raise NotFoundError(without, remedy=remedy)
    return found


def started_again(found: Stacks) -> str:
    """A line about workers whose earlier process can be asked for; empty where there is none."""
    workers = sorted({kept.worker for kept in found.kept if kept.why == stacks.DIED})
    if not workers or not found.live:
        return ""
    which = ", ".join(map(str, workers))
    return f"\nStarted again after its process had died: worker {which} (hawk stacktrace --before shows it)\n"


def _before(run: RunDir, index: int) -> list[StackRecord]:
    record = stacks.last_record(run.worker(index))
    if record is None:
        return []
    record.live = False
    record.ended = _end(run, index) or record.ended
    return [record]


def _end(run: RunDir, index: int, *, earlier: bool = False) -> str | None:
    """How a worker's process ended, as the journal says; None when it ended well.

    Args:
        earlier: Of the last process that the journal knows the end of, not of the last one there was.
    """
    found: str | None = "nobody saw how" if earlier else None
    for entry in run.journal():
        if (entry.kind, entry.subject) != ("worker", str(index)):
            continue
        if entry.state == "exited":
            found = entry.reason or None
        elif entry.state in ("started", "adopted") and not earlier:
            found = "nobody saw how"
    return found


def _kept(run: RunDir) -> list[Kept]:
    found = []
    for index in run.worker_indices():
        for path in stacks.kept(run.worker(index)):
            try:
                stamp, _, why = path.stem.partition("-")
                at = datetime.strptime(stamp, "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
            except ValueError:
                continue
            found.append(Kept(index, at.isoformat(), why, str(path.relative_to(run.path))))
    return sorted(found, key=lambda kept: kept.at)
