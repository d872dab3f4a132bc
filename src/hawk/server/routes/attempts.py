"""What came of attempts: reports, comparisons, and the files themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import Response, StreamingResponse

from hawk.core.attempts.report import Comparison, Report
from hawk.server.context import Ctx
from hawk.server.parameters import BAD_ID, JobId, JobIdQuery
from hawk.server.services.attempts import Served
from hawk.server.services.attempts_export import export
from hawk.server.wire import NOT_MODIFIED, describe

router = APIRouter(prefix="/meta", tags=["attempts"])

Known = Annotated[str | None, Header(alias="if-none-match")]


@router.get("/eval-sets/{eval_set_id}/report", **describe(Report, errors=BAD_ID, also=NOT_MODIFIED))
def report(ctx: Ctx, eval_set_id: JobId, known: Known = None) -> Response:
    """The report of an eval set's attempts so far; 304 while it is still the one whose etag the request names."""
    return _answer(ctx.reports.report(eval_set_id), known)


@router.get("/compare", **describe(Comparison, errors=BAD_ID, also=NOT_MODIFIED))
def compare(ctx: Ctx, a: JobIdQuery, b: JobIdQuery, known: Known = None) -> Response:
    """What changed from eval set `a` to `b`, and whether that is more than noise."""
    return _answer(ctx.reports.compare(a, b), known)


@router.get(
    "/eval-sets/{eval_set_id}/attempts/export",
    **describe(content={"application/x-tar": {"type": "string", "format": "binary"}}, errors=BAD_ID),
)
def export_attempts(ctx: Ctx, eval_set_id: JobId) -> Response:
    """Every result and workspace as a tar file. One that does not end as it should breaks the connection off."""
    run = ctx.reports.run(eval_set_id)
    headers = {
        "content-disposition": f'attachment; filename="{run.job_id}-attempts.tar"',
        "cache-control": "no-store",
        "x-accel-buffering": "no",
    }
    return StreamingResponse(
        export(run, ctx.stopping.is_set), headers=headers, media_type="application/x-tar"
    )


def _answer(served: Served, known: str | None) -> Response:
    headers = {"etag": served.etag, "cache-control": "no-cache"}
    if known and served.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(served.body, headers=headers, media_type="application/json")
