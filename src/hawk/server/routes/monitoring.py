"""What a job does now."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Header, Query
from fastapi.responses import Response, StreamingResponse

from hawk.core.loglevels import LogLevel
from hawk.core.plan import Plan
from hawk.core.snapshot import StatusResponse
from hawk.core.states import JobStatus
from hawk.errors import NotFoundError
from hawk.server.context import Context, Ctx
from hawk.server.parameters import BAD_ID, JobId, Since, Word, Words
from hawk.server.services import report, traces
from hawk.server.services.logs import Logs, Wanted
from hawk.server.services.registry import now
from hawk.server.wire import NOT_MODIFIED, describe, reply, schema
from hawk.store import queries
from hawk.store.rundir import JournalEntry, RunDir

router = APIRouter(prefix="/monitoring/jobs/{job_id}", tags=["monitoring"])

MOST_ENTRIES = 10_000
_STATUS = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema(StatusResponse)}
EVENTS = {
    "text/event-stream": {
        "description": "Each event.",
        "type": "object",
        "properties": {"event": {"const": "status"}, "data": _STATUS},
        "required": ["event", "data"],
    }
}


class ImportSummary(msgspec.Struct):
    """How far a finished job's logs are indexed."""

    total: int
    pending: int = 0
    importing: int = 0
    success: int = 0
    failed: int = 0
    details: list[dict[str, str | None]] = []


class JobDetails(msgspec.Struct):
    import_summary: ImportSummary | None
    warehouse_sample_count: int
    trouble_reason: str | None


class JobStatusReply(msgspec.Struct):
    """The short status of a job."""

    status: str
    pending_interactions: int
    details: JobDetails
    job_type: str = "eval_set"
    pod_status: dict[str, Any] | None = None
    pod_status_error: str | None = None
    unschedulable_sandboxes: int = 0
    admission: dict[str, Any] | None = None


class Journal(msgspec.Struct):
    entries: list[JournalEntry]


@router.get("/eval-set-status", **describe(StatusResponse, errors=BAD_ID, also=NOT_MODIFIED))
async def eval_set_status(
    ctx: Ctx, job_id: JobId, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """The whole state of an eval set; 304 while it is still the one whose etag the request names."""
    served = await ctx.feeds.feed(job_id).get()
    headers = {"etag": served.etag, "cache-control": "no-cache"}
    if if_none_match and served.etag in (tag.strip().removeprefix("W/") for tag in if_none_match.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(served.body, headers=headers, media_type="application/json")


@router.get("/eval-set-status/stream", **describe(content=EVENTS, errors=BAD_ID))
async def stream(
    ctx: Ctx, job_id: JobId, accept_encoding: Annotated[str | None, Header()] = None
) -> Response:
    """The same as server-sent events: `status` whenever it changes; ends when the job has ended.

    In Zstandard, each event in a frame of its own, for who accepts that and nothing else (`Accept-Encoding:
    zstd`): HTTP libraries that offer it among others take the end of the first frame for the end of all.
    """
    feed = ctx.feeds.feed(job_id)
    await feed.get()  # an unknown id is a 404, not a broken stream
    packed = (accept_encoding or "").strip().lower() == "zstd"
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no", "vary": "accept-encoding"}
    if packed:
        headers["content-encoding"] = "zstd"
    return StreamingResponse(feed.stream(packed=packed), headers=headers, media_type="text/event-stream")


@router.get("/job-status", **describe(JobStatusReply, errors=BAD_ID))
def job_status(ctx: Ctx, job_id: JobId) -> Response:
    """The short status of any job."""
    snapshot = ctx.feeds.status(job_id).snapshot
    with ctx.database.read() as session:
        indexed = queries.sample_count(session, job_id)
    details = JobDetails(_import_summary(ctx, job_id, snapshot.status), indexed, snapshot.trouble_reason)
    return reply(JobStatusReply(snapshot.status, snapshot.pending_interactions, details))


@router.get("/status", **describe(report.MonitoringReport, errors=BAD_ID))
def status(ctx: Ctx, job_id: JobId, since: Since = None) -> Response:
    """Everything known about a job: processes, metrics, logs, config."""
    served = ctx.feeds.status(job_id)
    snapshot = served.snapshot
    run = ctx.registry.run(job_id)
    moment = now()
    begin = since or moment - timedelta(days=1)
    errors = dict(snapshot.errors)
    processes = report.processes(ctx.engine, job_id, errors)
    data = report.MonitoringData(
        job_id=job_id,
        provider=processes.get("engine") or ctx.engine.name,
        fetch_timestamp=moment,
        since=begin,
        logs=Logs(ctx.logs.read(run, since=begin, limit=500)),
        metrics=snapshot.metrics,
        errors=errors,
        user_config=report.user_config(run),
        pod_status=snapshot.pods,
        performance=report.performance(served.tasks()),
        processes=processes,
    )
    return reply(report.MonitoringReport(data))


@router.get("/logs", **describe(Logs, errors=BAD_ID))
def logs(
    ctx: Ctx,
    job_id: JobId,
    since: Since = None,
    from_start: bool = False,
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = 100,
    sort: Literal["asc", "desc"] = "desc",
    level: Annotated[LogLevel | None, Query(description="This one and above.")] = None,
    worker: Annotated[
        Words, Query(description="Whose lines: a worker's number, supervisor, journal, cluster.")
    ] = None,
    sample: Word = None,
    cursor: Word = None,
) -> Response:
    """Lines of supervisor, workers, journal and cluster, by time.

    With the `cursor` of an earlier answer: what was written since, oldest first, about a MiB of each file.
    """
    run = _existing(ctx, job_id)
    about = traces.about(sample, lambda: ctx.feeds.status(job_id))
    wanted = Wanted(frozenset(worker) if worker else None, level, about)
    if cursor is not None:
        return reply(ctx.logs.after(run, cursor, wanted=wanted))
    newest_first = sort == "desc"
    return reply(
        ctx.logs.page(
            run, since=since, from_start=from_start, limit=limit, newest_first=newest_first, wanted=wanted
        )
    )


@router.get("/plan", **describe(Plan, errors=BAD_ID))
def plan(ctx: Ctx, job_id: JobId) -> Response:
    """What the job will run; 404 until its tasks have been enumerated."""
    found = _existing(ctx, job_id).read_plan()
    if found is None:
        raise NotFoundError(f"Eval set {job_id!r} has no plan yet.", remedy=f"hawk watch {job_id}")
    return reply(found)


@router.get("/journal", **describe(Journal, errors=BAD_ID))
def journal(ctx: Ctx, job_id: JobId) -> Response:
    """Every state change of job, workers and attempts, with its reason."""
    return reply(Journal(list(_existing(ctx, job_id).journal())))


def _existing(ctx: Context, job_id: str) -> RunDir:
    run = ctx.registry.run(job_id)
    run.read_spec()
    return run


def _import_summary(ctx: Context, job_id: str, status: JobStatus) -> ImportSummary | None:
    with ctx.database.read() as session:
        rows, total = queries.evals(session, eval_set_id=job_id, limit=10_000)
    state = ctx.registry.get(job_id)
    failed = dict(state.import_errors) if state else {}
    if not rows and not failed:
        return None
    waits = status is JobStatus.IMPORTING
    details: list[dict[str, str | None]] = [
        {"location": name, "status": "pending" if waits else "failed", "error_message": why}
        for name, why in failed.items()
    ]
    return ImportSummary(
        total=total + len(failed),
        pending=len(failed) if waits else 0,
        success=total,
        failed=0 if waits else len(failed),
        details=details,
    )
