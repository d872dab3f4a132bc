"""Acting on verdicts: the supervisor's side of `store.actions`.

The main loop looks for requests and finds what they are about; a thread for each asks the workers, since that may wait;
the main loop then writes down what came of it. A request that a dead supervisor left half done is gone on with: what
exactly it had begun with was written down before.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from hawk.bridge.control import ControlError
from hawk.core.diagnosis.verdict import FixKind
from hawk.core.states import Operation
from hawk.errors import StorageError
from hawk.runner import remedies
from hawk.runner.lasting import Lasting
from hawk.runner.remedies import Target
from hawk.runner.targets import in_flight, targets
from hawk.store import actions
from hawk.store.actions import ActionRequest, Outcome
from hawk.store.rundir import JobSpec, RunDir

if TYPE_CHECKING:
    from hawk.runner.book import Book
    from hawk.runner.processes import Worker

GRACE = 10.0
"""Seconds from SIGINT to SIGKILL: Inspect closes its log and takes its sandboxes down, which takes a few."""

NEXT = 60.0
"""Seconds in which a worker that was ended must have been started again: it waits for room on the disk, if need be."""

LAST = 2.0
"""Seconds that the end of a job waits for what is being done still."""

_OF_ATTEMPTS = (FixKind.CANCEL_TOOL_CALL, FixKind.REQUEUE, FixKind.SCORE)


@dataclass
class _Restart:
    """A worker that is being ended to be started again."""

    request: ActionRequest
    pid: int
    kill_at: float
    due: float = field(default_factory=lambda: time.monotonic() + GRACE + NEXT)


class Actions:
    """Carries requests out. All methods are called by the supervisor's main loop.

    Args:
        book: Knows which attempts there are; its `again` and `operation` are kept here.
    """

    def __init__(self, run_dir: RunDir, spec: JobSpec, book: Book) -> None:
        self._run_dir, self._generation, self._book = run_dir, spec.generation, book
        self._lasting = Lasting(run_dir, spec, book)
        self._busy: set[str] = set()  # ids of requests that are being carried out
        self._restarts: dict[int, _Restart] = {}  # by worker
        self._came: dict[str, list[Outcome]] = {}  # outcomes of a request so far
        self._done: queue.SimpleQueue[tuple[ActionRequest, list[Outcome]]] = queue.SimpleQueue()
        self._seen: dict[int, int] = {}  # worker → pid of its process

    # --- what the supervisor asks and tells

    def watch(self, workers: Mapping[int, Worker], living: Iterable[Worker]) -> None:
        """Look for requests, and at those that are being carried out."""
        alive = {worker.index: worker for worker in living}
        self._forget(alive)
        for request in actions.pending(self._run_dir):
            if request.id not in self._busy:
                self._begin(request, alive)
        self._watch_restarts(workers, alive)
        with contextlib.suppress(queue.Empty):
            while True:
                self._answer(*self._done.get_nowait())
        self._lasting.follow(alive)

    def asked(self, worker: Worker) -> bool:
        """Whether a worker that has ended is to be started again because somebody wanted that."""
        restart = self._restarts.get(worker.index)
        if restart is not None and restart.pid == worker.pid:
            return True
        return any(identifier in worker.identifiers for identifier, _, _ in self._book.again)

    def close(self) -> None:
        """The job has ended, maybe by what was done just now: that is written down, and what was not done is refused."""
        deadline = time.monotonic() + LAST
        waited = {restart.request.id for restart in self._restarts.values()}
        while self._busy - waited and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self._answer(*self._done.get(timeout=left))
        for request in actions.pending(self._run_dir):
            self._answer(request, [Outcome("job", False, "the job has ended")])

    # --- a request

    def _begin(self, request: ActionRequest, alive: Mapping[int, Worker]) -> None:
        self._busy.add(request.id)
        if request.generation != self._generation:
            self._answer(request, [Outcome("job", False, "it was meant for an earlier run of this job")])
            return
        if self._book.operation is Operation.STOPPING:
            self._answer(request, [Outcome("job", False, "the job is stopping")])
            return
        if not request.taken:
            data: dict[str, Any] = {
                "id": request.id,
                "by": request.by,
                "fix": msgspec.to_builtins(request.fix),
                **({"held": request.held} if request.held else {}),
            }
            self._book.note(actions.KIND, request.cause, "asked", f"{request.fix.kind} by {request.by}", data)
        kind = request.fix.kind
        if kind is FixKind.RESTART_WORKER:
            self._restart(request, alive)
        elif kind in _OF_ATTEMPTS:
            self._of_attempts(request, alive)
        elif alive or kind in (FixKind.PAUSE_MODEL, FixKind.RESUME_MODEL):
            self._of_workers(request, alive)
        else:
            self._answer(request, [Outcome("job", False, "no worker runs now")])

    def _take(self, request: ActionRequest, pins: dict[str, list[str]]) -> ActionRequest:
        """Write down that it has begun, and with what."""
        if request.taken:
            return request
        taken = msgspec.structs.replace(request, taken=True, pins=pins)
        with contextlib.suppress(StorageError):
            actions.update(self._run_dir, taken)
        return taken

    def _answer(self, request: ActionRequest, outcomes: list[Outcome]) -> None:
        """Journal what came of it, then forget the request: a supervisor that dies between finds it and says it twice."""
        done = any(outcome.done for outcome in outcomes)
        data: dict[str, Any] = {
            "id": request.id,
            "by": request.by,
            "fix": msgspec.to_builtins(request.fix),
            "results": msgspec.to_builtins(outcomes),
        }
        said = "; ".join(f"{outcome.target}: {outcome.said}" for outcome in outcomes[:10])
        self._book.note(actions.KIND, request.cause, "done" if done else "refused", said, data)
        actions.answered(self._run_dir, request)
        self._busy.discard(request.id)

    def _start(self, request: ActionRequest, work: Callable[[], list[Outcome]]) -> None:
        """Do something that may wait, on a thread of its own."""

        def run() -> None:
            try:
                outcomes = work()
            except Exception as ex:  # a fault of ours: the request is answered all the same
                outcomes = [Outcome("job", False, f"{type(ex).__name__}: {ex}")]
            self._done.put((request, outcomes))

        threading.Thread(target=run, name=f"action-{request.id}", daemon=True).start()

    # --- attempts

    def _of_attempts(self, request: ActionRequest, alive: Mapping[int, Worker]) -> None:
        requeue = request.fix.kind is FixKind.REQUEUE
        found, lost = targets(
            request.fix.uuids,
            self._book.tasks(),
            list(alive.values()),
            canceled=request.taken and requeue,
        )

        def one(target: Target) -> Outcome:
            match request.fix.kind:
                case FixKind.REQUEUE:
                    return remedies.requeue(target, self._book.again)
                case FixKind.SCORE:
                    return remedies.score(target)
                case _:
                    calls = pins.get(target.uuid, [])
                    if not calls:
                        return Outcome(target.name, False, "no tool call of it is in flight any more")
                    return remedies.cancel_tool_calls(target, calls)

        pins: dict[str, list[str]] = dict(request.pins)

        def work() -> list[Outcome]:
            outcomes = list(lost)
            reached = []
            for target in found:
                if request.fix.kind is not FixKind.CANCEL_TOOL_CALL or request.taken:
                    reached.append(target)
                    continue
                try:
                    pins[target.uuid] = remedies.calls_in_flight(target)
                    reached.append(target)
                except ControlError as ex:
                    outcomes.append(remedies.refused(target.name, ex))
            self._take(request, pins)
            return outcomes + _together(one, reached)

        self._start(request, work)

    # --- restarting a worker

    def _restart(self, request: ActionRequest, alive: Mapping[int, Worker]) -> None:
        indices = [int(w) for w in request.fix.subject.split() if w.isascii() and w.isdigit()]
        pins = request.pins or {str(i): [str(alive[i].pid)] for i in indices if i in alive}
        request = self._take(request, pins)
        self._came[request.id] = []
        for index in indices:
            worker, pid = alive.get(index), int((pins.get(str(index)) or ["0"])[0])
            if index in self._restarts:
                self._came[request.id].append(
                    Outcome(f"worker {index}", False, "it is being restarted already")
                )
            elif worker is None:
                self._came[request.id].append(Outcome(f"worker {index}", False, "it does not run now"))
            elif worker.pid != pid:
                said = f"started again as pid {worker.pid}"
                self._came[request.id].append(Outcome(f"worker {index}", True, said))
            else:
                self._end(request, worker)
        self._close_restarts(request)

    def _end(self, request: ActionRequest, worker: Worker) -> None:
        """End a worker; what it has in flight runs again even where it lives to write it down as canceled."""
        for identifier, sample in in_flight(self._book.tasks(), worker):
            self._book.again.add((identifier, sample.id, sample.epoch))
        deaf = worker.busy_since is not None
        self._restarts[worker.index] = _Restart(
            request, worker.pid, time.monotonic() + (0.0 if deaf else GRACE)
        )
        how = "SIGKILL: its event loop does not turn" if deaf else "SIGINT"
        self._book.note("worker", str(worker.index), "signaled", f"{how}; {request.by} asked for a restart")
        worker.signal("SIGKILL" if deaf else "SIGINT")

    def _watch_restarts(self, workers: Mapping[int, Worker], alive: Mapping[int, Worker]) -> None:
        now = time.monotonic()
        for index, restart in list(self._restarts.items()):
            worker = alive.get(index)
            if worker is not None and worker.pid == restart.pid:
                if now >= restart.kill_at:
                    restart.kill_at = now + GRACE
                    worker.signal("SIGKILL")
                continue
            if worker is not None:
                self._finish_restart(
                    index, Outcome(f"worker {index}", True, f"started again as pid {worker.pid}")
                )
            elif self._nothing_left(workers.get(index)):
                self._finish_restart(
                    index, Outcome(f"worker {index}", True, "it had nothing left to run, and has ended")
                )
            elif now >= restart.due:
                self._finish_restart(
                    index, Outcome(f"worker {index}", False, "it was ended and could not be started again")
                )

    def _nothing_left(self, worker: Worker | None) -> bool:
        return worker is not None and not self._book.unfinished_of(worker.identifiers)

    def _finish_restart(self, index: int, outcome: Outcome) -> None:
        request = self._restarts.pop(index).request
        self._came[request.id].append(outcome)
        self._close_restarts(request)

    def _close_restarts(self, request: ActionRequest) -> None:
        if any(restart.request.id == request.id for restart in self._restarts.values()):
            return
        self._answer(request, self._came.pop(request.id) or [Outcome("job", False, "no worker was named")])

    # --- settings of all workers

    def _of_workers(self, request: ActionRequest, alive: Mapping[int, Worker]) -> None:
        request = self._take(request, {})
        one, living = self._lasting.set(request), list(alive.values())
        nobody = [Outcome("job", True, "no worker runs now; it holds for those that are started")]
        self._start(request, lambda: [o for part in _together(one, living) for o in part] or nobody)

    def _forget(self, alive: Mapping[int, Worker]) -> None:
        """What was to run again in a worker that has been started since does."""
        for index, worker in alive.items():
            if self._seen.get(index) != worker.pid:
                self._seen[index] = worker.pid
                self._book.again -= {key for key in self._book.again if key[0] in worker.identifiers}


def _together(do: Callable[[Any], Any], things: list[Any]) -> list[Any]:
    """Do the same to several things at once, since each may wait; at most 16 at a time."""
    from concurrent.futures import ThreadPoolExecutor

    if len(things) < 2:
        return [do(thing) for thing in things]
    with ThreadPoolExecutor(min(16, len(things)), thread_name_prefix="remedy") as pool:
        return list(pool.map(do, things))
