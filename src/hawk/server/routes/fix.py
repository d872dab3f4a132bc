"""Acting on verdicts."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import Response

from hawk.server.context import Ctx
from hawk.server.parameters import BAD_ID, JobId
from hawk.server.services.fixes import FixReply, FixRequest, fix, outcome
from hawk.server.wire import body, describe, reply

router = APIRouter(prefix="/monitoring/jobs/{job_id}", tags=["monitoring"])


@router.post("/fix", **describe(FixReply, takes=FixRequest, optional=True, errors=(*BAD_ID, 409)))
async def fix_verdict(ctx: Ctx, job_id: JobId, request: Request) -> Response:
    """Carry out the remedy of a verdict, or an action of its own; with `dry_run` only say what would be done.

    Without steps, nothing can be done: `said` is why, `remedy` what to do instead. 409: the verdict of that number
    has another cause by now.
    """
    wanted = await body(request, FixRequest)
    return reply(await asyncio.get_running_loop().run_in_executor(ctx.threads, fix, ctx, job_id, wanted))


@router.get("/fix/{request_id}", **describe(FixReply, errors=BAD_ID))
def fix_outcome(ctx: Ctx, job_id: JobId, request_id: str) -> Response:
    """What came of an earlier request."""
    return reply(outcome(ctx, job_id, request_id))
