"""The jobs in flight: those that this server looks after until they have ended and are indexed."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hawk.config.ids import check_id
from hawk.core.snapshot import SealedSnapshot
from hawk.errors import ConflictError, StorageError
from hawk.store.database import Database
from hawk.store.importer import Importer
from hawk.store.rundir import RunDir, storage_error

SUBMIT_WAIT = 30.0  # seconds one request waits for another on the same id; a launch takes well under one


class SnapshotFile:
    """A job's snapshot, decoded again only when the file has changed. Safe from any thread."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._snapshot: SealedSnapshot | None = None
        self.error: str | None = None

    def read(self) -> tuple[tuple[int, int, int] | None, SealedSnapshot | None]:
        """The file's stamp and content; (None, None) while there is none. Don't modify what you get.

        A damaged file gives the last good content, and says so in `error`.
        """
        with self._lock:
            try:
                stat = self._run.snapshot_file.stat()
            except OSError:
                self._stamp, self._snapshot, self.error = None, None, None
                return None, None
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp != self._stamp:
                try:
                    self._snapshot, self.error = self._run.read_sealed_snapshot(), None
                except StorageError as ex:
                    self.error = ex.message
                self._stamp = stamp
            return self._stamp, self._snapshot


@dataclass
class JobState:
    """One job in flight.

    Attributes:
        secrets: For a relaunch; nowhere else.
        launched_at: Monotonic time of the last launch by this server; None: adopted, not launched here.
        seen_alive: The runner of that launch has been seen.
        restarts: Relaunches since an attempt last ended.
        retry_at: Monotonic time of the next relaunch; None while none is planned.
        outcomes: Attempts that had ended at the last relaunch.
        failing: Reason and remedy, once the server has given the job up.
        import_errors: Logs that could not be read at the last import, and why.
    """

    run: RunDir
    snapshot: SnapshotFile
    importer: Importer
    created_by: str | None = None
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    launched_at: float | None = None
    seen_alive: bool = False
    restarts: int = 0
    retry_at: float | None = None
    outcomes: int = 0
    failing: tuple[str, str] | None = None
    import_errors: dict[str, str] = field(default_factory=dict)
    import_tries: int = 0
    _importing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def job_id(self) -> str:
        return self.run.job_id

    def import_new(self) -> None:
        """Index what its logs have new."""
        with self._importing:
            self.import_errors = self.importer.run().errors


class Registry:
    """Jobs in flight by id, and a lock for each id."""

    def __init__(self, root: Path, database: Database) -> None:
        self.root = root
        self._database = database
        self._jobs: dict[str, JobState] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def run(self, job_id: str) -> RunDir:
        """The run directory of an id, there or not.

        Raises:
            UsageError: It is no id (and could point outside the root).
        """
        check_id(job_id)
        return RunDir(self.root / job_id)

    def get(self, job_id: str) -> JobState | None:
        return self._jobs.get(job_id)

    def all(self) -> list[JobState]:
        return list(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, run: RunDir, *, created_by: str | None, secrets: Mapping[str, str]) -> JobState:
        """Look after a job from now on; secrets that were held for it are kept beside the new ones."""
        old = self._jobs.get(run.job_id)
        state = JobState(
            run=run,
            snapshot=SnapshotFile(run),
            importer=Importer(self._database, run),
            created_by=created_by,
            secrets={**(old.secrets if old else {}), **secrets},
        )
        self._jobs[run.job_id] = state
        return state

    def drop(self, job_id: str) -> None:
        """The job has ended: forget it, and its secrets."""
        state = self._jobs.pop(job_id, None)
        if state is not None:
            state.secrets.clear()

    @contextmanager
    def exclusive(self, job_id: str) -> Iterator[None]:
        """Alone with an id: among this server's threads, and among servers that share the root.

        Raises:
            ConflictError: Another request has held it for too long.
            StorageError: The root can't be written.
        """
        with self._guard:
            lock = self._locks.setdefault(job_id, threading.Lock())
        if not lock.acquire(timeout=SUBMIT_WAIT):
            raise ConflictError(
                f"Another request for {job_id!r} is still at work.", remedy="Try again in a moment."
            )
        try:
            with _file_lock(self.root / ".locks" / job_id):
                yield
        finally:
            lock.release()


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as ex:
        raise storage_error(path, ex) from ex
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)
