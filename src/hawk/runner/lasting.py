"""What is set for the rest of a job: pauses, settings of model calls, limits. Workers that are started later are told.

What is set has a version; a worker that has not been told the newest one, because it was deaf or did not exist, is told
as soon as it answers.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from hawk.bridge.control import ControlError
from hawk.core.diagnosis.verdict import FixKind
from hawk.core.states import Operation
from hawk.errors import StorageError
from hawk.runner import remedies
from hawk.runner.targets import limits_of, models, models_at_work, tasks_of
from hawk.store import actions
from hawk.store.actions import ActionRequest, Kept, Outcome
from hawk.store.rundir import JobSpec, RunDir

WHILE_PAUSED = 2.0
"""Seconds until a worker that began paused is told again; what is set for its tasks is told once it has some."""

if TYPE_CHECKING:
    from hawk.runner.book import Book
    from hawk.runner.processes import Worker


@dataclass
class _Known:
    """What one process of a worker has been told.

    Attributes:
        version: 0: nothing, which is all there is when nothing was set.
        asked: Somebody is talking to it just now.
        said: That it does not answer was said.
        due: When it is to be told, by the monotonic clock.
    """

    pid: int
    version: int = 0
    asked: bool = False
    said: bool = False
    due: float = 0.0


class Lasting:
    """Of one job. All methods are called by the supervisor's main loop; what may wait is done on threads.

    Args:
        book: Knows tasks and their models; its `operation` is kept here while it is a pause.
    """

    def __init__(self, run_dir: RunDir, spec: JobSpec, book: Book) -> None:
        self._run_dir, self._book = run_dir, book
        self._kept = actions.read_kept(run_dir, spec.generation)
        self._version = 1
        self._known: dict[int, _Known] = {}  # by worker

    def set(self, request: ActionRequest) -> Callable[[Worker], list[Outcome]]:
        """Keep what a request sets. Returns what tells it to a worker that lives now; that may wait."""
        fix, names = request.fix, request.fix.subject.split()
        limits = self._keep(request)
        before, self._version = self._version, self._version + 1
        version, tasks = self._version, self._book.tasks()
        free = {index: known for index, known in self._known.items() if not known.asked}
        for known in free.values():
            known.asked, known.due = True, 0.0

        def ask(worker: Worker) -> list[Outcome]:
            name, home = f"worker {worker.index}", worker.data_home
            match fix.kind:
                case FixKind.PAUSE_MODEL:
                    return [remedies.pause(name, home, names, hold=not request.soft)]
                case FixKind.RESUME_MODEL:
                    return [remedies.resume(name, home, names)]
                case FixKind.RETUNE:
                    return [remedies.retune(name, home, {fix.subject: int(fix.value or 0)}, by=request.by)]
                case _:
                    return remedies.raise_limits(home, limits_of(limits, tasks, worker), by=request.by)

        def one(worker: Worker) -> list[Outcome]:
            known = free.get(worker.index)
            if known is None or known.pid != worker.pid:
                later = "it does not answer yet; it is told as soon as it does"
                return [Outcome(f"worker {worker.index}", True, later)]
            try:
                outcomes = ask(worker)
                if known.version == before:
                    known.version = version
                return outcomes
            except ControlError as ex:
                return [remedies.refused(f"worker {worker.index}", ex)]
            finally:
                known.asked = False

        return one

    def _keep(self, request: ActionRequest) -> dict[str, dict[str, int]]:
        """Returns the limits of attempts that it sets, by task identifier."""
        fix, kept, names = request.fix, self._kept, request.fix.subject.split()
        limits: dict[str, dict[str, int]] = {}
        match fix.kind:
            case FixKind.PAUSE_MODEL if names:
                kept.models.update(dict.fromkeys(names, not request.soft))
                self._say_of_models(names, "paused", request.by)
            case FixKind.PAUSE_MODEL:
                kept.paused = not request.soft
            case FixKind.RESUME_MODEL if names:
                for name in names:
                    kept.models.pop(name, None)
                self._say_of_models(names, "resumed", request.by)
            case FixKind.RESUME_MODEL:
                kept.paused = None
            case FixKind.RETUNE:
                kept.settings[fix.subject] = int(fix.value or 0)
            case FixKind.RAISE_LIMIT:
                everything = {task.plan.identifier for task in self._book.tasks()}
                for identifier in tasks_of(fix.uuids, self._book.tasks()) or everything:
                    limits[identifier] = {fix.subject: int(fix.value or 0)}
                    kept.limits.setdefault(identifier, {}).update(limits[identifier])
        with contextlib.suppress(StorageError):
            actions.write_kept(self._run_dir, kept)
        return limits

    def _say_of_models(self, names: Iterable[str], state: str, by: str) -> None:
        """What a diagnosis knows it by that a model is paused."""
        for name in names:
            self._book.note(actions.KIND, name, state, f"by {by}")

    def follow(self, living: Mapping[int, Worker]) -> None:
        """Tell what is set to workers that do not know it, and say beside the status that the job is paused."""
        for index, worker in living.items():
            known = self._known.get(index)
            if known is None or known.pid != worker.pid:
                known = self._known[index] = _Known(
                    worker.pid, version=self._version if self._kept.empty else 0
                )
            if known.version < self._version and not known.asked and time.monotonic() >= known.due:
                known.asked = True
                threading.Thread(
                    target=self._tell, args=[worker, known], name=f"settings-{index}", daemon=True
                ).start()
        self._show_pause()

    def _tell(self, worker: Worker, known: _Known) -> None:
        name, said = f"worker {worker.index}", ""
        try:
            begun = remedies.wait_for(worker.data_home, lambda: self._kept.paused is not None)
            version = self._version
            kept = msgspec.convert(msgspec.to_builtins(self._kept), Kept)
            tasks = self._book.tasks()
            if begun:
                limits = limits_of(kept.limits, tasks, worker)
                failed = remedies.tell(name, worker.data_home, kept, limits, models(tasks))
                known.version = version
            else:  # what is set for its tasks is told once it has some: none begins while everything is paused
                failed = remedies.tell(name, worker.data_home, Kept(paused=kept.paused), (), ())
                known.due = time.monotonic() + (WHILE_PAUSED if kept.paused is not None else 0.0)
            said = "; ".join(outcome.said for outcome in failed)
        except ControlError as ex:  # it is tried again
            if not known.said:
                said = remedies.refused(name, ex).said
            known.said = True
        finally:
            known.asked = False
        if said and self._known.get(worker.index) is known:
            self._book.note("worker", str(worker.index), "warning", f"does not know what was set: {said}")

    def _show_pause(self) -> None:
        if self._book.operation not in (None, Operation.PAUSED):
            return
        used = models_at_work(self._book.tasks()) if self._kept.models else set()
        paused = self._kept.paused is not None or bool(used and used <= self._kept.models.keys())
        self._book.operation = Operation.PAUSED if paused else None
