"""What the API answers, as the client reads it: only the fields that are used, so that more may be added."""

from __future__ import annotations

from typing import Any

import msgspec

from hawk.core.states import JobStatus


class Submitted(msgspec.Struct):
    """Answer to a submit. `adopted`: the job ran already, nothing was started."""

    eval_set_id: str
    warnings: list[str] = []
    created: bool = True
    adopted: bool = False


class Stopped(msgspec.Struct):
    """Answer to a stop: whether the runner has acknowledged the request yet."""

    request_id: str
    acknowledged: bool = False


class FixStep(msgspec.Struct):
    """One thing that a fix does, in words; `undo`: how it is taken back, or what is lost."""

    what: str
    detail: str = ""
    reversible: bool = False
    undo: str = ""


class FixResult(msgspec.Struct):
    """What came of a fix for one attempt, worker, model or setting."""

    target: str
    done: bool = False
    said: str = ""


class Fixed(msgspec.Struct):
    """Answer to a fix: what it does or has done. Without steps nothing can be done, and `said` is why."""

    steps: list[FixStep] = []
    done: bool = False
    said: str = ""
    results: list[FixResult] = []
    remedy: str = ""
    fix: dict[str, Any] | None = None
    verdict: dict[str, Any] | None = None
    acknowledged: bool = False
    request_id: str | None = None


class LogEntry(msgspec.Struct):
    timestamp: str
    message: str
    service: str = ""
    level: str | None = None
    attributes: dict[str, Any] = {}


class LogPage(msgspec.Struct):
    """Lines of a log, and where to go on. `more`: there is more already."""

    entries: list[LogEntry] = []
    cursor: str | None = None
    more: bool = False


class JournalLine(msgspec.Struct):
    at: str
    kind: str
    subject: str
    state: str
    reason: str = ""
    data: dict[str, Any] = {}


class JobState(msgspec.Struct):
    """The short status of any job."""

    status: JobStatus
    job_type: str = "eval_set"


class EvalSetItem(msgspec.Struct):
    eval_set_id: str
    created_at: str | None = None
    created_by: str | None = None
    status: str | None = None
    eval_count: int = 0
    task_names: list[str] = []
    latest_eval_created_at: str | None = None


class EvalItem(msgspec.Struct):
    id: str
    task_name: str
    model: str | None = None
    status: str | None = None
    total_samples: int | None = None
    completed_samples: int | None = None
    started_at: str | None = None
    completed_at: str | None = None


class Score(msgspec.Struct):
    scorer: str
    value: Any = None


class SampleItem(msgspec.Struct):
    uuid: str
    id: str
    epoch: int = 1
    task_name: str | None = None
    model: str | None = None
    status: str | None = None
    is_provisional: bool = False
    error_message: str | None = None
    limit: str | None = None
    scores: list[Score] | None = None
    total_tokens: int | None = None
    total_time_seconds: float | None = None
