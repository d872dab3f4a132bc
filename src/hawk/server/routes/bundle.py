"""One file with everything that a maintainer needs to understand a job."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse

from hawk.core.recorder.bundle import archive_name
from hawk.server.context import Ctx
from hawk.server.parameters import BAD_ID, JobId
from hawk.server.services.bundles import Bundle, existing
from hawk.server.wire import describe

router = APIRouter(prefix="/monitoring/jobs/{job_id}", tags=["monitoring"])

MEDIA = "application/zstd"


@router.get("/bundle", **describe(content={MEDIA: {"type": "string", "format": "binary"}}, errors=BAD_ID))
def bundle(ctx: Ctx, job_id: JobId, transcripts: bool = False) -> Response:
    """A tar file packed with Zstandard. One that does not end as it should breaks the connection off."""
    run = existing(ctx, job_id)
    headers = {
        "content-disposition": f'attachment; filename="{archive_name(run.job_id)}"',
        "cache-control": "no-store",
        "x-accel-buffering": "no",
    }
    parts = Bundle(ctx, run, transcripts=transcripts).parts()
    return StreamingResponse(parts, headers=headers, media_type=MEDIA)
