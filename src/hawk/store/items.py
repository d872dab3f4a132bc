"""What the `/meta` endpoints list. Names and types are a contract with the public client."""

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class JobItem(msgspec.Struct):
    """A row of `/meta/jobs`."""

    job_id: str
    job_type: str
    created_at: datetime
    created_by: str
    status: str
    pending_interactions: int = 0
    admission: dict[str, Any] | None = None
    finished_at: datetime | None = None


class EvalSetItem(msgspec.Struct):
    """A row of `/meta/eval-sets`."""

    eval_set_id: str
    created_at: datetime
    eval_count: int
    latest_eval_created_at: (
        datetime  # the submit's, while there is no eval yet: the public client wants a time
    )
    task_names: list[str]
    created_by: str
    status: str


class EvalItem(msgspec.Struct):
    """A row of `/meta/evals`: one task's newest log."""

    id: str
    eval_set_id: str
    task_id: str
    task_name: str
    model: str
    status: str
    total_samples: int
    completed_samples: int
    created_by: str | None
    started_at: datetime | None
    completed_at: datetime | None
    filename: str
    metrics: dict[str, Any] = {}
    error: str | None = None


class SampleScore(msgspec.Struct):
    """A score beside its sample in a list."""

    scorer: str
    value: Any
    value_float: float | None = None
    value_nonfinite: str | None = None
    is_intermediate: bool = False


class SampleItem(msgspec.Struct):
    """A row of `/meta/samples`. Provisional: the attempt is in flight, its numbers will change."""

    uuid: str
    id: str
    epoch: int
    status: str
    eval_id: str
    eval_set_id: str
    task_name: str
    model: str
    location: str
    filename: str
    created_by: str | None = None
    is_provisional: bool = False
    error_message: str | None = None
    limit: str | None = None
    retries: int = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None
    total_time_seconds: float | None = None
    working_time_seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    message_count: int | None = None
    scores: list[SampleScore] = []
    score_value: Any = None
    score_scorer: str | None = None


class SampleRef(msgspec.Struct):
    """The body of `/meta/samples/{uuid}`: where an attempt is found."""

    uuid: str
    id: str
    epoch: int
    eval_set_id: str
    eval_id: str
    task_name: str
    model: str
    status: str
    filename: str
    location: str
    is_provisional: bool = False


class ScoreItem(msgspec.Struct):
    """A row of `/meta/samples/{uuid}/scores`."""

    scorer: str
    value: Any
    value_float: float | None
    value_nonfinite: str | None
    explanation: str | None = None
    answer: str | None = None
    metadata: dict[str, Any] | None = None
    is_intermediate: bool = False
    scored_at: datetime | None = None


class Page(msgspec.Struct, Generic[T]):
    """One page of a list; `total` counts all pages."""

    items: list[T]
    total: int
    page: int
    limit: int
    has_more: bool


def page_of(items: list[T], total: int, page: int, limit: int) -> Page[T]:
    """A page, which knows whether there is another."""
    return Page(items=items, total=total, page=page, limit=limit, has_more=page * limit < total)
