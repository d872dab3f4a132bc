"""Timelines: where the time of an attempt, or of a whole eval set, went."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from hawk.core.timeline.model import EvalSetTimeline, SampleTimeline, TimelineSamples
from hawk.server.context import Ctx
from hawk.server.parameters import BAD_ID, JobId, Uuid
from hawk.server.wire import describe, reply

router = APIRouter(prefix="/meta", tags=["timeline"])


@router.get("/samples/{uuid}/timeline", **describe(SampleTimeline, errors=(404, 422)))
def sample_timeline(ctx: Ctx, uuid: Uuid) -> Response:
    """The spans of one attempt in one tree, finished or in flight; none where nothing is known of it yet."""
    return Response(ctx.timelines.sample(uuid), media_type="application/json")


@router.get("/eval-sets/{eval_set_id}/timeline", **describe(EvalSetTimeline, errors=BAD_ID))
def eval_set_timeline(ctx: Ctx, eval_set_id: JobId) -> Response:
    """Totals by category over all attempts that have begun, and the longest calls of tools."""
    ctx.reports.run(eval_set_id)
    return reply(ctx.eval_set_timelines.totals(eval_set_id))


@router.get("/eval-sets/{eval_set_id}/timeline-samples", **describe(TimelineSamples, errors=BAD_ID))
def timeline_samples(ctx: Ctx, eval_set_id: JobId) -> Response:
    """The attempts of an eval set that a timeline can be asked for, at most 500."""
    ctx.reports.run(eval_set_id)
    return reply(ctx.eval_set_timelines.samples(eval_set_id))
