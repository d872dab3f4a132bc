"""Asking a runner to stop, and waiting a moment for its word that it has heard."""

from __future__ import annotations

import time

import msgspec

from hawk.core.states import StopAction
from hawk.engine.protocol import Engine
from hawk.errors import ConflictError, NotFoundError
from hawk.server.services.feeds import Feeds
from hawk.server.services.registry import Registry
from hawk.store.rundir import JournalEntry, RunDir

ACKNOWLEDGE = 3.0
_POLL = 0.05


class StopRequest(msgspec.Struct):
    """The body of `POST /eval_sets/{id}/stop`: one sample, or without `sample_uuid` the whole job."""

    action: StopAction = StopAction.SCORE
    sample_uuid: str | None = None


class StopReply(msgspec.Struct):
    """`acknowledged`: the runner has taken the request up; without it, it will when it can."""

    request_id: str
    acknowledged: bool


def stop(engine: Engine, registry: Registry, feeds: Feeds, job_id: str, request: StopRequest) -> StopReply:
    """Pass the request on, and wait up to `ACKNOWLEDGE` seconds for its acknowledgement.

    Raises:
        ConflictError: The job, or the sample, has ended.
        NotFoundError: No such job, or no such sample in it.
    """
    run = registry.run(job_id)
    served = feeds.status(job_id)
    if served.terminal:
        raise ConflictError(
            f"Eval set {job_id!r} has ended ({served.snapshot.status.label.lower()}): there is nothing to stop."
        )
    if request.sample_uuid is not None:
        _require_in_flight(feeds, job_id, request.sample_uuid)
    start = run.journal_file.stat().st_size if run.journal_file.exists() else 0
    request_id = engine.stop(job_id, request.action, request.sample_uuid)
    acknowledged = _acknowledged(run, start, request_id)
    feeds.touch(job_id)
    return StopReply(request_id, acknowledged)


def _require_in_flight(feeds: Feeds, job_id: str, uuid: str) -> None:
    tasks = feeds.status(job_id).tasks()
    found = next((s for task in tasks for s in task.samples if s.uuid == uuid), None)
    if found is None:
        raise NotFoundError(
            f"No sample {uuid!r} in eval set {job_id!r}.", remedy=f"hawk list samples {job_id}"
        )
    if found.phase.final:
        raise ConflictError(f"Sample {uuid!r} has ended ({found.phase}): there is nothing to stop.")


def _acknowledged(run: RunDir, start: int, request_id: str) -> bool:
    deadline = time.monotonic() + ACKNOWLEDGE
    decoder = msgspec.json.Decoder(JournalEntry)
    while time.monotonic() < deadline:
        for line in _lines(run, start):
            try:
                entry = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if entry.kind == "stop" and entry.subject == request_id:
                return True
        time.sleep(_POLL)
    return False


def _lines(run: RunDir, start: int) -> list[bytes]:
    try:
        with run.journal_file.open("rb") as f:
            f.seek(start)
            return f.readlines()
    except OSError:
        return []
