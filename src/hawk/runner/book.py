"""The supervisor's book: what it has observed, written down.

Three files: the journal (every change of state, with its reason), the snapshot (the state now, rewritten when
it changes), and at the end the verdict.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from hawk.core.job import Finish, JobMachine
from hawk.core.pairs import unneeded
from hawk.core.plan import Plan, PlanTask
from hawk.core.snapshot import Metric, ModelUse, Sample, Snapshot
from hawk.core.snapshot import Worker as WorkerRow
from hawk.core.states import JobStatus, Operation, SamplePhase, WorkerState
from hawk.core.status import (
    JobFacts,
    TaskEvidence,
    add_up,
    build,
    count,
    revision,
    verdict,
    without_outcome,
)
from hawk.errors import StorageError
from hawk.runner.backfill import write_missing
from hawk.runner.collect import Collector
from hawk.runner.heartbeat import read_heartbeat
from hawk.runner.processes import Worker
from hawk.store.attempts import read_results
from hawk.store.rundir import JobSpec, JournalEntry, RunDir, write_json

EAGER, CALM = 0.25, 1.0
"""Seconds between looks: while the job is young a person is watching it start."""
YOUNG = 5.0
DUTY = 12.0
"""Looks may take at most 1/12 of a core: on a large job they grow rarer instead of slowing the work."""
ASKING = 4.0
"""The same for the time that workers take to answer: it is their loop's, which attempts wait for. One that does
not answer at all does no work for it: what the others do is not to be known later for that."""
REFRESH = 5.0
"""Seconds after which a snapshot is written though nothing but the clock changed it."""


Judge = Callable[[], tuple[list[dict[str, Any]], bool, dict[str, str]]]
"""Gives verdicts as plain data, whether the job is stuck, and the cause that holds an attempt by its uuid."""

VERDICT_RETRY = 2.0
"""Seconds between tries to write the verdict onto a full disk."""


def say(text: str) -> None:
    """A line for the supervisor's log, which may lie on a full disk: that must not end the supervisor."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def utcnow() -> datetime:
    return datetime.now(UTC)


