"""What a job's workers wait for, frame by frame."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from hawk.core.recorder.stacktext import render
from hawk.server.context import Ctx
from hawk.server.parameters import BAD_ID, JobId
from hawk.server.services import stackrecords
from hawk.server.services.stackrecords import Stacks
from hawk.server.wire import describe, reply, schema

router = APIRouter(prefix="/monitoring/jobs/{job_id}", tags=["monitoring"])

_CONTENT = {
    "text/plain": {"description": "For a person.", "type": "string"},
    "application/json": schema(Stacks),
}


@router.get("/stacktrace", **describe(content=_CONTENT, errors=BAD_ID))
def stacktrace(
    ctx: Ctx,
    job_id: JobId,
    native: bool = False,
    format: Literal["text", "json"] = "text",
    sample: Annotated[str | None, Query(max_length=500)] = None,
    worker: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    all: bool = False,
    before: bool = False,
) -> Response:
    """Threads and await chains of each worker: now, where its process lives, else as they were kept last.

    `before`: of workers that were started again, what the process before did last.
    """
    run = ctx.registry.run(job_id)
    run.read_spec()
    if before:
        found = stackrecords.look_before(run, sample=sample, worker=worker)
    else:
        found = stackrecords.look(ctx.engine, run, native=native, sample=sample, worker=worker)
    pods = ", ".join(f"worker/{record.worker}" for record in found.records)
    if format == "json":
        answer = reply(found)
    else:
        text = render(found.records, everything=all) + stackrecords.started_again(found)
        answer = Response(text.encode("utf-8", "replace"), media_type="text/plain; charset=utf-8")
    answer.headers["X-Hawk-Stacktrace-Pod"] = pods
    return answer
