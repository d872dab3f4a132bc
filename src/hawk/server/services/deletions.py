"""Tearing jobs down: the only way in which evidence goes.

The row is marked first, then the directory goes: a server that is killed between finishes at its next start.
"""

from __future__ import annotations

import secrets
import shutil

from hawk.core.states import JobStatus
from hawk.engine.protocol import Engine
from hawk.errors import HawkError, NotFoundError
from hawk.server.services.feeds import Feeds
from hawk.server.services.middleman import Middleman
from hawk.server.services.mirror import Mirror
from hawk.server.services.registry import Registry, now
from hawk.server.services.uploads import Uploads
from hawk.store import queries
from hawk.store.database import Database
from hawk.store.importer import register
from hawk.store.rundir import RunDir, storage_error


class Deletions:
    """Deletes jobs. Safe from any thread."""

    def __init__(
        self,
        database: Database,
        engine: Engine,
        registry: Registry,
        feeds: Feeds,
        middleman: Middleman,
        uploads: Uploads,
        mirror: Mirror | None = None,
    ) -> None:
        self._database = database
        self._engine = engine
        self._registry = registry
        self._feeds = feeds
        self._middleman = middleman
        self._uploads = uploads
        self._mirror = mirror

    def delete(self, job_id: str) -> None:
        """End the job's processes, remove its run directory, mark it deleted. Again: nothing to do.

        Raises:
            NotFoundError: There never was such a job.
            StorageError: The directory can't be removed.
        """
        run = self._registry.run(job_id)
        self._require(run)
        status = self._feeds.feed(job_id).status
        status.deleting = True
        try:
            with self._registry.exclusive(job_id):
                if run.path.exists():
                    self._middleman.revoke(job_id)
                    self._engine.kill(job_id)
                self._mark(run)
                self._registry.drop(job_id)
                files = _files(run)
                remove(run)
                if files is not None:
                    self._uploads.release(files)
                if self._mirror is not None:
                    self._mirror.forget(job_id)
        finally:
            status.deleting = False
            self._feeds.touch(job_id)

    def _require(self, run: RunDir) -> None:
        with self._database.read() as session:
            known = queries.find_job(session, run.job_id) is not None
        if not known and not run.spec_file.exists():
            raise NotFoundError(f"No eval set {run.job_id!r}.", remedy="hawk list eval-sets")

    def _mark(self, run: RunDir) -> None:
        with self._database.write() as session:
            job = queries.find_job(session, run.job_id) or register(session, run, run.read_spec())
            if job.deleted_at is None:
                job.status, job.deleted_at = JobStatus.DELETED, now()
            job.evals.clear()


def _files(run: RunDir) -> str | None:
    """The archive that a job was submitted with; that of a plan alone is kept a while for the job itself."""
    try:
        spec = run.read_spec()
    except HawkError:
        return None
    return None if spec.dry_run else spec.files


def remove(run: RunDir) -> None:
    """Remove a run directory: out of sight in one step, then file by file.

    Raises:
        StorageError: It can't be removed.
    """
    doomed = run.path.with_name(f".deleted-{run.job_id}-{secrets.token_hex(4)}")
    try:
        run.path.rename(doomed)
        shutil.rmtree(doomed)
    except FileNotFoundError:
        return
    except OSError as ex:
        raise storage_error(run.path, ex) from ex