class Book:
    """One job's records."""

    def __init__(self, run_dir: RunDir, spec: JobSpec) -> None:
        self.run_dir = run_dir
        self.spec = spec
        self.plan: Plan | None = None
        self.operation: Operation | None = None
        self.snapshot: Snapshot | None = None  # as it was built last
        self.judge: Judge | None = None
        self.concluded: Callable[[Snapshot], list[dict[str, Any]]] | None = None  # the last verdicts of all
        self.stopped_as_error: set[str] | None = set()  # uuids; None: every attempt
        self.again: set[tuple[str, str, int]] = set()  # attempts that were ended to be run again
        self._collector: Collector | None = None
        self._evidence: list[TaskEvidence] = []
        self._phases: dict[tuple[int, str, int], SamplePhase] = {}
        self._facts = JobFacts(spec.job_id, created_by=spec.created_by, started_at=utcnow().isoformat())
        self._born = time.monotonic()
        self._next_look = 0.0
        self._written: str | None = None
        self._written_at = 0.0
        self._storage_error: str | None = None

    # --- writing --------------------------------------------------------------------------------------

    def note(
        self, kind: str, subject: str, state: str, reason: str = "", data: dict[str, Any] | None = None
    ) -> None:
        """Write one line into the journal. From any thread."""
        self._append([JournalEntry(utcnow().isoformat(), kind, subject, state, reason, data or {})])

    def _append(self, entries: list[JournalEntry]) -> None:
        try:
            self.run_dir.append_journal(*entries)
        except StorageError as ex:
            self._storage_error = ex.message  # shown in the snapshot as soon as one can be written
            say(ex.render())

    def use_plan(self, plan: Plan) -> None:
        self.plan = plan
        self._collector = Collector(self.run_dir, plan)
        self._evidence = [TaskEvidence(plan=task, rules=plan.order) for task in plan.tasks]
        self.recover()

    def recover(self) -> None:
        """Take what only the buffers of dead workers still know."""
        if self._collector is not None:
            self._collector.recover()

    def complete_results(self) -> None:
        """Write the results that workers did not live to write."""
        if self._collector is None or self.plan is None:
            return
        try:
            count = write_missing(self.run_dir, self.plan, self._collector.summaries)
        except StorageError as ex:
            self._storage_error = ex.message
            say(ex.render())
            return
        if count:
            self.note("job", self.spec.job_id, "results written", f"{count}, from the logs")

    def _take_outcomes(self) -> None:
        """Let the last snapshot say of each attempt what its result says: a worker knows more than its log's summary."""
        outcomes = {result.uuid: result.outcome for result in read_results(self.run_dir)[0] if result.uuid}
        for evidence in self._evidence:
            for key, sample in evidence.attempts.items():
                outcome = outcomes.get(sample.uuid or "")
                if outcome is not None and outcome != sample.outcome:
                    evidence.attempts[key] = msgspec.structs.replace(sample, outcome=outcome)

    def use_models(self, use: ModelUse | None) -> None:
        """What the job has spent at the middleman."""
        self._facts.models = use or self._facts.models

    # --- observing ------------------------------------------------------------------------------------

    def observe(self, workers: list[Worker], machine: JobMachine, *, force: bool = False) -> bool:
        """Look at everything and write what changed; at once when forced, else when it is time again.

        Returns:
            Whether it was time.
        """
        begun, cpu = time.monotonic(), time.process_time()
        if begun < self._next_look and not force:
            return False
        living = [w for w in workers if _lives(w, machine)]
        now = utcnow()
        if self._collector is not None:
            self._collect(living, now)
            self._facts.errors = dict(self._collector.errors)
            self._journal_attempts()
        self._facts.workers = [_worker_row(w, machine) for w in workers]
        self._facts.metrics = _metrics(living)
        self._facts.operation = self.operation
        if self.judge is not None:
            self._facts.diagnosis, self._facts.stuck, self._facts.causes = self.judge()
        if self._storage_error is not None:
            self._facts.errors["storage"] = self._storage_error
        self.snapshot = build(self.plan, self._evidence, self._facts, now)
        self._write(self.snapshot)
        spent = time.process_time() - cpu
        period = EAGER if begun - self._born < YOUNG else CALM
        asking = self._collector.answering if self._collector is not None else 0.0
        self._next_look = time.monotonic() + max(period, DUTY * spent, ASKING * asking)
        return True

    def _collect(self, living: list[Worker], now: datetime) -> None:
        assert self._collector is not None
        self._evidence = self._collector.collect(living, now)
        for evidence in self._evidence:
            for key, sample in evidence.attempts.items():
                if sample.phase is SamplePhase.CANCELED and self._is_error(sample):
                    evidence.attempts[key] = msgspec.structs.replace(
                        sample, phase=SamplePhase.ERRORED, error="stopped, and marked as an error"
                    )

    def _is_error(self, canceled: Sample) -> bool:
        """Whether a person asked that this attempt end as an error. Inspect itself has no such end with retries left."""
        if unneeded(canceled):
            return False
        return self.stopped_as_error is None or canceled.uuid in self.stopped_as_error

    def _journal_attempts(self) -> None:
        entries = []
        now = utcnow().isoformat()
        for n, evidence in enumerate(self._evidence):
            for (sample_id, epoch), sample in evidence.attempts.items():
                key = (n, sample_id, epoch)
                phase = sample.phase
                known = self._phases.get(key)
                if known is phase or (known is not None and known.in_flight and phase.in_flight):
                    continue
                self._phases[key] = phase
                subject = f"{evidence.plan.name}/{sample_id}/{epoch}"
                reason = sample.error or sample.limit or ""
                data = {"uuid": sample.uuid} if sample.uuid else {}
                entries.append(JournalEntry(now, "attempt", subject, phase, reason, data))
        self._append(entries)

    def _write(self, snapshot: Snapshot) -> None:
        snapshot.revision = revision(snapshot)
        now = time.monotonic()
        if snapshot.revision == self._written and now - self._written_at < REFRESH:
            return
        try:
            write_json(self.run_dir.snapshot_file, snapshot, durable=snapshot.status.terminal)
        except StorageError as ex:
            if snapshot.status.terminal:
                raise
            self._storage_error = ex.message
            return
        self._storage_error = None
        self._written, self._written_at = snapshot.revision, now

    # --- asking ---------------------------------------------------------------------------------------

    def unfinished(self) -> list[PlanTask]:
        """Tasks with attempts that have no outcome, or whose log was not finished: only a buffer has the rest."""
        return [e.plan for e in self._evidence if _lacking(e) or self._again(e)]

    def _again(self, evidence: TaskEvidence) -> bool:
        """Whether an attempt was ended to be run again, and has not been begun again yet."""
        keys = [key for key in self.again if key[0] == evidence.plan.identifier]
        rows = (evidence.attempts.get(key[1:]) for key in keys)
        return any(
            row is not None and row.phase is SamplePhase.CANCELED and not unneeded(row) for row in rows
        )

    def unfinished_of(self, identifiers: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(task.identifier for task in self.unfinished() if task.identifier in identifiers)

    def outcomes(self, identifiers: tuple[str, ...]) -> int:
        """How many attempts of some tasks have an outcome."""
        return sum(
            sample.phase.final
            for evidence in self._evidence
            if evidence.plan.identifier in identifiers
            for sample in evidence.attempts.values()
        )

    def in_flight(self, identifiers: tuple[str, ...]) -> list[Sample]:
        """Attempts of some tasks that run, as they were at the last look."""
        return [
            sample
            for evidence in self._evidence
            if evidence.plan.identifier in identifiers
            for sample in evidence.attempts.values()
            if sample.phase.in_flight
        ]

    def tasks(self) -> list[TaskEvidence]:
        """What is known of every task, as it was at the last look; not to be changed."""
        return self._evidence

    def resume_logs(self) -> dict[str, str]:
        return self._collector.resume_logs() if self._collector else {}

    def find_sample(self, uuid: str) -> tuple[str, str, Sample] | None:
        """(task identifier, eval id, row) of an attempt by its uuid."""
        for evidence in self._evidence:
            for sample in evidence.attempts.values():
                if sample.uuid == uuid and evidence.eval_id is not None:
                    return evidence.plan.identifier, evidence.eval_id, sample
        return None

    # --- the end --------------------------------------------------------------------------------------

    def finish(self, end: Finish, workers: list[Worker], machine: JobMachine) -> None:
        """Give every attempt an outcome, write the verdict."""
        if self._collector is not None:
            self._collector.recover()
            self._collect([], utcnow())
            self.complete_results()
            self._take_outcomes()
        self._facts.workers = [_worker_row(w, machine) for w in workers]
        reason = end.reason
        if end.stopped:
            reason = reason or f"stopped ({machine.stopping})"
        why = end.reason or ("stopped" if end.stopped else "its worker ended without an outcome for it")
        asked = (
            end.stopped and end.reason is None
        )  # a person's stop; a job that was halted did not get its way
        self._close_attempts(why, stopped=asked)
        progress = add_up(count(_rows(e)) for e in self._evidence)
        if self.plan is None:
            status = JobStatus.COMPLETE if end.stopped and end.reason is None else JobStatus.FAILED
        else:
            status, reason = verdict(progress, stopped=end.stopped, reason=reason)
        self._conclude(status, reason, end.remedy)

    def settle(self, reason: str) -> None:
        """The same for a job whose runner is gone: what has no outcome errored, because of that."""
        if self._collector is not None:
            self._collector.recover()
            self._collect([], utcnow())
            self.complete_results()
            self._take_outcomes()
        self._close_attempts(reason, stopped=False)
        progress = add_up(count(_rows(e)) for e in self._evidence)
        done = self.plan is not None and not progress.errored
        status = JobStatus.COMPLETE if done else JobStatus.FAILED
        self._conclude(status, None if done else reason, None, patient=False)

    def _close_attempts(self, why: str, *, stopped: bool) -> None:
        for evidence in self._evidence:
            evidence.live = False
            cause = evidence.error or why
            evidence.attempts = {**evidence.attempts, **without_outcome(evidence, cause, stopped=stopped)}
        self._journal_attempts()

    def _conclude(
        self, status: JobStatus, reason: str | None, remedy: str | None, *, patient: bool = True
    ) -> None:
        now = utcnow()
        facts = self._facts
        facts.ended, facts.reason, facts.operation = status, reason, None
        facts.remedy = remedy or (_remedy(self.spec.job_id) if status is JobStatus.FAILED else None)
        facts.finished_at = now.isoformat()
        facts.errors, facts.stuck, facts.causes = {}, False, {}
        snapshot = self.snapshot = build(self.plan, self._evidence, facts, now)
        if self.concluded is not None:
            snapshot.diagnosis = self.concluded(snapshot)
        while True:
            try:
                self._write(snapshot)
                break
            except (
                StorageError
            ) as ex:  # a full disk: the verdict waits for room, finished attempts are in their logs
                print(ex.render(), flush=True)  # noqa: T201  # the supervisor's log
                time.sleep(5.0)
        self.note("job", self.spec.job_id, status, reason or "")


def _lives(worker: Worker, machine: JobMachine) -> bool:
    record = machine.workers.get(worker.index)
    return record is None or record.state is WorkerState.RUNNING


def _lacking(evidence: TaskEvidence) -> bool:
    plan = evidence.plan
    return evidence.eval_status == "started" or any(
        (row := evidence.attempts.get((sample_id, epoch))) is None or not row.phase.final
        for sample_id in plan.sample_ids
        for epoch in range(1, plan.epochs + 1)
    )


def _rows(evidence: TaskEvidence) -> list[Sample]:
    return list(evidence.attempts.values())


def _worker_row(worker: Worker, machine: JobMachine) -> WorkerRow:
    record = machine.workers.get(worker.index)
    return WorkerRow(
        index=worker.index,
        state=record.state if record else WorkerState.RUNNING,
        pid=worker.pid,
        reason=(record.reason or None) if record else None,
        restarts=record.restarts if record else 0,
        busy_since=worker.busy_since,
        tasks=len(worker.identifiers),
    )


def _metrics(workers: list[Worker]) -> dict[str, Metric]:
    beats = [beat for beat in (read_heartbeat(w.home) for w in workers) if beat is not None]
    if not beats:
        return {}
    return {
        "runner_cpu": Metric(round(sum(b.cpu for b in beats) * 1e9, -7), "nanosecond"),
        "runner_memory": Metric(float(sum(b.rss for b in beats)), "byte"),
    }


def _remedy(job_id: str) -> str:
    return f"hawk logs {job_id}, then hawk eval-set resume {job_id}: finished attempts are kept"
