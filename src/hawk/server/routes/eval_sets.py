"""Launch and control."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from hawk.server.context import Ctx
from hawk.server.parameters import BAD_ID, JobId
from hawk.server.services.requests import SubmitRequest
from hawk.server.services.stops import StopReply, StopRequest, stop
from hawk.server.services.submissions import SubmitReply
from hawk.server.wire import body, describe, reply

router = APIRouter(prefix="/eval_sets", tags=["eval sets"])


class DeleteReply(msgspec.Struct):
    eval_set_id: str
    deleted: bool = True


@router.post("/", **describe(SubmitReply, takes=SubmitRequest, errors=(*BAD_ID, 409)))
async def submit(ctx: Ctx, request: Request) -> Response:
    """Start an eval set, resume one, or find it running already: submitting twice is safe."""
    wanted = await body(request, SubmitRequest)
    loop = asyncio.get_running_loop()
    return reply(await loop.run_in_executor(ctx.threads, ctx.submissions.submit, wanted))


@router.delete("/{eval_set_id}", **describe(DeleteReply, errors=(*BAD_ID, 409)))
async def delete(ctx: Ctx, eval_set_id: JobId) -> Response:
    """End it and remove everything it produced. Again: the same answer."""
    await asyncio.get_running_loop().run_in_executor(ctx.threads, ctx.deletions.delete, eval_set_id)
    return reply(DeleteReply(eval_set_id))


@router.post(
    "/{eval_set_id}/stop",
    **describe(StopReply, status=202, takes=StopRequest, optional=True, errors=(*BAD_ID, 409)),
)
async def stop_eval_set(ctx: Ctx, eval_set_id: JobId, request: Request) -> Response:
    """Stop it, or one sample of it: what was done so far is scored, or marked as error."""
    wanted = await body(request, StopRequest)
    loop = asyncio.get_running_loop()
    answer = await loop.run_in_executor(
        ctx.threads, stop, ctx.engine, ctx.registry, ctx.feeds, eval_set_id, wanted
    )
    return reply(answer, 202)


@router.get("/{eval_set_id}/config", **describe(dict[str, Any], errors=BAD_ID))
def config(ctx: Ctx, eval_set_id: JobId) -> Response:
    """The config it runs with, secrets never; of a script, its path."""
    spec = ctx.registry.run(eval_set_id).read_spec()
    return reply({"script": spec.script} if spec.script else spec.config)
