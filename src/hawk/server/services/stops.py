"""Asking a runner to stop, and waiting a moment for its word that it has heard."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from hawk.core.recorder.stacks import Who, matches
from hawk.core.snapshot import Task
from hawk.core.states import StopAction
from hawk.engine.protocol import Engine
from hawk.errors import ConflictError, NotFoundError
from hawk.server.services.feeds import Feeds
from hawk.server.services.registry import Registry
from hawk.store.rundir import JournalEntry, RunDir

ACKNOWLEDGE = 3.0
_POLL = 0.05


class StopRequest(msgspec.Struct):
    """The body of `POST /eval_sets/{id}/stop`: one sample, or without `sample_uuid` the whole job.

    Attributes:
        sample_uuid: Or what else names one attempt in flight: sample id, `sample/attempt` or `task/sample/attempt`.
    """

    action: StopAction = StopAction.SCORE
    sample_uuid: str | None = None


class StopReply(msgspec.Struct):
    """`acknowledged`: the runner has taken the request up; without it, it will when it can."""

    request_id: str
    acknowledged: bool


def stop(engine: Engine, registry: Registry, feeds: Feeds, job_id: str, request: StopRequest) -> StopReply:
    """Pass the request on, and wait up to `ACKNOWLEDGE` seconds for its acknowledgement.

    Raises:
        ConflictError: The job, or the sample, has ended; or several attempts in flight have that name.
        NotFoundError: No such job, or no such sample in it.
    """
    run = registry.run(job_id)
    served = feeds.status(job_id)
    if served.terminal:
        raise ConflictError(
            f"Eval set {job_id!r} has ended ({served.snapshot.status.label.lower()}): there is nothing to stop."
        )
    uuid = None if request.sample_uuid is None else in_flight(served.tasks(), job_id, request.sample_uuid)
    start = run.journal_file.stat().st_size if run.journal_file.exists() else 0
    request_id = engine.stop(job_id, request.action, uuid)
    acknowledged = _acknowledged(run, start, request_id)
    feeds.touch(job_id)
    return StopReply(request_id, acknowledged)


def in_flight(tasks: Iterable[Task], job_id: str, wanted: str) -> str:
    """The uuid of the one attempt in flight that somebody named.

    Raises:
        ConflictError: It has ended, or not begun; or several in flight have that name.
        NotFoundError: There is no attempt of that name.
    """
    found = [
        (who, sample.phase)
        for task in tasks
        for sample in task.samples
        if wanted and matches(who := Who(task.task_name, sample.id, sample.epoch, sample.uuid or ""), wanted)
    ]
    running = sorted((who.name, who.uuid) for who, phase in found if phase.in_flight)
    if len(running) > 1:
        names = ", ".join(f"{name} ({uuid})" for name, uuid in running[:5])
        raise ConflictError(
            f"{len(running)} attempts in flight are called {wanted!r}: {names}{', …' if len(running) > 5 else ''}.",
            remedy=f"hawk stop {job_id} --sample UUID",
        )
    if running:
        name, uuid = running[0]
        if not uuid:
            raise ConflictError(f"{name} is just starting: its uuid is not known yet.", remedy="Ask again.")
        return uuid
    if not found:
        raise NotFoundError(
            f"No sample {wanted!r} in eval set {job_id!r}.", remedy=f"hawk list samples {job_id}"
        )
    ended = [phase for _, phase in found if phase.final]
    became = f"ended ({ended[0]})" if len(ended) == len(found) else "not begun"
    raise ConflictError(f"Sample {wanted!r} has {became}: there is nothing to stop.")


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
