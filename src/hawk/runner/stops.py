"""How a stop reaches the workers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hawk.bridge.control import ControlError, ControlSocket
from hawk.core.states import StopAction
from hawk.store.stoprequests import StopRequest

if TYPE_CHECKING:
    from hawk.runner.book import Book
    from hawk.runner.processes import Worker


_ASKED_OF_INSPECT = {StopAction.SCORE: "score", StopAction.ERROR: "cancel"}
"""Inspect refuses `error` while an attempt has retries left; a canceled one runs again after a resume, too."""


def stop_tasks(worker: Worker, action: StopAction) -> None:
    """Ask a worker to end all its tasks: running attempts resolve by `action`, queued ones never start.

    A worker that does not answer is asked by signal later (`core.job.STOP_STEPS`).
    """
    socket = ControlSocket(worker.data_home)
    with contextlib.suppress(ControlError):
        for task in socket.tasks():
            if task.completed_at is None:
                socket.cancel_task(task.task_id, _ASKED_OF_INSPECT[action])


def stop_sample(workers: dict[int, Worker], book: Book, asked: StopRequest) -> tuple[bool, str]:
    """Stop one attempt. Returns whether its worker took the request, and a line about it."""
    assert asked.sample_uuid is not None
    found = book.find_sample(asked.sample_uuid)
    if found is None:
        return False, f"no attempt in flight has the uuid {asked.sample_uuid}"
    identifier, eval_id, sample = found
    worker = next((w for w in workers.values() if identifier in w.identifiers), None)
    if sample.phase.final:
        return False, f"it has ended already: {sample.phase}"
    if worker is None:
        return False, "no worker runs it now"
    try:
        ControlSocket(worker.data_home).cancel_sample(
            eval_id, sample.id, sample.epoch, _ASKED_OF_INSPECT[asked.action]
        )
    except ControlError as ex:
        return False, f"its worker did not take it: {ex}"
    if asked.action is StopAction.ERROR and book.stopped_as_error is not None:
        book.stopped_as_error.add(asked.sample_uuid)
    return True, f"{asked.action} {sample.id} attempt {sample.epoch}"
