"""The supervisor: one small process per job. Starts workers, watches them, records, obeys stop.

A shell around `core.job.JobMachine`: it turns what it observes into events and carries out the instructions.
It never imports Inspect. Nothing depends on it staying alive: another one takes over where it left off.

    python -m hawk.runner.supervisor RUN_DIR          the job, secrets as JSON on standard input
    python -m hawk.runner.supervisor --told [FD]      the same, told on standard input which job; FD: to its zygote
    python -m hawk.runner.supervisor --settle RUN_DIR [REASON]   write the last snapshot of a job whose runner died
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hawk.config.settings import Settings, load_settings
from hawk.core import job
from hawk.core.job import JobPhase
from hawk.core.plan import Limits, Plan, PlanTask, deal
from hawk.core.snapshot import Snapshot
from hawk.core.states import Operation, StopAction, WorkerState
from hawk.errors import HawkError, TransitionError
from hawk.runner import datahome, stops
from hawk.runner.actions import Actions
from hawk.runner.book import Book, say, utcnow
from hawk.runner.diagnostician import Diagnostician, Moment
from hawk.runner.flight import FlightRecorder
from hawk.runner.launch import Launcher
from hawk.runner.models import ModelAccess
from hawk.runner.preparation import Preparation
from hawk.runner.processes import Reaper, Wakeup, Worker, Zygote, become_subreaper, describe_status, sweep
from hawk.runner.watchdog import Watchdog
from hawk.runner.workerhome import Exit
from hawk.store import stoprequests
from hawk.store.attempts import sweep_drafts
from hawk.store.locks import hold
from hawk.store.rundir import JobSpec, RunDir, read_json, remove_temporaries

TICK = 0.25
"""Seconds between looks at timers and stop requests; an ended child wakes the loop at once."""

NO_ROOM = 2.0
"""Seconds between looks for space on a full disk, before a worker is started on it."""


class Assignment(msgspec.Struct):
    """What the engine sends down the pipe: which job, and its secrets, which are never on disk."""

    run_dir: str
    secrets: dict[str, str] = {}


class Supervisor:
    """Runs one job to its end."""

    def __init__(
        self, run_dir: RunDir, secrets: dict[str, str], settings: Settings, zygote: Zygote | None
    ) -> None:
        self.run_dir = run_dir
        self.spec: JobSpec = run_dir.read_spec()
        self.settings = settings
        self.reaper = Reaper()
        self.models = ModelAccess(run_dir, self.spec, secrets, settings)
        self.launcher = Launcher(run_dir, self.spec, secrets, settings, zygote, self.models)
        self.machine = job.JobMachine(self.spec.job_id, Limits())
        self.book = Book(run_dir, self.spec)
        self.flight = FlightRecorder(run_dir, settings.run_base, self.book.note)
        self.diagnostician = Diagnostician(run_dir, self.spec, settings, self.models, self.book.note)
        self.book.judge, self.book.concluded = self.diagnostician.judgement, self._last_verdicts
        self.watchdog = Watchdog(run_dir, self.spec, secrets, settings, self.reaper, self.book.note)
        self.diagnostician.watch = self.watchdog.look
        self.workers: dict[int, Worker] = {}
        self.delayed: list[tuple[float, job.StartWorker]] = []
        self.stop_deadline: float | None = None
        self.stopping_since: str | None = None
        self.unanswered = stops.Unanswered()
        self.actions = Actions(run_dir, self.spec, self.book)
        self.preparation = Preparation(
            run_dir, self.spec, settings, self.launcher, self.book, self.reaper, self.dispatch, self._planned
        )
        self.finished = False
        self._pending: list[job.Event] = []
        self._outcomes_at_start: dict[int, int] = {}

    # --- the loop -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns when the job has ended and everything it started is gone."""
        wakeup = Wakeup()
        self.flight.open()
        self.diagnostician.open()
        self.dispatch(job.Start())
        while not self.finished:
            wakeup.wait(TICK)
            self.reaper.collect()
            self.preparation.watch(stopping=self.machine.stopping is not None)
            self._watch_workers()
            self._watch_timers()
            self._watch_stops()
            self._watch_actions()
            self._watch_models()
            looked = self.book.observe(list(self.workers.values()), self.machine)
            self.flight.follow(self._running(), self.book if looked else None)
            self._diagnose()

    def dispatch(self, event: job.Event) -> None:
        """Feed an event to the machine and carry out what it says, and what follows from that."""
        self._pending.append(event)
        if len(self._pending) > 1:
            return  # called while an instruction is carried out: taken up by the loop below
        while self._pending:
            for instruction in self.machine.handle(self._pending[0]):
                self._carry_out(instruction)
            self._pending.pop(0)

    def _carry_out(self, instruction: job.Instruction) -> None:
        match instruction:
            case job.Prepare():
                self.preparation.prepare()
            case job.Enumerate():
                self.preparation.enumerate()
            case job.StartWorker(delay=delay) if delay > 0:
                self.delayed.append((time.monotonic() + delay, instruction))
            case job.StartWorker(index=index, identifiers=identifiers):
                self._start_worker(index, identifiers)
            case job.StopTasks(index=index, action=action):
                self.unanswered.stop(self.workers[index], action)
            case job.SignalWorker(index=index, signal=name):
                self.book.note("worker", str(index), "signaled", f"{name}: the stop took too long")
                self.workers[index].signal(name)
            case job.ArmStopTimer(seconds=seconds):
                self.stop_deadline = time.monotonic() + seconds
            case job.Finish():
                self._finish(instruction)

    # --- the plan ------------------------------------------------------------------------------------

    def _planned(self, plan: Plan, *, earlier: bool = False) -> None:
        """Deal what is unfinished out to workers; adopt those of an earlier supervisor that still live.

        Args:
            earlier: There was one: it made this plan.
        """
        if self.spec.dry_run:
            self.dispatch(job.StopRequested(StopAction.SCORE))
            self.dispatch(job.Enumerated(shares={}))
            return
        self.machine.limits = plan.limits
        self.book.use_plan(plan)
        adopted = self.launcher.adopt()
        for worker in adopted:
            self.workers[worker.index] = worker
            self.book.note("worker", str(worker.index), "adopted", f"pid {worker.pid}")
        if earlier:  # what workers left that died while nobody watched
            sweep(self.run_dir, spare=self.workers)
        self.book.observe(adopted, self.machine, force=True)
        self.book.complete_results()
        held = {identifier for worker in adopted for identifier in worker.identifiers}
        todo = [task for task in self.book.unfinished() if task.identifier not in held]
        shares: dict[int, tuple[str, ...]] = {}
        free = (i for i in range(len(adopted) + plan.workers) if i not in self.workers)
        for share in deal(todo, max(1, plan.workers - len(adopted))) if todo else []:
            shares[next(free)] = tuple(task.identifier for task in share)
        self.book.note("job", self.spec.job_id, "running", f"{plan.total} attempts, {len(shares)} workers")
        self.dispatch(job.Enumerated(shares=shares, adopted={w.index: tuple(w.identifiers) for w in adopted}))

    # --- workers --------------------------------------------------------------------------------------

    def _start_worker(self, index: int, identifiers: tuple[str, ...]) -> None:
        if not self.run_dir.has_room():  # it would die at once; it starts when there is space again
            start = job.StartWorker(index, identifiers, NO_ROOM)
            self.delayed.append((time.monotonic() + NO_ROOM, start))
            return
        try:
            worker = self.launcher.run(index, self._tasks(identifiers), self.book.resume_logs())
        except (HawkError, RuntimeError) as ex:
            self.dispatch(job.StartFailed(index, str(ex), getattr(ex, "remedy", None)))
            return
        self.workers[index] = worker
        self._outcomes_at_start[index] = self.book.outcomes(identifiers)
        self.machine.started(index)
        self.book.note("worker", str(index), "started", f"pid {worker.pid}, {len(identifiers)} tasks")

    def _tasks(self, identifiers: tuple[str, ...]) -> list[PlanTask]:
        assert self.book.plan is not None
        return [task for task in self.book.plan.tasks if task.identifier in identifiers]

    def _running(self) -> list[Worker]:
        state = self.machine.workers
        return [w for w in self.workers.values() if state[w.index].state is WorkerState.RUNNING]

    def _watch_workers(self) -> None:
        for worker in self._running():
            ended, status = worker.ended(self.reaper)
            if ended:
                self._worker_ended(worker, status)

    def _worker_ended(self, worker: Worker, status: int | None) -> None:
        sweep(self.run_dir, worker.index)
        datahome.clear(worker.home)
        self.book.recover()
        self.book.observe(list(self.workers.values()), self.machine, force=True)
        self.book.complete_results()
        end = read_json(worker.home / "exit.json", Exit)
        reason = _exit_reason(end, status)
        if reason and (memory := self.flight.killed_for_memory(worker)):
            reason = memory
        if asked := self.actions.asked(worker):
            reason = f"{job.ON_REQUEST} ({reason or 'ended well'})"
        self.book.note("worker", str(worker.index), "exited", reason)
        unfinished = self.book.unfinished_of(worker.identifiers)
        self.dispatch(
            job.WorkerExited(
                index=worker.index,
                reason=reason,
                unfinished=unfinished,
                progressed=self.book.outcomes(worker.identifiers)
                > self._outcomes_at_start.get(worker.index, 0),
                hopeless=end is not None and end.code == 2,
                remedy=(end.remedy or None) if end is not None else None,
                asked=asked,
            )
        )

    # --- timers and stops -----------------------------------------------------------------------------

    def _watch_timers(self) -> None:
        now = time.monotonic()
        due = [start for when, start in self.delayed if when <= now]
        self.delayed = [(when, start) for when, start in self.delayed if when > now]
        for start in due:
            if self.machine.workers[start.index].state is WorkerState.STARTING:
                self._start_worker(start.index, start.identifiers)
        self.unanswered.ask_again(self._running())
        if self.stop_deadline is not None and now >= self.stop_deadline:
            self.stop_deadline = None
            self.dispatch(job.StopTimedOut())

    def _watch_stops(self) -> None:
        for request in stoprequests.pending(self.run_dir):
            if request.sample_uuid is None:
                self.book.note("stop", request.id, "acknowledged", request.action)
                self.book.operation = Operation.STOPPING
                self.stopping_since = self.stopping_since or utcnow().isoformat()
                if request.action is StopAction.ERROR:
                    self.book.stopped_as_error = None
                    self.models.revoke()
                self.dispatch(job.StopRequested(request.action))
            else:
                answer = self.unanswered.stop_sample(self.workers, self.book, request)
                if answer is None:
                    continue  # the request stands
                done, why = answer
                self.book.note("stop", request.id, "acknowledged" if done else "refused", why)
            stoprequests.answered(self.run_dir, request)

    def _watch_actions(self) -> None:
        if self.machine.phase is not JobPhase.ENDED:
            self.actions.watch(self.workers, self._running())

    def _watch_models(self) -> None:
        use = self.models.use
        self.book.use_models(use)
        if use is None or use.exhausted is None or self.machine.stopping is not None:
            return
        self.book.note("job", self.spec.job_id, "budget exhausted", use.exhausted)
        self.book.stopped_as_error = None
        remedy = f"Raise middleman.budget and submit {self.spec.job_id} again: finished attempts are kept"
        self.dispatch(job.Halted(f"its budget is used up: {use.exhausted}", remedy))

    # --- diagnosis -------------------------------------------------------------------------------------

    def _diagnose(self) -> None:
        if self.book.snapshot is not None:
            self.diagnostician.follow(
                Moment(
                    self.book.snapshot,
                    self.machine.phase,
                    self.book.plan,
                    tuple(self._running()),
                    self.preparation.enumerator,
                    self.stopping_since,
                )
            )

    def _last_verdicts(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        return self.diagnostician.conclude(Moment(snapshot, JobPhase.ENDED, self.book.plan))

    # --- the end --------------------------------------------------------------------------------------

    def _finish(self, instruction: job.Finish) -> None:
        self.launcher.close()
        self.actions.close()
        self.flight.close()
        self.diagnostician.close()
        _clear_up(self.settings.run_base, self.run_dir)
        self.models.close()
        self.book.use_models(self.models.use)
        self.book.finish(instruction, list(self.workers.values()), self.machine)
        if self.book.snapshot is not None:
            if {task.eval_status for task in self.book.snapshot.tasks} == {"success"}:
                datahome.drop_buffers(self.run_dir)
            self.watchdog.ended(self.book.snapshot.status, self.diagnostician.verdicts)
        self.finished = True

    def crashed(self, ex: BaseException) -> None:
        """A fault of Hawk's own: say so in the job, and leave the workers to the next supervisor."""
        self.book.note("job", self.spec.job_id, "supervisor failed", f"{type(ex).__name__}: {ex}")
        if isinstance(ex, TransitionError):
            sys.stderr.writelines(f"{line}\n" for line in ex.fields["story"])


def _exit_reason(end: Exit | None, status: int | None) -> str:
    """How a worker ended; empty when it ended well."""
    if end is not None and end.code == 0 and status in (0, None):
        return ""
    if end is not None and end.reason:
        return end.reason
    if status is not None:
        return describe_status(status) or "ended without saying how"
    return "died while no supervisor watched" if end is None else f"exited with code {end.code}"


def _redirect(log: Path) -> None:
    """Standard output and error go to the job's own log from here on."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def supervise(assignment: Assignment, settings: Settings, zygote: Callable[[], Zygote] | Zygote) -> int:
    """Take the job and run it. Returns the exit code: 0 when the job came to an end, good or bad."""
    run_dir = RunDir(Path(assignment.run_dir))
    lock = hold(run_dir.lock_file)
    if lock is None:
        return 0  # another supervisor has it
    _redirect(run_dir.supervisor_log)
    supervisor = None
    try:
        warm = zygote if isinstance(zygote, Zygote) else zygote()
        supervisor = Supervisor(run_dir, assignment.secrets, settings, warm)
        supervisor.run()
    except Exception as ex:
        say(traceback.format_exc())
        if supervisor is not None:
            supervisor.crashed(ex)
        return 1
    return 0


def settle(run_dir: RunDir, reason: str) -> None:
    """Write the last snapshot of a job whose runner died and is not started again."""
    book = Book(run_dir, run_dir.read_spec())
    plan = run_dir.read_plan()
    if plan is not None:
        book.use_plan(plan)
    _clear_up(load_settings().run_base, run_dir)
    book.settle(reason)


def _clear_up(run_base: Path, run_dir: RunDir) -> None:
    """Remove what killed workers and supervisors of a job that has ended have left: its last supervisor does."""
    sweep(run_dir)
    datahome.remove(run_base, run_dir)
    sweep_drafts(run_dir)
    for directory in (run_dir.path, *run_dir.path.glob("workers/*"), *run_dir.path.glob("workers/*/stacks")):
        remove_temporaries(directory)


def _inherited(fd: int) -> socket.socket:
    """A socket that came with the process; what this one starts must not have it."""
    os.set_inheritable(fd, False)
    return socket.socket(fileno=fd)


def main() -> int:
    os.umask(0o077)
    settings = load_settings()
    if sys.argv[1] == "--settle":
        settle(RunDir(Path(sys.argv[2])), sys.argv[3] if len(sys.argv) > 3 else "the runner died")
        return 0
    become_subreaper()
    if sys.argv[1] == "--told":
        zygote = Zygote(there=_inherited(int(sys.argv[2])) if len(sys.argv) > 2 else None)
        line = sys.stdin.buffer.readline()
        if not line.strip():
            return 0  # the server ended without a job for us
        return supervise(msgspec.json.decode(line, type=Assignment), settings, zygote)
    secrets = msgspec.json.decode(sys.stdin.buffer.read() or b"{}", type=dict[str, str])
    return supervise(Assignment(sys.argv[1], secrets), settings, Zygote)


if __name__ == "__main__":
    sys.exit(main())
