"""A job's trace over HTTP: as text for who follows it, and what is in flight for who wonders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from hawk.core.recorder.about import About, Attempt
from hawk.core.recorder.trace import TraceActions
from hawk.core.snapshot import Task
from hawk.errors import ConflictError, NotFoundError
from hawk.server.errors import StreamBrokenError
from hawk.server.services.feeds import Served
from hawk.store.rundir import RunDir
from hawk.store.traces import Part, Traces

FILE = "trace.jsonl"
"""What the text is called: always the same, because a client that sees another name begins anew."""


def about(named: str | None, served: Callable[[], Served]) -> About | None:
    """What recognises the lines of a sample that a person named.

    Args:
        named: Its uuid, id, or `id/epoch`.
        served: The job's state, to look a uuid up in.
    """
    return None if not named else About(named, attempts(served().tasks()))


def attempts(tasks: list[Task]) -> Iterator[Attempt]:
    """The attempts of a job that have begun."""
    for task in tasks:
        for sample in task.samples:
            if sample.uuid is not None:
                yield Attempt(task.task_name, sample.id, sample.epoch, sample.uuid)


def opened(run: RunDir, worker: int | None, wanted: About | None) -> Traces:
    """The traces of a job, to be closed.

    Raises:
        NotFoundError: There are none yet.
    """
    traces = Traces(run, worker=worker, about=wanted)
    if not traces.names:
        traces.close()
        whose = f"Worker {worker} of {run.job_id!r}" if worker is not None else f"Job {run.job_id!r}"
        raise NotFoundError(f"{whose} has no trace yet.", remedy=f"hawk watch {run.job_id} --no-follow")
    return traces


def headers(traces: Traces, *, cursor: int, truncated: bool) -> dict[str, str]:
    """What a client needs to go on from here."""
    return {
        "x-hawk-trace-pod": ",".join(traces.names),
        "x-hawk-trace-file": FILE,
        "x-hawk-trace-size": str(cursor),
        "x-hawk-trace-truncated": "true" if truncated else "false",
        "cache-control": "no-store",
    }


def since(traces: Traces, cursor: int, run: RunDir, *, ended: bool) -> Part:
    """What has been written since.

    Raises:
        ConflictError: Nothing, and the job has ended: nothing will be.
    """
    part = traces.since(cursor)
    if ended and not part.lines and part.cursor == cursor:
        raise ConflictError(f"Job {run.job_id!r} has ended: its trace does not go on.")
    return part


def stream(traces: Traces, run: RunDir, stopping: Callable[[], bool]) -> Iterator[bytes]:
    """All of it, in parts; closes the traces.

    Raises:
        StreamBrokenError: The server is stopping, or the job was deleted meanwhile.
    """
    with traces:
        for part in traces.everything():
            if stopping():
                raise StreamBrokenError("the server is stopping")
            yield part
    if not run.spec_file.exists():
        raise StreamBrokenError(f"{run.job_id} has been deleted")


def actions(
    run: RunDir, *, worker: int | None, wanted: About | None, most: int, lines: int, now: datetime
) -> TraceActions:
    """What is in flight; nothing at all where there is no trace yet."""
    with Traces(run, worker=worker, about=wanted) as traces:
        return traces.actions(most=most, lines=lines, now=now)
