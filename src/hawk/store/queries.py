"""What is asked of the index. Every function takes a session and returns plain rows, newest first."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session, contains_eager, selectinload

from hawk.core.states import JobStatus
from hawk.errors import NotFoundError
from hawk.store.items import (
    EvalItem,
    EvalSetItem,
    JobItem,
    SampleItem,
    SampleRef,
    SampleScore,
    ScoreItem,
)
from hawk.store.models import Eval, Job, Sample


def jobs(
    session: Session,
    *,
    search: str | None = None,
    created_by: str | None = None,
    status: str | None = None,
    offset: int = 0,
    limit: int = 50,
) -> tuple[list[JobItem], int]:
    """Jobs with their last known status, and how many match; deleted ones only when their status is asked for."""
    query = select(Job)
    query = query.where(Job.status == status) if status else query.where(Job.deleted_at.is_(None))
    if created_by:
        query = query.where(Job.created_by == created_by)
    if search:
        query = query.where(Job.job_id.contains(search, autoescape=True))
    total = _count(session, query)
    rows = session.scalars(query.order_by(Job.created_at.desc(), Job.job_id).offset(offset).limit(limit))
    items = [
        JobItem(
            job_id=job.job_id,
            job_type=job.job_type,
            created_at=job.created_at,
            created_by=job.created_by or "",
            status=job.status,
            finished_at=job.finished_at,
        )
        for job in rows
    ]
    return items, total


def eval_sets(
    session: Session, *, search: str | None = None, offset: int = 0, limit: int = 50
) -> tuple[list[EvalSetItem], int]:
    """Eval sets that have not been deleted; `search` looks in id and task names."""
    query = select(Job).where(Job.deleted_at.is_(None))
    if search:
        named = select(Eval.job_id).where(Eval.task_name.icontains(search, autoescape=True))
        query = query.where(or_(Job.job_id.contains(search.lower(), autoescape=True), Job.job_id.in_(named)))
    total = _count(session, query)
    found = query.options(selectinload(Job.evals)).order_by(Job.created_at.desc(), Job.job_id)
    items = [
        EvalSetItem(
            eval_set_id=job.job_id,
            created_at=job.created_at,
            eval_count=len(job.evals),
            latest_eval_created_at=max((e.created_at for e in job.evals), default=job.created_at),
            task_names=sorted({e.task_name for e in job.evals}),
            created_by=job.created_by or "",
            status=job.status,
        )
        for job in session.scalars(found.offset(offset).limit(limit))
    ]
    return items, total


def evals(
    session: Session, *, eval_set_id: str | None, offset: int = 0, limit: int = 50
) -> tuple[list[EvalItem], int]:
    """Evals, one a task, in the order they were made."""
    query = select(Eval).join(Eval.job).where(Job.deleted_at.is_(None))
    if eval_set_id:
        query = query.where(Eval.job_id == eval_set_id)
    total = _count(session, query)
    found = query.options(contains_eager(Eval.job)).order_by(Eval.created_at, Eval.eval_id)
    return [_eval_item(row) for row in session.scalars(found.offset(offset).limit(limit))], total


def samples(
    session: Session,
    root: Path,
    *,
    eval_set_id: str | None = None,
    search: str | None = None,
    status: Collection[str] = (),
    offset: int = 0,
    limit: int = 50,
) -> tuple[list[SampleItem], int]:
    """Finished attempts. Every word of `search` must be found in id, task, model or error, begin the log's
    name, or be the uuid."""
    query = select(Sample).join(Sample.eval).join(Eval.job).where(Job.deleted_at.is_(None))
    if eval_set_id:
        query = query.where(Eval.job_id == eval_set_id)
    if status:
        query = query.where(Sample.status.in_(status))
    for word in (search or "").split():
        query = query.where(
            or_(
                Sample.search_text.contains(word.lower(), autoescape=True),
                Sample.uuid == word,
                # From its beginning: the random part of a name would be found by any short word.
                Sample.location.startswith(word, autoescape=True),
                Eval.eval_id == word,
            )
        )
    total = _count(session, query)
    found = query.options(
        contains_eager(Sample.eval).contains_eager(Eval.job), selectinload(Sample.scores)
    ).order_by(Sample.completed_at.desc(), Sample.pk.desc())
    rows = session.scalars(found.offset(offset).limit(limit)) if limit else ()
    return [_sample_item(row, root) for row in rows], total


def sample(session: Session, root: Path, uuid: str) -> SampleRef | None:
    """Where a finished attempt is found, or None."""
    row = _sample(session, uuid)
    if row is None:
        return None
    return SampleRef(
        uuid=row.uuid,
        id=row.sample_id,
        epoch=row.epoch,
        eval_set_id=row.eval.job_id,
        eval_id=row.eval_id,
        task_name=row.eval.task_name,
        model=row.eval.model,
        status=row.status,
        filename=row.location,
        location=_location(row, root),
    )


def scores(session: Session, uuid: str) -> list[ScoreItem]:
    """Scores of a finished attempt.

    Raises:
        NotFoundError: There is none with that uuid.
    """
    row = _sample(session, uuid)
    if row is None:
        raise NotFoundError(f"No finished sample {uuid!r}.", remedy="hawk list samples")
    return [
        ScoreItem(
            scorer=score.scorer,
            value=score.value,
            value_float=score.value_float,
            value_nonfinite=score.value_nonfinite,
            scored_at=row.completed_at,
        )
        for score in row.scores
    ]


def status_counts(session: Session) -> dict[str, int]:
    """How many jobs have each status."""
    rows = session.execute(
        select(Job.status, func.count()).where(Job.deleted_at.is_(None)).group_by(Job.status)
    )
    return {row[0]: row[1] for row in rows}


def sample_count(session: Session, job_id: str) -> int:
    """Finished attempts of a job in the index."""
    query = select(func.count()).select_from(Sample).join(Sample.eval).where(Eval.job_id == job_id)
    return session.scalar(query) or 0


def known_uuids(session: Session, job_ids: Collection[str]) -> set[str]:
    """Uuids of the indexed attempts of some jobs."""
    query = select(Sample.uuid).join(Sample.eval).where(Eval.job_id.in_(job_ids))
    return set(session.scalars(query))


def finished(session: Session) -> set[str]:
    """Ids of jobs that have ended and are indexed."""
    return set(session.scalars(select(Job.job_id).where(Job.finished_at.is_not(None))))


def find_job(session: Session, job_id: str) -> Job | None:
    """A job's row, deleted or not."""
    return session.get(Job, job_id)


