"""What only the worker's own process knows about its attempts, read without the event loop's help.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from inspect_ai._eval import evalset
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.hooks import Hooks, TaskStart, hooks
from inspect_ai.log import EvalLog
from inspect_ai.log._samples import ActiveSample, _sample_active, active_samples, sample_active

from hawk.core.recorder.stacks import Who

__all__ = ["PrerequisiteError", "attempt_of", "current_attempt", "http_retries", "on_task_start", "uuids"]


_KNOWN = "_hawk_who"
"""Where an attempt in flight keeps its name: it is asked for by each of its tasks, every few seconds."""


def current_attempt() -> str | None:
    """The attempt that the calling code runs for, as `<sample id>/<epoch>@<eval id>`; None outside of one."""
    active = sample_active()
    return None if active is None else _name(active)


def attempt_of(context: Context) -> Who | None:
    """The attempt that a task with this context runs for; None outside of one. From any thread."""
    active = context.get(_sample_active)
    return None if active is None else _who(active)


def _who(active: ActiveSample) -> Who:
    known: Who | None = active.__dict__.get(_KNOWN)
    if known is None:
        known = Who(active.task, str(active.sample.id), active.epoch, active.sample_uuid)
        active.__dict__[_KNOWN] = known
    return known


def _name(active: ActiveSample) -> str:
    return f"{active.sample.id}/{active.epoch}@{active.eval_id}"


def http_retries() -> dict[str, int]:
    """HTTP retries so far of each attempt in flight that had any, as `{"<sample id>/<epoch>@<eval id>": n}`."""
    return {_name(row): row.http_retries for row in _in_flight() if row.http_retries}


def uuids() -> dict[str, str]:
    """The uuid of each attempt in flight, by the same name. The realtime buffer has it once its sandbox is there."""
    return {_name(row): row.sample_uuid for row in _in_flight()}


def _in_flight() -> list[ActiveSample]:
    """Safe from another thread: a registry that changes meanwhile is read again by the next call."""
    try:
        return list(active_samples())
    except RuntimeError:
        return []


def identifier_of(start: TaskStart) -> str:
    """The identifier of a task that starts, the same string that capture gives."""
    return evalset.task_identifier(EvalLog(eval=start.spec, plan=start.plan), None)


def on_task_start(tell: Callable[[str, str, str, asyncio.AbstractEventLoop], None]) -> None:
    """Call `tell(identifier, task_id, eval_id, loop)` as each task starts.

    The identifier ties the log to the plan: it is computed from the log's own start record, exactly as
    Inspect pairs tasks and logs.
    """

    @hooks(name="hawk_task_start", description="Ties each log to the plan.")
    class _TaskStart(Hooks):
        async def on_task_start(self, data: TaskStart) -> None:
            tell(identifier_of(data), data.spec.task_id, data.eval_id, asyncio.get_running_loop())
