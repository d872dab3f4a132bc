"""Keeps a copy of every run directory in a bucket, and brings back what this machine has lost.

The run directory stays the truth, and what reads it is none the wiser. A file is stored within seconds of its change; one
that is large and grows less often, so that a journal of a gigabyte is not sent every second. Results come after what they
speak of, and the last snapshot after everything, so that a copy that was cut short is a run that was cut short.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hawk.errors import StorageError
from hawk.link import rules
from hawk.link.changes import Scanner, Stamp
from hawk.link.frames import ProtocolError
from hawk.store.bucket import Bucket, Held

PERIOD = 2.0
"""Seconds between looks."""

PATIENCE = 20.0
"""A file that changes all the time is stored again after so many times the seconds that it took to store it."""

SLOWEST = 300.0
"""Seconds after which a change is stored, however large the file."""

AT_ONCE = 8
"""Files on their way at once."""

LARGE = 8 * 2**20
"""Bytes above which a file is brought back later: a server must not wait for workspaces before it answers."""

_log = logging.getLogger(__name__)


class _Copy:
    """One job's copy, as far as this process knows."""

    def __init__(self, path: Path, there: dict[str, Held]) -> None:
        self.path = path
        self.there = there
        self.scanner = Scanner(path, lambda path: rules.carried(path) and not rules.borrowed(path))
        self.changed: dict[str, Stamp] = {}
        self.gone: set[str] = set()
        self.due: dict[str, float] = {}

    def look(self, *, everything: bool) -> None:
        changed, removed = self.scanner.look(everything=everything)
        there, self.there = (
            self.there,
            {},
        )  # at the first look only: what is stored later is known by its stamp
        self.changed |= {p: stamp for p, stamp in changed.items() if not _stored(stamp, there.get(p))}
        for path in removed:
            self.changed.pop(path, None)
        self.gone = (self.gone | removed) - self.changed.keys()

    @property
    def settled(self) -> bool:
        return not (self.changed or self.gone or self.scanner.doubtful)


