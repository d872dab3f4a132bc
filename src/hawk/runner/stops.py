"""How a stop reaches the workers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hawk.bridge.control import ControlBusy, ControlError, ControlSocket
from hawk.core.states import StopAction
from hawk.store.stoprequests import StopRequest

if TYPE_CHECKING:
    from hawk.runner.book import Book
    from hawk.runner.processes import Worker


ASK_AGAIN = 2.0
"""Seconds between tries: each may hold the supervisor for one."""

_ASKED_OF_INSPECT = {StopAction.SCORE: "score", StopAction.ERROR: "cancel"}
"""Inspect refuses `error` while an attempt has retries left; a canceled one runs again after a resume, too."""


def stop_tasks(worker: Worker, action: StopAction) -> bool:
    """Ask a worker to end all its tasks: running attempts resolve by `action`, queued ones never start.

    Returns:
        Whether it took all of it. One that does not answer is asked again (`Unanswered`), at last by signal
        (`core.job.STOP_STEPS`).
    """
    socket = ControlSocket(worker.data_home)
    try:
        for task in socket.tasks():
            if task.completed_at is None:
                socket.cancel_task(task.task_id, _ASKED_OF_INSPECT[action])
    except ControlError:
        return False
    return True


class Unanswered:
    """Workers that did not take a stop, and are asked again: an event loop that is blocked turns again some time."""

    def __init__(self) -> None:
        self._actions: dict[int, StopAction] = {}
        self._next = 0.0
        self._samples: dict[str, float] = {}  # requests for one attempt: when they are passed on again

    def stop(self, worker: Worker, action: StopAction) -> None:
        if not stop_tasks(worker, action):
            self._actions[worker.index] = action
            self._next = time.monotonic() + ASK_AGAIN

    def ask_again(self, living: Iterable[Worker]) -> None:
        """Ask those that still live, when it is time again."""
        if not self._actions or time.monotonic() < self._next:
            return
        actions, self._actions = self._actions, {}
        for worker in living:
            if worker.index in actions:
                self.stop(worker, actions[worker.index])

    def stop_sample(
        self, workers: dict[int, Worker], book: Book, asked: StopRequest
    ) -> tuple[bool, str] | None:
        """As the function of that name; None also while it is not time to ask again."""
        due = self._samples.get(asked.id)
        if due is not None and time.monotonic() < due:
            return None
        answer = stop_sample(workers, book, asked, again=due is not None)
        if answer is None:
            self._samples[asked.id] = time.monotonic() + ASK_AGAIN
        else:
            self._samples.pop(asked.id, None)
        return answer


def stop_sample(
    workers: dict[int, Worker], book: Book, asked: StopRequest, *, again: bool = False
) -> tuple[bool, str] | None:
    """Stop one attempt.

    Args:
        again: Its worker was asked before, and may have taken it without an answer.

    Returns:
        Whether its worker took the request, and a line about it; None when it does not answer in time.
    """
    assert asked.sample_uuid is not None
    found = book.find_sample(asked.sample_uuid)
    if found is None:
        return False, f"no attempt in flight has the uuid {asked.sample_uuid}"
    identifier, eval_id, sample = found
    worker = next((w for w in workers.values() if identifier in w.identifiers), None)
    if sample.phase.final:
        return again, f"it has ended already: {sample.phase}"
    if worker is None:
        return False, "no worker runs it now"
    answer: dict[str, Any] | None
    try:
        answer = ControlSocket(worker.data_home).cancel_sample(
            eval_id, sample.id, sample.epoch, _ASKED_OF_INSPECT[asked.action]
        )
    except ControlBusy:
        answer = None  # it may take the request later all the same
    except ControlError as ex:
        return False, f"its worker did not take it: {ex}"
    if asked.action is StopAction.ERROR and book.stopped_as_error is not None:
        book.stopped_as_error.add(asked.sample_uuid)
    if answer is None:
        return None
    said = answer.get("reason")
    return True, f"{asked.action} {sample.id} attempt {sample.epoch}{f' ({said})' if said else ''}"
