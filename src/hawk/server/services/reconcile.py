"""Keeps every job in flight honest: adopts them at start, notices dead runners, starts them again or gives up.

A runner that dies is started again a bounded number of times without progress between; then the job is settled
and says why. It is started without secrets too when this server does not hold them: workers that live need no
new ones, and a runner that must start a worker ends the job with the names of what it needs.
"""

from __future__ import annotations

import logging
import shutil
import time

from hawk.core.snapshot import Snapshot
from hawk.core.states import JobStatus
from hawk.engine.protocol import Engine, Liveness
from hawk.errors import HawkError
from hawk.server.services.deletions import remove
from hawk.server.services.feeds import Feeds
from hawk.server.services.registry import JobState, Registry, now
from hawk.server.services.sources import keep_ready
from hawk.store import queries
from hawk.store.database import Database
from hawk.store.history import index_attempts
from hawk.store.importer import register, run_dirs, settle_row
from hawk.store.models import Job
from hawk.store.rundir import JournalEntry, write_json

PERIOD = 0.2
LAUNCH_GRACE = 10.0  # seconds a new supervisor has to take its lock; on a loaded machine Python starts slowly
MAX_RESTARTS = 3
FIRST_DELAY = 1.0  # seconds before the second relaunch, doubling; the first is at once
IMPORT_TRIES = 5  # looks at logs that can't be read, once the job has ended

_log = logging.getLogger(__name__)


class Reconciler:
    """Looks at one job at a time. Every method may block: call from a thread."""

    def __init__(self, database: Database, engine: Engine, registry: Registry, feeds: Feeds) -> None:
        self._database = database
        self._engine = engine
        self._registry = registry
        self._feeds = feeds

    def adopt_all(self) -> int:
        """Take up every unfinished job under the root, and finish deletions that were cut short.

        Returns:
            How many jobs are in flight.
        """
        root = self._registry.root
        for leftover in root.glob(".deleted-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with self._database.read() as session:
            settled = queries.finished(session)
            deleted = queries.deleted(session)
        for run in run_dirs(root):
            try:
                if run.job_id in deleted:
                    remove(run)
                elif run.job_id not in settled:
                    spec = run.read_spec()
                    with self._database.write() as session:
                        register(session, run, spec)
                    self._registry.add(run, created_by=spec.created_by, secrets={})
            except HawkError as ex:
                _log.error("run directory %s passed over: %s", run.path, ex)
        return len(self._registry)

    def look(self, job: JobState) -> None:
        """Compare what a job should be with what it is, and do what is due."""
        liveness = self._engine.liveness(job.job_id)
        if liveness.alive:
            job.seen_alive, job.retry_at = True, None
            return
        if not job.run.spec_file.exists():
            self._vanished(job)
            return
        _, snapshot = job.snapshot.read()  # after its death was seen, so this is the runner's last word
        if snapshot is not None and snapshot.status.terminal:
            self._finish(job)
        elif (
            job.launched_at is not None
            and not job.seen_alive
            and not liveness.elsewhere  # there the engine knows whether it starts
            and time.monotonic() < job.launched_at + LAUNCH_GRACE
        ):
            return
        elif liveness.mine:
            self._revive(job, snapshot, liveness)

    def _vanished(self, job: JobState) -> None:
        """Somebody has removed the run directory by hand: that is a deletion too."""
        with self._registry.exclusive(job.job_id):
            if self._registry.get(job.job_id) is not job or job.run.spec_file.exists():
                return
            _log.warning("job %s: its run directory has gone", job.job_id)
            self._engine.kill(job.job_id)
            with self._database.write() as session:
                row = session.get(Job, job.job_id)
                if row is not None:
                    row.status, row.deleted_at = JobStatus.DELETED, now()
            self._registry.drop(job.job_id)
        self._feeds.touch(job.job_id)

    def _finish(self, job: JobState) -> None:
        """The job has ended: index what is left, then let go of it. Secrets go at once."""
        job.secrets.clear()
        job.import_new()
        job.import_tries += 1
        if job.import_errors and job.import_tries < IMPORT_TRIES:
            return
        with self._database.write() as session:
            row = session.get(Job, job.job_id)
            if row is not None:
                settle_row(row, job.run)
                index_attempts(session, job.run)
        if self._registry.get(job.job_id) is job:
            self._registry.drop(job.job_id)
        self._feeds.touch(job.job_id)

    def _revive(self, job: JobState, snapshot: Snapshot | None, liveness: Liveness) -> None:
        outcomes = _outcomes(snapshot)
        tries = liveness.tries
        if outcomes > job.outcomes:
            job.outcomes, job.restarts, tries = outcomes, 0, 0
        detail = liveness.detail or "the runner died"
        remedy = liveness.remedy or f"hawk logs {job.job_id}, then hawk eval-set resume {job.job_id}"
        if liveness.final:
            self._give_up(job, detail, remedy)
        elif job.restarts + tries >= MAX_RESTARTS:
            reason = f"{detail}; started again {job.restarts + tries} times without progress"
            self._give_up(job, reason, remedy)
        elif job.retry_at is None and job.restarts > 0:
            job.retry_at = time.monotonic() + FIRST_DELAY * 2 ** (job.restarts - 1)
        elif job.retry_at is None or time.monotonic() >= job.retry_at:
            self._relaunch(job, detail)

    def _relaunch(self, job: JobState, detail: str) -> None:
        with self._registry.exclusive(job.job_id):
            if self._registry.get(job.job_id) is not job or self._engine.liveness(job.job_id).alive:
                return
            job.restarts += 1
            job.retry_at, job.seen_alive = None, False
            _note(job, "relaunched", f"{detail} (try {job.restarts} of {MAX_RESTARTS})")
            _log.warning("job %s: %s; starting its runner again, try %d", job.job_id, detail, job.restarts)
            keep_ready(job.run, job.run.read_spec())
            self._engine.launch(job.job_id, job.secrets)
            job.launched_at = time.monotonic()
        self._feeds.touch(job.job_id)

    def _give_up(self, job: JobState, reason: str, remedy: str) -> None:
        """Settle the job: nothing of it runs, its last snapshot is terminal and says why."""
        with self._registry.exclusive(job.job_id):
            if self._registry.get(job.job_id) is not job:
                return
            job.failing = (reason, remedy)
            _log.error("job %s given up: %s", job.job_id, reason)
            self._engine.kill(job.job_id)
            self._engine.settle(job.job_id)
            snapshot = job.run.read_snapshot() or Snapshot(job_id=job.job_id, created_by=job.created_by)
            if snapshot.status is not JobStatus.COMPLETE:
                snapshot.status, snapshot.reason, snapshot.remedy = JobStatus.FAILED, reason, remedy
                snapshot.operation = None
                snapshot.finished_at = snapshot.finished_at or now().isoformat()
                write_json(job.run.snapshot_file, snapshot)
            _note(job, "given up", reason)
        self._feeds.touch(job.job_id)


def _outcomes(snapshot: Snapshot | None) -> int:
    if snapshot is None:
        return 0
    progress = snapshot.progress
    return progress.completed + progress.errored + progress.limit + progress.canceled


def _note(job: JobState, state: str, reason: str) -> None:
    job.run.append_journal(JournalEntry(now().isoformat(), "job", job.job_id, state, reason))