class Mirror:
    """See the module.

    Args:
        bucket: Where the copies are.
        root: Parent of all run directories.
        running: Ids of the jobs in flight.

    Attributes:
        problem: Why the bucket could not be used at the last try, one line; None: it could.
    """

    def __init__(self, bucket: Bucket, root: Path, running: Callable[[], Iterable[str]]) -> None:
        self.bucket, self._root, self._running = bucket, root, running
        self._copies: dict[str, _Copy] = {}
        self._doomed: set[str] = set()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, "hawk-mirror")
        self._thread = threading.Thread(target=self._run, name="hawk-mirror", daemon=True)
        self._backlog: list[str] = []
        self._later: list[tuple[str, str, int]] = []
        self.problem: str | None = None

    def start(self, ended: Iterable[str]) -> None:
        """Begin to copy.

        Args:
            ended: Ids of jobs that are over: of these too all must be stored that a server before this one had no time to.
        """
        self._backlog = list(ended)
        self._thread.start()

    def close(self) -> None:
        """Store what is left, for a moment, and end."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def restore(self, deleted: set[str]) -> list[str]:
        """Bring back run directories that are not here: their small files now, large ones while the server runs.

        Args:
            deleted: Ids of jobs that were deleted: what is left of them in the bucket goes.

        Returns:
            Ids of those that came back.

        Raises:
            StorageError: The bucket can't be read, or a file not be written.
        """
        back = []
        for job_id in self.bucket.jobs():
            if job_id in deleted:
                self._doomed.add(job_id)
                continue
            target = self._root / job_id
            if (target / "job.json").exists():
                continue
            files = {path: held for path, held in self.bucket.files(job_id).items() if _may_come(path)}
            if "job.json" not in files:
                continue
            _log.info("bringing back %s from %s: %d files", job_id, self.bucket.url, len(files))
            now = [p for p, held in files.items() if held.size <= LARGE and p != "job.json"]
            list(self._pool.map(lambda p: self.bucket.get(job_id, p, target / p, size=files[p].size), now))  # noqa: B023
            self.bucket.get(job_id, "job.json", target / "job.json")  # with it the job exists
            self._later += [(job_id, path, held.size) for path, held in files.items() if held.size > LARGE]
            back.append(job_id)
        return back

    def forget(self, job_id: str) -> None:
        """The job was deleted: so is its copy, as soon as the bucket can be reached."""
        with self._lock:
            self._copies.pop(job_id, None)
            self._doomed.add(job_id)
        self._wake.set()

    # --- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            last = self._stopping.is_set()
            try:
                self._remove()
                self._fetch()
                running = set(self._running())
                for job_id in self._wanted(running):
                    self._copy(job_id, over=job_id not in running, last=last)
                self.problem = None
            except StorageError as ex:
                if self.problem is None:
                    _log.warning("%s", ex.message)
                self.problem = ex.message
            except Exception:
                _log.exception("copying run directories")
                self.problem = "copying run directories to the bucket failed; see the server's log"
            if last:
                return
            self._wake.wait(PERIOD if self.problem is None else 5 * PERIOD)
            self._wake.clear()

    def _wanted(self, running: set[str]) -> list[str]:
        """Jobs in flight, and those that have ended since and are not all stored."""
        with self._lock:
            earlier = {self._backlog.pop() for _ in range(min(AT_ONCE, len(self._backlog)))}
            return sorted(running | self._copies.keys() | earlier)

    def _copy(self, job_id: str, *, over: bool, last: bool) -> None:
        copy = self._copies.get(job_id)
        if copy is None:
            copy = _Copy(self._root / job_id, self.bucket.files(job_id))
            with self._lock:
                self._copies[job_id] = copy
        try:
            copy.look(everything=over or last)
        except FileNotFoundError:
            with self._lock:
                self._copies.pop(job_id, None)
            return
        now = time.monotonic()
        due = [path for path in copy.changed if over or last or copy.due.get(path, 0.0) <= now]
        for rank in sorted({_rank(path) for path in due}):
            these = [path for path in due if _rank(path) == rank]
            list(self._pool.map(lambda path: self._store(job_id, copy, path), these))
        if copy.gone:
            gone = set(copy.gone)
            self.bucket.remove(job_id, gone)
            copy.gone -= gone
        if over and copy.settled:
            with self._lock:
                self._copies.pop(job_id, None)

    def _store(self, job_id: str, copy: _Copy, path: str) -> None:
        if job_id in self._doomed:
            return
        stamp = copy.changed.get(path)
        began = time.monotonic()
        with contextlib.suppress(FileNotFoundError):  # the next look tells that it is gone
            self.bucket.put(job_id, path, copy.path / path)
        took = time.monotonic() - began
        copy.due[path] = time.monotonic() + min(PATIENCE * took, SLOWEST)
        if copy.changed.get(path) == stamp:
            copy.changed.pop(path, None)

    def _remove(self) -> None:
        for job_id in list(self._doomed):
            self.bucket.remove(job_id)
            self._doomed.discard(job_id)

    def _fetch(self) -> None:
        """Large files of what was brought back, a few at each look, so that copying goes on."""
        for job_id, path, size in self._later[:AT_ONCE]:
            target = self._root / job_id / path
            if (self._root / job_id).exists() and not target.exists():
                self.bucket.get(job_id, path, target, size=size)
        del self._later[:AT_ONCE]


def _rank(path: str) -> int:
    """The order in which files are stored: results after workspaces, what says that all is over at last."""
    if path == rules.SNAPSHOT:
        return 3
    if path == "job.json":
        return 0
    return 2 if path.endswith("/result.json") else 1


def _stored(stamp: Stamp, held: Held | None) -> bool:
    return held is not None and held.size == stamp.size and held.at >= stamp.mtime / 1e9


def _may_come(path: str) -> bool:
    try:
        return rules.carried(rules.check_path(path))
    except ProtocolError:
        return False
