"""The tables: an index over run directories, which are the truth.

```
jobs ──< evals ──< samples ──< scores
jobs ──< attempts
```

Dropping the database loses nothing: `hawk.store.importer.reindex` fills it again. What is in flight is not
here; it is served from the job's snapshot.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime on both databases; SQLite by itself forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Names every constraint, so that a migration can name it too."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: Text(), float: Double(), datetime: UtcDateTime()}  # noqa: RUF012


class Job(Base):
    """One eval set's run.

    Attributes:
        status: Last known `JobStatus`; of a job in flight the feed knows better.
        generation: Counts submits and resumes, as in `job.json`.
        finished_at: When the server saw its end; None while it is the server's business.
    """

    __tablename__ = "jobs"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    job_type: Mapped[str] = mapped_column(default="eval-set")
    created_at: Mapped[datetime] = mapped_column(index=True)
    created_by: Mapped[str | None]
    status: Mapped[str]
    generation: Mapped[int] = mapped_column(default=1)
    finished_at: Mapped[datetime | None] = mapped_column(index=True)
    deleted_at: Mapped[datetime | None]

    evals: Mapped[list[Eval]] = relationship(
        back_populates="job", cascade="all, delete-orphan", passive_deletes=True
    )


class Eval(Base):
    """One task; its newest log says how it went.

    Attributes:
        location: File name of that log in the job's `logs/`.
        fingerprint: Of all its logs as imported: unchanged means nothing to do.
    """

    __tablename__ = "evals"

    eval_id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id", ondelete="CASCADE"), index=True)
    task_id: Mapped[str]
    task_name: Mapped[str]
    model: Mapped[str]
    status: Mapped[str]
    error: Mapped[str | None]
    total_samples: Mapped[int] = mapped_column(default=0)
    completed_samples: Mapped[int] = mapped_column(default=0)
    metrics: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    location: Mapped[str]
    fingerprint: Mapped[str]

    job: Mapped[Job] = relationship(back_populates="evals")
    samples: Mapped[list[Sample]] = relationship(
        back_populates="eval", cascade="all, delete-orphan", passive_deletes=True
    )


class Sample(Base):
    """One finished attempt.

    Attributes:
        location: File name of the log it is in: an earlier one than its task's where a retry has not copied it yet.
        digest: Of its summary as imported: the same means nothing to do.
        search_text: Lower-case id, task, model and error; what `search` looks in.
    """

    __tablename__ = "samples"
    __table_args__ = (UniqueConstraint("eval_id", "sample_id", "epoch"), Index("ix_samples_uuid", "uuid"))

    pk: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    eval_id: Mapped[str] = mapped_column(ForeignKey("evals.eval_id", ondelete="CASCADE"))
    uuid: Mapped[str]
    sample_id: Mapped[str]
    epoch: Mapped[int]
    status: Mapped[str] = mapped_column(index=True)
    error: Mapped[str | None]
    limit: Mapped[str | None]
    retries: Mapped[int] = mapped_column(default=0)
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None] = mapped_column(index=True)
    total_time: Mapped[float | None]
    working_time: Mapped[float | None]
    input_tokens: Mapped[int | None] = mapped_column(BigInteger)
    output_tokens: Mapped[int | None] = mapped_column(BigInteger)
    total_tokens: Mapped[int | None] = mapped_column(BigInteger)
    message_count: Mapped[int | None]
    location: Mapped[str]
    search_text: Mapped[str]
    digest: Mapped[str]

    eval: Mapped[Eval] = relationship(back_populates="samples")
    scores: Mapped[list[Score]] = relationship(
        back_populates="sample", cascade="all, delete-orphan", passive_deletes=True, order_by="Score.scorer"
    )


class Score(Base):
    """One scorer's word on an attempt. `value` is what the scorer gave, `value_float` its number if it has one."""

    __tablename__ = "scores"

    sample_pk: Mapped[int] = mapped_column(ForeignKey("samples.pk", ondelete="CASCADE"), primary_key=True)
    scorer: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[Any] = mapped_column(JSON)
    value_float: Mapped[float | None]
    value_nonfinite: Mapped[str | None]

    sample: Mapped[Sample] = relationship(back_populates="scores")


class Attempt(Base):
    """One attempt that produced a result: what later plans may know of it.

    Attributes:
        seconds: From its start to its end.
        cost: Dollars, where prices were known.
    """

    __tablename__ = "attempts"
    __table_args__ = (Index("ix_attempts_model_ended_at", "model", "ended_at"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id", ondelete="CASCADE"), primary_key=True)
    pair: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    task: Mapped[str]
    sample: Mapped[str]
    model: Mapped[str]
    agent: Mapped[str | None]
    passed: Mapped[bool]
    seconds: Mapped[float]
    tokens: Mapped[int] = mapped_column(BigInteger)
    cost: Mapped[float | None]
    ended_at: Mapped[datetime]
