"""What there is: jobs, eval sets, evals, samples. From the index, and from snapshots what is still in flight."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import Response

from hawk.bridge.evallog import LogUnreadable, read_sample
from hawk.bridge.transcript import render
from hawk.errors import ConflictError, NotFoundError
from hawk.server.context import Context, Ctx
from hawk.server.parameters import Search, Uuid, Word, Words
from hawk.server.services import samples
from hawk.server.wire import describe, reply
from hawk.store import queries
from hawk.store.items import (
    EvalItem,
    EvalSetItem,
    JobItem,
    Page,
    SampleItem,
    SampleRef,
    ScoreItem,
    page_of,
)

router = APIRouter(prefix="/meta", tags=["meta"])

T = TypeVar("T")
Number = Annotated[int, Query(ge=1, le=1_000_000)]
Limit = Annotated[int, Query(ge=1, le=500)]
TRANSCRIPT = {"text/markdown": {"type": "string"}, "application/json": {"type": "object"}}


class JobPage(Page[JobItem]):
    """A page of jobs, and how many there are of each status."""

    status_counts: dict[str, int]


@router.get("/jobs", **describe(JobPage))
def jobs(
    ctx: Ctx,
    page: Number = 1,
    limit: Limit = 50,
    search: Search = None,
    created_by: Word = None,
    status: Word = None,
) -> Response:
    """Jobs, newest first."""
    with ctx.database.read() as session:
        items, total = queries.jobs(
            session,
            search=search,
            created_by=created_by,
            status=status,
            offset=(page - 1) * limit,
            limit=limit,
        )
        counts = queries.status_counts(session)
    for item in items:
        item.status = ctx.feeds.job_status(item.job_id, item.status)
    whole = page_of(items, total, page, limit)
    return reply(JobPage(**msgspec.structs.asdict(whole), status_counts=counts))


@router.get("/eval-sets", **describe(Page[EvalSetItem]))
def eval_sets(ctx: Ctx, page: Number = 1, limit: Limit = 50, search: Search = None) -> Response:
    """Eval sets, newest first; `search` looks in ids and task names."""
    with ctx.database.read() as session:
        items, total = queries.eval_sets(session, search=search, offset=(page - 1) * limit, limit=limit)
    for item in items:
        item.status = ctx.feeds.job_status(item.eval_set_id, item.status)
    return reply(page_of(items, total, page, limit))


@router.get("/evals", **describe(Page[EvalItem], errors=(404,)))
def evals(ctx: Ctx, eval_set_id: Word = None, page: Number = 1, limit: Limit = 100) -> Response:
    """Evals: one a (task, agent, model)."""
    _require(ctx, eval_set_id)
    with ctx.database.read() as session:
        items, total = queries.evals(session, eval_set_id=eval_set_id, offset=(page - 1) * limit, limit=limit)
    return reply(page_of(items, total, page, limit))


@router.get("/samples", **describe(Page[SampleItem], errors=(404,)))
def list_samples(
    ctx: Ctx,
    eval_set_id: Word = None,
    search: Search = None,
    status: Words = None,
    page: Number = 1,
    limit: Limit = 50,
) -> Response:
    """Attempts: those in flight first, then the finished, newest first."""
    _require(ctx, eval_set_id)
    wanted = samples.Wanted(eval_set_id, search, tuple(status or ()), (page - 1) * limit, limit)
    items, total = samples.page(ctx.database, ctx.registry, ctx.feeds, wanted)
    return reply(page_of(items, total, page, limit))


@router.get("/samples/{uuid}", **describe(SampleRef, errors=(404, 422)))
def sample(ctx: Ctx, uuid: Uuid) -> Response:
    """Where an attempt is found."""
    return reply(samples.find(ctx.database, ctx.registry, ctx.feeds, uuid))


@router.get("/samples/{uuid}/scores", **describe(list[ScoreItem], errors=(404, 422)))
def scores(ctx: Ctx, uuid: Uuid) -> Response:
    """An attempt's scores; none while it is in flight."""
    found = samples.find(ctx.database, ctx.registry, ctx.feeds, uuid)
    if found.is_provisional:
        return reply([])
    with ctx.database.read() as session:
        rows = queries.scores(session, uuid)
    return reply(samples.explained(ctx.registry.run(found.eval_set_id), found, rows))


@router.get("/samples/{uuid}/transcript", **describe(content=TRANSCRIPT, errors=(404, 409)))
def transcript(ctx: Ctx, uuid: Uuid, raw: bool = False) -> Response:
    """An attempt as Markdown; with `raw` Inspect's own JSON."""
    found = samples.find(ctx.database, ctx.registry, ctx.feeds, uuid)
    path = ctx.registry.run(found.eval_set_id).logs / found.filename
    try:
        content = read_sample(path, found.id, found.epoch)
    except LogUnreadable as ex:
        if found.is_provisional:
            raise ConflictError(
                f"Sample {uuid!r} is still in flight: its transcript is written when it ends.",
                remedy=f"hawk watch {found.eval_set_id}",
            ) from ex
        raise NotFoundError(ex.message, remedy=f"hawk list samples {found.eval_set_id}") from ex
    if raw:
        return Response(samples.as_json(content), media_type="application/json")
    text = render(content, task=found.task_name, model=found.model)
    return Response(text.encode("utf-8", "replace"), media_type="text/markdown; charset=utf-8")


def _require(ctx: Context, eval_set_id: str | None) -> None:
    """An unknown id is an error, not an empty list: it is nearly always misspelt."""
    if eval_set_id is None:
        return
    with ctx.database.read() as session:
        job = queries.find_job(session, eval_set_id)
    if job is None or job.deleted_at is not None:
        raise NotFoundError(f"No eval set {eval_set_id!r}.", remedy="hawk list eval-sets")
