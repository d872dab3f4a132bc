"""Attempts in the index: put there as jobs end, asked for as the next ones are planned."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from hawk.core.attempts.history import Past
from hawk.core.attempts.results import Pair
from hawk.store.attempts import read_results
from hawk.store.models import Attempt
from hawk.store.rundir import RunDir

NEWEST = 10_000
"""Attempts that a plan is told of: enough for its medians, and some megabytes."""


def index_attempts(session: Session, run: RunDir) -> int:
    """Take over a job's attempts from its run directory; returns how many. The job must be registered."""
    results, _ = read_results(run)
    rows = [
        {
            "job_id": run.job_id,
            "pair": result.pair.directory,
            "attempt": result.attempt,
            "task": result.pair.task,
            "sample": result.pair.sample,
            "model": result.pair.model,
            "agent": result.pair.agent,
            "passed": result.passed,
            "seconds": result.duration,
            "tokens": sum(usage.total or usage.input + usage.output for usage in result.usage.values()),
            "cost": result.cost,
            "ended_at": _time(result.ended_at),
        }
        for result in results
        if result.outcome.produced and result.duration is not None and result.rescored_from is None
    ]
    session.execute(delete(Attempt).where(Attempt.job_id == run.job_id))
    if rows:
        session.execute(insert(Attempt), rows)
    return len(rows)


def past_attempts(session: Session, *, models: Collection[str] = ()) -> list[Past]:
    """The newest attempts, of these models if any are named, newest first."""
    query = select(
        Attempt.task,
        Attempt.sample,
        Attempt.model,
        Attempt.agent,
        Attempt.seconds,
        Attempt.passed,
        Attempt.tokens,
        Attempt.cost,
    )
    if models:
        query = query.where(Attempt.model.in_(models))
    rows = session.execute(query.order_by(Attempt.ended_at.desc()).limit(NEWEST))
    return [Past(Pair(*row[:4]), *row[4:]) for row in rows]


def _time(text: str | None) -> datetime:
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return datetime.now(UTC)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
