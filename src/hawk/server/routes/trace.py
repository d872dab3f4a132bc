"""The trace of a job's workers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from hawk.core.recorder.trace import TraceActions
from hawk.server.context import Context, Ctx
from hawk.server.parameters import BAD_ID, JobId, Word
from hawk.server.services import traces
from hawk.server.services.registry import now
from hawk.server.wire import describe, reply
from hawk.store.rundir import RunDir

router = APIRouter(prefix="/monitoring/jobs/{job_id}", tags=["monitoring"])

MOST_LINES = 50_000
MOST_ACTIONS = 100_000
TEXT = {"text/plain": {"type": "string", "description": "Lines of JSON, as Inspect writes them."}}

WorkerNumber = Annotated[int | None, Query(ge=0, le=100_000, description="Only this worker's.")]


@router.get("/trace", **describe(content=TEXT, errors=(*BAD_ID, 409)))
def trace(
    ctx: Ctx,
    job_id: JobId,
    lines: Annotated[int, Query(ge=1, le=MOST_LINES)] = 100,
    full: bool = False,
    since_bytes: Annotated[int | None, Query(ge=0)] = None,
    sample: Word = None,
    worker: WorkerNumber = None,
) -> Response:
    """The last lines of the trace, what came after `since_bytes`, or all that is kept.

    X-Hawk-Trace-Size is where to go on. Asked to go on where a job has ended and nothing has come: 409.
    """
    run = _existing(ctx, job_id)
    wanted = traces.about(sample, lambda: ctx.feeds.status(job_id))
    found = traces.opened(run, worker, wanted)
    if full:
        headers = {**traces.headers(found, cursor=found.end, truncated=False), "x-accel-buffering": "no"}
        parts = traces.stream(found, run, ctx.stopping.is_set)
        return StreamingResponse(parts, headers=headers, media_type="text/plain")
    with found:
        if since_bytes is None:
            part = found.tail(lines)
        else:
            ended = ctx.feeds.status(job_id).terminal
            part = traces.since(found, since_bytes, run, ended=ended)
        headers = traces.headers(found, cursor=part.cursor, truncated=part.truncated)
    return Response(b"".join(part.lines), headers=headers, media_type="text/plain")


@router.get("/trace/actions", **describe(TraceActions, errors=BAD_ID))
def trace_actions(
    ctx: Ctx,
    job_id: JobId,
    sample: Word = None,
    worker: WorkerNumber = None,
    lines: Annotated[int, Query(ge=0, le=MOST_LINES)] = 100,
    most: Annotated[int, Query(ge=0, le=MOST_ACTIONS, description="Actions in flight.")] = 1000,
) -> Response:
    """The actions in flight, the longest first, and the last lines of the trace."""
    run = _existing(ctx, job_id)
    wanted = traces.about(sample, lambda: ctx.feeds.status(job_id))
    return reply(traces.actions(run, worker=worker, wanted=wanted, most=most, lines=lines, now=now()))


def _existing(ctx: Context, job_id: str) -> RunDir:
    run = ctx.registry.run(job_id)
    run.read_spec()
    return run
