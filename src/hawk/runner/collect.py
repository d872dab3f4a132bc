"""Collects what there is to know about every attempt of a job, from four sources.

Finished attempts come from the logs, and those that wait to be written there from the realtime buffer;
attempts in flight from the workers' control sockets, or from the buffer while a worker does not answer. What
once completed stays so, whatever a source says later.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from hawk.bridge.buffer import BufferReader, find
from hawk.bridge.control import ControlBusy, ControlError, ControlSocket, SampleRow, TaskRow
from hawk.bridge.evallog import LogCache, LogUnreadable, list_logs
from hawk.bridge.logformat import SampleSummary
from hawk.core.pairs import leave_out, settle
from hawk.core.plan import Plan
from hawk.core.snapshot import Activity, Sample
from hawk.core.states import QUEUED, ActivityType, SamplePhase
from hawk.core.status import AttemptKey, TaskEvidence
from hawk.runner import rows
from hawk.runner.heartbeat import (
    Heartbeat,
    SandboxEnded,
    TaskStarted,
    attempt_name,
    read_heartbeat,
    split_name,
)
from hawk.runner.processes import Worker
from hawk.store.rundir import RunDir
from hawk.store.tails import Tail

T = TypeVar("T")

BUSY_AFTER = 2.0
"""Seconds of silence after which a worker counts as busy: one missed deadline may be a hiccup."""


class Live(msgspec.Struct):
    """What one worker's control socket said."""

    tasks: list[TaskRow] = []
    samples: dict[str, list[SampleRow]] = {}  # by eval id
    error: str | None = None
    busy: bool = False
    seconds: float = 0.0


