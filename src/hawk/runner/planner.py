"""Making a job's plan: what was enumerated, how its attempts will run, how many at once."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec
import psutil

from hawk.bridge.selection import Enumeration
from hawk.config.settings import Settings
from hawk.core.attempts.history import History, Past
from hawk.core.attempts.planning import Way, fingerprint, plan_way, rules_of
from hawk.core.attempts.policy import Policy, Rules
from hawk.core.plan import Limits, Plan, PlanTask, ceiling, concurrency
from hawk.errors import ConfigError
from hawk.runner.pasts import read_history
from hawk.runner.rescore import Source
from hawk.runner.workpods.starting import MOST
from hawk.store.rundir import JobSpec, RunDir

MAX_ATTEMPTS = 100_000
"""Of one job: each is a row of every snapshot."""


def make_plan(
    found: Enumeration, spec: JobSpec, settings: Settings, run_dir: RunDir, logs: list[str]
) -> tuple[Plan, list[str]]:
    """The plan, and what could not be used for it, in words.

    Args:
        logs: File names of the logs that are there.

    Raises:
        ConfigError: There would be more attempts than a job may have, or none that can be scored again.
    """
    tasks = _distinct(found.tasks)
    total = _total(tasks)
    pods = settings.worker_pod is not None
    most = spec.workers or settings.workers or (MOST if pods else os.cpu_count() or 1)
    workers = max(1, min(most, len(tasks)))
    slots, bound = ceiling(
        total,
        workers,
        asked=found.options.get("max_sandboxes"),
        memory=None if pods else psutil.virtual_memory().available,
    )
    workers = min(workers, slots)  # each has at least one
    excluded: list[tuple[str, str, int]] = []
    past: list[Past] = []
    if spec.rescore is None:
        past, problems = read_history(run_dir, spec)
    else:  # how long agents took says nothing about how long their scorers will
        excluded, problems = Source(run_dir, spec.rescore).excluded(tasks)
    pairs = [(task.pair(sample_id), task.epochs) for task in tasks for sample_id in task.sample_ids]
    way = plan_way(
        rules_of(spec.config) if spec.config else Rules(Policy.PARALLEL),
        [pair for pair, _ in pairs],
        [runs for _, runs in pairs],
        slots,
        History(past) if past else None,
    )
    if way.known:
        tasks = _predicted(tasks, way)
    plan = Plan(
        eval_set_id=spec.job_id,
        tasks=tasks,
        limits=limits_of(spec.config),
        policy=way.rules.policy,
        runs=max((task.epochs for task in tasks), default=1),
        workers=workers,
        created_at=datetime.now(UTC).isoformat(),
        generation=spec.generation,
        prior_logs=logs,
        overrides=concurrency(tasks, found.options),
        rules=way.rules,
        slots=slots,
        ceiling=bound,
        forecast=way.forecast,
        known=way.known,
        fingerprint=fingerprint(spec.config),
        rescore=spec.rescore,
        excluded=excluded,
    )
    return plan, problems


def _total(tasks: list[PlanTask]) -> int:
    """Attempts of all of them. Raises: ConfigError: more than a job may have."""
    total = sum(task.attempts for task in tasks)
    if total > MAX_ATTEMPTS:
        pairs = sum(len(task.sample_ids) for task in tasks)
        raise ConfigError(
            f"{total:,} attempts at {pairs:,} pairs would run; a job may have {MAX_ATTEMPTS:,}.",
            remedy="Lower `runs`, set `limit`, or submit it in parts.",
        )
    return total


def _predicted(tasks: list[PlanTask], way: Way) -> list[PlanTask]:
    """With how long an attempt at each pair is expected to take."""
    seconds = iter(way.predicted)
    return [
        msgspec.structs.replace(task, predicted=[next(seconds) for _ in task.sample_ids]) for task in tasks
    ]


def _distinct(tasks: list[PlanTask]) -> list[PlanTask]:
    """Tasks whose pairs can be told apart: one that is there with several arguments has them in its names."""
    seen = Counter((task.name, task.agent, task.model) for task in tasks)
    return [
        msgspec.structs.replace(task, name=f"{task.name} [{(task.args_hash or task.identifier)[:6]}]")
        if seen[task.name, task.agent, task.model] > 1
        else task
        for task in tasks
    ]


_LIMITS = {
    "max_retries": "max_retries",
    "attempt_timeout": "attempt_timeout",
    "retry_on_error": "retry_on_error",
    "retry_attempts": "task_retries",
}
"""Option of the eval set to the limit that it sets."""


def limits_of(config: dict[str, Any]) -> Limits:
    """Finite bounds: what the eval set says, else the defaults."""
    given = {limit: int(config[name]) for name, limit in _LIMITS.items() if config.get(name) is not None}
    retries = (config.get("attempts") or {}).get("infra_retries")
    if retries is not None:
        given.setdefault("retry_on_error", int(retries))
    return msgspec.convert(given, type=Limits)
