"""What `hawk status` prints: everything known about a job, raw."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from hawk.core.snapshot import Metric, Task
from hawk.engine.protocol import Engine
from hawk.errors import HawkError
from hawk.server.services.logs import Logs
from hawk.store.rundir import RunDir


class ModelCalls(msgspec.Struct):
    total_calls: int = 0
    total_retries: int = 0
    error_count: int = 0
    rate_limit_errors: int = 0
    timeout_errors: int = 0
    other_errors: int = 0


class Performance(msgspec.Struct):
    """Sums over the attempts that have begun."""

    sample_count: int = 0
    total_time_seconds: float = 0.0
    working_time_seconds: float = 0.0
    generation_time_seconds: float = 0.0
    waiting_time_seconds: float | None = None
    queue_wait_seconds: float | None = None
    model_calls: ModelCalls = msgspec.field(default_factory=ModelCalls)


class MonitoringData(msgspec.Struct):
    """`data` of `GET /monitoring/jobs/{id}/status`. `user_config` is the eval set's text."""

    job_id: str
    provider: str
    fetch_timestamp: datetime
    since: datetime
    logs: Logs
    metrics: dict[str, Metric] | None
    errors: dict[str, str]
    user_config: str | None
    pod_status: dict[str, Any] | None
    performance: Performance | None
    processes: dict[str, Any]


class MonitoringReport(msgspec.Struct):
    """The body of `GET /monitoring/jobs/{id}/status`."""

    data: MonitoringData


def user_config(run: RunDir) -> str | None:
    """The eval set as it was submitted, or None."""
    for file in (run.config_file, run.path / "eval-set.py"):
        try:
            return file.read_text("utf-8", "replace")
        except OSError:
            continue
    return None


def processes(engine: Engine, job_id: str, errors: dict[str, str]) -> dict[str, Any]:
    """What the engine says about the job's processes; a failure is named in `errors`."""
    try:
        return engine.report(job_id)
    except (HawkError, OSError) as ex:
        errors["processes"] = str(ex)
        return {}


def performance(tasks: list[Task]) -> Performance:
    """Time and retries, added up."""
    begun = [sample for task in tasks for sample in task.samples if sample.started_at]
    total = sum(sample.total_time or 0.0 for sample in begun)
    working = sum(sample.working_time or 0.0 for sample in begun)
    return Performance(
        sample_count=len(begun),
        total_time_seconds=total,
        working_time_seconds=working,
        waiting_time_seconds=max(0.0, total - working),
        model_calls=ModelCalls(total_retries=sum(task.http_retries for task in tasks)),
    )