def deleted(session: Session) -> set[str]:
    """Ids of deleted jobs."""
    return set(session.scalars(select(Job.job_id).where(Job.status == JobStatus.DELETED)))


def _sample(session: Session, uuid: str) -> Sample | None:
    query = (
        select(Sample).join(Sample.eval).join(Eval.job).where(Sample.uuid == uuid, Job.deleted_at.is_(None))
    )
    found = query.options(contains_eager(Sample.eval), selectinload(Sample.scores))
    return session.scalars(found.order_by(Sample.pk.desc()).limit(1)).first()


def _count(session: Session, query: Select[Any]) -> int:
    return session.scalar(select(func.count()).select_from(query.order_by(None).subquery())) or 0


def _location(row: Sample, root: Path) -> str:
    return str(root / row.eval.job_id / "logs" / row.location)


def _eval_item(row: Eval) -> EvalItem:
    return EvalItem(
        id=row.eval_id,
        eval_set_id=row.job_id,
        task_id=row.task_id,
        task_name=row.task_name,
        model=row.model,
        status=row.status,
        total_samples=row.total_samples,
        completed_samples=row.completed_samples,
        created_by=row.job.created_by,
        started_at=row.started_at,
        completed_at=row.completed_at,
        filename=row.location,
        metrics=row.metrics,
        error=row.error,
    )


def _sample_item(row: Sample, root: Path) -> SampleItem:
    first = row.scores[0] if row.scores else None
    return SampleItem(
        uuid=row.uuid,
        id=row.sample_id,
        epoch=row.epoch,
        status=row.status,
        eval_id=row.eval_id,
        eval_set_id=row.eval.job_id,
        task_name=row.eval.task_name,
        model=row.eval.model,
        location=_location(row, root),
        filename=row.location,
        created_by=row.eval.job.created_by,
        error_message=row.error,
        limit=row.limit,
        retries=row.retries,
        started_at=row.started_at,
        completed_at=row.completed_at,
        total_time_seconds=row.total_time,
        working_time_seconds=row.working_time,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        total_tokens=row.total_tokens,
        message_count=row.message_count,
        scores=[SampleScore(s.scorer, s.value, s.value_float, s.value_nonfinite) for s in row.scores],
        score_value=first.value if first else None,
        score_scorer=first.scorer if first else None,
    )