class Collector:
    """Keeps what it has read; each call of `collect` reads what is new."""

    def __init__(self, run_dir: RunDir, plan: Plan) -> None:
        self._run_dir = run_dir
        self._plan = plan
        self._evidence = {task.identifier: TaskEvidence(plan=task, rules=plan.order) for task in plan.tasks}
        limited = 0 < plan.slots < plan.total
        self._queued = f"their turn: {plan.slots:,} attempts run at once" if limited else QUEUED
        self._ended: dict[str, dict[AttemptKey, Sample]] = {task.identifier: {} for task in plan.tasks}
        self._summaries: dict[str, dict[AttemptKey, SampleSummary]] = {
            task.identifier: {} for task in plan.tasks
        }
        self._flight: dict[str, dict[AttemptKey, Sample]] = {task.identifier: {} for task in plan.tasks}
        self._identifiers: dict[str, str] = {}  # by eval id and by task id
        self._sandboxes: dict[str, dict[AttemptKey, SandboxEnded]] = {}  # by eval id
        self._resume: dict[str, str] = {}
        self._cache = LogCache()
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._buffers: dict[Path, BufferReader] = {}
        self._tails: dict[Path, Tail] = {}
        self._threads: ThreadPoolExecutor | None = None
        self.errors: dict[str, str] = {}
        self.answering = 0.0
        """Seconds that the slowest worker which answered took for it, at the last look."""

    def collect(self, workers: list[Worker], now: datetime) -> list[TaskEvidence]:
        """Evidence for every task of the plan, in its order.

        Args:
            workers: Those that live; their `busy_since` is kept up to date.
        """
        self.errors = {}
        for evidence in self._evidence.values():
            evidence.live, evidence.waiting_reason = False, self._queued
        self._learn_identifiers()
        self._learn_sandboxes()
        self._read_logs()
        for flights in self._flight.values():
            flights.clear()
        answers = self._ask(workers)
        self.answering = max((live.seconds for live in answers), default=0.0)
        for worker, live in zip(workers, answers, strict=True):
            self._take(worker, live, now)
        # Again: what left a worker and its buffer between those two looks is in the log by now.
        self._read_logs()
        for identifier, evidence in self._evidence.items():
            evidence.attempts = self._merged(identifier)
            settle(evidence.plan, evidence.attempts, self._plan.order)
        leave_out(self._plan, {identifier: e.attempts for identifier, e in self._evidence.items()})
        return list(self._evidence.values())

    @property
    def summaries(self) -> dict[str, dict[AttemptKey, SampleSummary]]:
        """What is in the logs of attempts that ended, by task identifier."""
        return self._summaries

    def resume_logs(self) -> dict[str, str]:
        """The newest log by task identifier: what a new worker resumes from."""
        self._learn_identifiers()
        self._read_logs()
        return dict(self._resume)

    def _merged(self, identifier: str) -> dict[AttemptKey, Sample]:
        """An attempt in flight beats an error of an earlier try, never an outcome."""
        merged = dict(self._ended[identifier])
        for key, sample in self._flight[identifier].items():
            before = merged.get(key)
            if before is None or before.phase in (SamplePhase.ERRORED, SamplePhase.CANCELED):
                merged[key] = sample
        for eval_id, ended in self._sandboxes.items():
            if self._identifiers.get(eval_id) == identifier:
                for key in ended.keys() & merged.keys():
                    merged[key] = rows.with_sandbox(merged[key], ended[key].at, ended[key].facts)
        return merged

    # --- logs -----------------------------------------------------------------------------------------

    def _learn_identifiers(self) -> None:
        """Read what workers wrote as their tasks started."""
        for started in self._new_lines("tasks.jsonl", TaskStarted):
            self._identifiers[started.eval_id] = started.identifier
            self._identifiers[started.task_id] = started.identifier

    def _learn_sandboxes(self) -> None:
        """Read what workers wrote as sandboxes ended that hit a limit or were lost."""
        for ended in self._new_lines("sandboxes.jsonl", SandboxEnded):
            with contextlib.suppress(ValueError):
                sample_id, epoch, eval_id = split_name(ended.attempt)
                self._sandboxes.setdefault(eval_id, {})[sample_id, epoch] = ended

    def _new_lines(self, name: str, type_: type[T]) -> Iterator[T]:
        """What workers have appended to their file of that name since the last call; not what is damaged."""
        for path in (self._run_dir.path / "workers").glob(f"*/{name}"):
            yield from self._tails.setdefault(path, Tail(path)).read(msgspec.json.Decoder(type_))

    def _read_logs(self) -> None:
        for path in list_logs(self._run_dir.logs):
            try:
                stat = path.stat()
                stamp = (stat.st_mtime_ns, stat.st_size)
                if self._stamps.get(path) == stamp:
                    continue
                header, summaries = self._cache.read(path)
            except (OSError, LogUnreadable) as ex:
                self.errors["tasks"] = f"{path.name}: {getattr(ex, 'why', ex)}"
                continue
            identifier = self._identifiers.get(header.eval_id) or self._identifiers.get(header.task_id)
            evidence = self._evidence.get(identifier or "")
            if identifier is None or evidence is None:
                continue  # its line in tasks.jsonl comes in a moment; a log of another plan never does
            self._stamps[path] = stamp
            self._resume[identifier] = str(path)
            evidence.task_id, evidence.eval_id = header.task_id, header.eval_id
            evidence.log_file, evidence.eval_status = path.name, header.status
            evidence.metrics, evidence.error = header.metrics, header.error
            prior = path.name in self._plan.prior_logs
            for summary in summaries:
                if summary.completed and (summary.reusable or not prior):
                    self._end(identifier, summary)

    def _end(self, identifier: str, summary: SampleSummary) -> None:
        """Keep an outcome; one that completed is never displaced by one that did not."""
        if summary.completed_at is None:
            return  # Inspect recovered it from a worker that was killed: it was in flight, and runs again
        sample = rows.ended(summary, self._plan.rules.pass_rule)
        ended = self._ended[identifier]
        key = (sample.id, sample.epoch)
        before = ended.get(key)
        if (
            before is None
            or before.uuid == sample.uuid
            or before.phase in (SamplePhase.ERRORED, SamplePhase.CANCELED)
        ):
            ended[key] = sample
            self._summaries[identifier][key] = summary

    # --- workers --------------------------------------------------------------------------------------

    def _ask(self, workers: list[Worker]) -> list[Live]:
        if len(workers) < 2:
            return [_listen(worker) for worker in workers]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="control")
        return list(self._threads.map(_listen, workers))

    def _take(self, worker: Worker, live: Live, now: datetime) -> None:
        state = "ok" if live.error is None else "busy" if live.busy else "gone"
        if state != worker.control:
            worker.control, worker.control_since = state, now.isoformat()
        worker.control_error = live.error or ""
        worker.answered = worker.answered or state == "ok"
        heartbeat = read_heartbeat(worker.home) or Heartbeat(at="", pid=worker.pid)
        blocked = self._busy(worker, live, heartbeat, now)
        rows_by_eval = {row.eval_id: row for row in live.tasks}
        for eval_id, identifier in self._evals_of(worker, rows_by_eval):
            evidence = self._evidence[identifier]
            row = rows_by_eval.get(eval_id)
            log = _log_path(self._run_dir, row, evidence)
            if log is None:
                continue
            evidence.log_file, evidence.eval_id = log.name, eval_id
            if row is not None:
                evidence.task_id, evidence.http_retries = row.task_id, row.http_retries
                evidence.live = row.completed_at is None
            else:
                evidence.live = evidence.eval_status in (None, "started")
            self._take_task(worker, identifier, eval_id, log, live, heartbeat, blocked, now)
        if heartbeat.preparing is not None:
            for identifier in worker.identifiers:
                if identifier in self._evidence and not self._flight[identifier]:
                    self._evidence[identifier].waiting_reason = heartbeat.preparing

    def _take_task(
        self,
        worker: Worker,
        identifier: str,
        eval_id: str,
        log: Path,
        live: Live,
        heartbeat: Heartbeat,
        blocked: Activity | None,
        now: datetime,
    ) -> None:
        reader = self._reader(worker, log)
        buffered = {}
        if reader is not None:
            reader.new_events()
            for summary in reader.running():
                if summary.completed:
                    self._end(identifier, summary)
                else:
                    buffered[summary.key] = summary
        flight = self._flight[identifier]
        if live.error is None:
            for row in live.samples.get(eval_id, []):
                name = attempt_name(str(row.sample_id), row.epoch, eval_id)
                events = reader.last_events(*row.key) if reader else []
                flight[row.key] = rows.in_flight(
                    row,
                    buffered.get(row.key),
                    events,
                    now=now,
                    uuid=heartbeat.uuids.get(name),
                    http_retries=heartbeat.http_retries.get(name, 0),
                    outcomes=reader.outcomes(*row.key) if reader else "",
                    sandbox=heartbeat.sandboxes.get(name),
                    awaited=heartbeat.sandbox_waits.get(name),
                )
        elif reader is not None:
            for key, summary in buffered.items():
                events = reader.last_events(*key)
                sandbox = heartbeat.sandboxes.get(attempt_name(*key, eval_id))
                flight[key] = rows.unreachable(summary, events, blocked, reader.outcomes(*key), now, sandbox)

    def _busy(self, worker: Worker, live: Live, heartbeat: Heartbeat, now: datetime) -> Activity | None:
        """Note a worker that does not answer, and say what its attempts are then doing."""
        if not live.busy:
            worker.busy_since = None
            return None
        worker.busy_since = worker.busy_since or now.isoformat()
        silent = rows.seconds_between(worker.busy_since, now)
        lag = heartbeat.loop_lag
        if max(silent, lag) < BUSY_AFTER:
            return None
        self.errors["tasks"] = (
            f"worker {worker.index} has not answered for {max(silent, lag):.0f} s: it is busy"
        )
        by = f": it is in {worker.held_by}" if worker.held_by else ""
        detail = f"worker {worker.index}'s event loop does not turn{by}"
        return Activity(ActivityType.BLOCKED, detail, worker.busy_since)

    def _evals_of(self, worker: Worker, rows_by_eval: dict[str, TaskRow]) -> list[tuple[str, str]]:
        """(eval id, identifier) of the evals that a worker runs now."""
        if rows_by_eval:
            known = ((eval_id, self._identifiers.get(eval_id)) for eval_id in rows_by_eval)
            return [(eval_id, found) for eval_id, found in known if found in self._evidence and found]
        mine = ((e.eval_id, i) for i, e in self._evidence.items() if i in worker.identifiers)
        return [(eval_id, identifier) for eval_id, identifier in mine if eval_id is not None]

    def _reader(self, worker: Worker, log: Path) -> BufferReader | None:
        db = find(worker.home / "data", log)
        if db is None:
            return None
        reader = self._buffers.get(db)
        if reader is None:
            reader = self._buffers[db] = BufferReader(db)
        return reader

    def recover(self) -> None:
        """Take the outcomes that only the buffers of dead workers still hold."""
        self._learn_identifiers()
        self._read_logs()
        for identifier, evidence in self._evidence.items():
            prior = evidence.log_file in self._plan.prior_logs
            for home in (self._run_dir.path / "workers").glob("[0-9]*"):
                db = (
                    find(home / "data", self._run_dir.logs / evidence.log_file) if evidence.log_file else None
                )
                for summary in BufferReader(db).running() if db else []:
                    if summary.completed and (summary.reusable or not prior):
                        self._end(identifier, summary)


def _listen(worker: Worker) -> Live:
    """Everything one worker has to say about what it runs now."""
    socket = ControlSocket(worker.data_home)
    asked = time.monotonic()
    try:
        tasks = socket.tasks()
        samples = {
            row.eval_id: [sample for sample in socket.samples(row.eval_id) if sample.begun]
            for row in tasks
            if row.completed_at is None and (row.samples.in_flight or row.samples.queued)
        }
    except ControlBusy as ex:
        return Live(error=str(ex), busy=True)
    except ControlError as ex:
        return Live(error=str(ex))
    return Live(tasks, samples, seconds=time.monotonic() - asked)


def _log_path(run_dir: RunDir, row: TaskRow | None, evidence: TaskEvidence) -> Path | None:
    if row is not None and row.log_location:
        return Path(row.log_location.removeprefix("file://"))
    return run_dir.logs / evidence.log_file if evidence.log_file else None
