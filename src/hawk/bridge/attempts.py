"""Inspect's attempts under Hawk's order: who starts, who is interrupted, what became of each.

Inspect starts the attempts of a task epoch by epoch and holds them by a semaphore that knows nothing of pairs. Here each
asks a gate before it costs anything: before its sample is copied and its place in Inspect's own queue is taken.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol

from inspect_ai._eval.task import scheduler
from inspect_ai.hooks import Hooks, ModelRetry, SampleAttemptStart, SampleEnd, TaskStart, hooks
from inspect_ai.hooks._hooks import SampleScoring
from inspect_ai.log._samples import ActiveSample, active_samples, sample_active
from inspect_ai.util import SandboxEnvironment

from hawk.bridge.ended import Ended, ended
from hawk.bridge.live import identifier_of


class Attempt(Protocol):
    """One attempt, as the gate knows it."""

    async def admitted(self) -> bool:
        """Wait for its turn; False: it is not needed any more."""

    def left(self) -> None:
        """It is over, whatever came of it."""


class Watcher(Protocol):
    """Who decides about attempts and writes down what became of them. All calls are made on the event loop."""

    def attempt(self, identifier: str, sample_id: str, epoch: int) -> Attempt: ...

    def begun(self, identifier: str, sample_id: str, epoch: int) -> None:
        """Its sandbox is there, its agent starts."""

    async def scoring(
        self,
        identifier: str,
        sample_id: str,
        epoch: int,
        sandboxes: dict[str, SandboxEnvironment],
        canceled: bool,
    ) -> None:
        """The agent is done, the scorers have not begun; its sandboxes are as it left them."""

    async def ended(self, identifier: str, eval_id: str, result: Ended) -> None:
        """The attempt is over and in its log."""


class _Task:
    """A task that runs, in the context of everything that it runs."""

    def __init__(self, identifier: str, eval_id: str, sample_ids: list[str]) -> None:
        self.identifier, self.eval_id, self.sample_ids = identifier, eval_id, sample_ids


_task: ContextVar[_Task | None] = ContextVar("hawk_task", default=None)
_retries: dict[str, dict[str, int]] = {}
_logged: set[tuple[str, str, int]] = set()
"""Attempts of this process that a task which is run again takes from its log: (identifier, sample id, epoch)."""
_identifiers: dict[str, str] = {}


def watch(watcher: Watcher) -> None:
    """Put a watcher over all attempts of this process, once."""

    @hooks(name="hawk_attempts", description="Starts attempts in order, and keeps what became of them.")
    class _Attempts(Hooks):
        async def on_task_start(self, data: TaskStart) -> None:
            identifier = identifier_of(data)
            _identifiers[data.eval_id] = identifier
            ids = [str(sample_id) for sample_id in data.spec.dataset.sample_ids or ()]
            _task.set(_Task(identifier, data.eval_id, ids))

        async def on_sample_attempt_start(self, data: SampleAttemptStart) -> None:
            active, identifier = sample_active(), _identifiers.get(data.eval_id)
            if active is not None and identifier is not None:
                watcher.begun(identifier, str(active.sample.id), active.epoch)

        async def on_model_retry(self, data: ModelRetry) -> None:
            if data.sample_id is not None:
                what = " ".join(str(word) for word in (data.status_code, data.exception_type) if word)
                met = _retries.setdefault(data.sample_id, {})
                met[what or "unknown"] = met.get(what or "unknown", 0) + 1

        async def on_sample_scoring(self, data: SampleScoring) -> None:
            active, identifier = sample_active(), _identifiers.get(data.eval_id)
            if active is not None and identifier is not None:
                await watcher.scoring(
                    identifier,
                    str(active.sample.id),
                    active.epoch,
                    dict(active.sandbox_environments or {}),
                    active.interrupt_action is not None,
                )

        async def on_sample_end(self, data: SampleEnd) -> None:
            identifier = _identifiers.get(data.eval_id)
            if identifier is not None:
                result = ended(data.sample, _retries.pop(data.sample_id, {}))
                if data.sample.error is None:
                    _logged.add((identifier, result.sample_id, result.epoch))
                await watcher.ended(identifier, data.eval_id, result)

    _gate_scheduler(watcher)


def _gate_scheduler(watcher: Watcher) -> None:
    run = scheduler.SampleScheduler.run

    async def gated_run(
        self: scheduler.SampleScheduler,
        plan: list[tuple[int, int]],
        run_sample: Callable[[int, int, Any], Awaitable[Any]],
        **kwargs: Any,
    ) -> Any:
        task = _task.get()
        if task is None or kwargs.get("feeder") is not None:
            return await run(self, plan, run_sample, **kwargs)

        async def in_turn(sample_index: int, epoch: int, entry: Any) -> Any:
            sample_id = task.sample_ids[sample_index]
            if (task.identifier, sample_id, epoch) in _logged:
                return await run_sample(sample_index, epoch, entry)
            attempt = watcher.attempt(task.identifier, sample_id, epoch)
            try:
                if not await attempt.admitted():
                    return scheduler.DISCARDED
                return await run_sample(sample_index, epoch, entry)
            finally:
                attempt.left()

        return await run(self, plan, in_turn, **kwargs)

    scheduler.SampleScheduler.run = gated_run  # type: ignore[method-assign]


def check_scheduler() -> None:
    """Whether Inspect's scheduler is the one that the gate was made for.

    Raises:
        TypeError: It takes other arguments.
    """
    expected = ["self", "plan", "run_sample", "feeder", "on_settle"]
    found = list(inspect.signature(scheduler.SampleScheduler.run).parameters)
    if found != expected:
        raise TypeError(f"SampleScheduler.run takes {found}, not {expected}")


def interrupt(identifier: str, sample_id: str, epoch: int) -> bool:
    """Cancel an attempt that runs: no further call of its, its sandbox goes. False when it is not running."""
    for active in list(active_samples()):
        if _is(active, identifier, sample_id, epoch) and active.completed is None:
            active.interrupt("cancel")
            return True
    return False


def current() -> tuple[str, str, int] | None:
    """The attempt that the calling code runs for: task identifier, sample id, number; None outside of one."""
    active = sample_active()
    identifier = None if active is None else _identifiers.get(active.eval_id)
    return None if active is None or identifier is None else (identifier, str(active.sample.id), active.epoch)


def _is(active: ActiveSample, identifier: str, sample_id: str, epoch: int) -> bool:
    return (
        active.epoch == epoch
        and str(active.sample.id) == sample_id
        and _identifiers.get(active.eval_id) == identifier
    )


__all__ = ["Attempt", "Ended", "Watcher", "check_scheduler", "current", "interrupt", "watch"]
