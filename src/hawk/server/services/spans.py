"""Fetches spans that middlemen of a cluster have put into the database they share, into the run directories of their jobs.

In this mode the server alone writes `spans/middleman.jsonl`; the link carries it to the runner. Lines are taken out of the
database once they are on the disk. Where that was cut short they are still in both, and the file says which: each line has
the id of its request.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hawk.config.cluster import load_cluster_settings
from hawk.config.ids import check_id
from hawk.config.settings import Settings
from hawk.errors import HawkError
from hawk.middleman.shared_spans import ROW, connect, failures
from hawk.store.rundir import RunDir

if TYPE_CHECKING:
    from psycopg import Connection

PERIOD = 0.5
"""Seconds between looks."""

AGAIN = 5.0
"""Seconds after which a database that is away, or has no such table yet, is looked at again."""

ROWS = 64
"""Rows of a job that are taken at once."""

UNSURE = 4 * ROWS * ROW
"""Bytes of the end of a file in which lines are looked for that may have been written before: more than were taken at once."""

_SLACK = 64 * 1024
_FILE = "middleman.jsonl"
_WHOLE = re.compile(rb'^\{"id":"([^"]+)"[^\n]*\}\n', re.MULTILINE)
"""A line with the id of its request; not one that is torn, though somebody has put an end to it since."""

_OPTIONS = "-c statement_timeout=10000 -c lock_timeout=5000 -c idle_in_transaction_session_timeout=60000"
_THERE = "SELECT to_regclass('hawk_middleman.spans') IS NOT NULL"
_JOBS = "SELECT DISTINCT job FROM hawk_middleman.spans"
_TAKE = "SELECT seq, lines FROM hawk_middleman.spans WHERE job = %s ORDER BY seq LIMIT %s FOR UPDATE"
_DONE = "DELETE FROM hawk_middleman.spans WHERE seq = ANY(%s)"

_log = logging.getLogger(__name__)


def database_of_spans(settings: Settings) -> str | None:
    """Where middlemen put the spans of this server's jobs; None: they write them themselves."""
    if settings.middleman_database_url is not None:
        return settings.middleman_database_url
    if not settings.database_url.startswith(("postgresql", "postgres:")):
        return None
    return settings.database_url if load_cluster_settings().middleman_url is not None else None


class SpanCollector:
    """See the module.

    Args:
        url: Of the database.
        root: Parent of all run directories.

    Raises:
        UsageError: The URL is no PostgreSQL database's, or the driver is not installed.

    Attributes:
        problem: Why nothing could be fetched at the last look, one line; None: it could.
    """

    def __init__(self, url: str, root: Path) -> None:
        self._failures = failures(url)
        self._url, self._root = url, root
        self._connection: Connection[Any] | None = None
        self._sure: set[str] = set()
        self._there = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hawk-spans", daemon=True)
        self.problem: str | None = None

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def close(self) -> None:
        """Stop fetching."""
        self._stopping.set()
        self._thread.join(timeout=15)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = PERIOD
            try:
                if not self.look():
                    pause = AGAIN
                self.problem = None
            except self._failures as ex:
                self._trouble(str(ex).strip().partition("\n")[0])
                pause = AGAIN
            except Exception:
                _log.exception("fetching spans")
                self._trouble("a fault of the server's own; see its log")
                pause = AGAIN
        self._forget()

    def _trouble(self, why: str) -> None:
        if self.problem is None:
            _log.warning("spans of middlemen can't be fetched: %s", why)
        self.problem = why
        self._forget()

    def _forget(self) -> None:
        self._sure.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self._failures):
                connection.close()

    def look(self) -> bool:
        """Fetch all that there is for jobs of this server. Returns whether there is such a table.

        Raises:
            psycopg.Error: The database is away.
            OSError: A file can't be written; its lines stay in the database.
        """
        if self._connection is None:
            self._connection = connect(self._url, "hawk-server-spans", _OPTIONS)
        connection = self._connection
        self._there = self._there or bool((connection.execute(_THERE).fetchone() or (False,))[0])
        if not self._there:
            return False
        failed: OSError | None = None
        for (job,) in connection.execute(_JOBS).fetchall():
            run = self._run_dir(job)
            try:
                while run is not None and self._take(connection, run) == ROWS and not self._stopping.is_set():
                    pass
            except OSError as ex:  # of one job's directory: the others' go on
                self._sure.discard(job)
                failed = ex
        if failed is not None:
            raise failed
        return True

    def _run_dir(self, job: str) -> RunDir | None:
        """Where a job is, of this server's; others may share the database."""
        try:
            run = RunDir(self._root / check_id(job))
        except HawkError:
            return None
        return run if run.spec_file.exists() else None

    def _take(self, connection: Connection[Any], run: RunDir) -> int:
        job = run.job_id
        with connection.transaction():
            rows = connection.execute(_TAKE, (job, ROWS)).fetchall()
            if not rows:
                return 0
            lines = in_order(bytes(row) for _, row in rows)
            append(run.path, lines, sure=job in self._sure)
            connection.execute(_DONE, ([seq for seq, _ in rows],))
        self._sure.add(job)
        return len(rows)


class _Line(msgspec.Struct):
    at: str
    seconds: float
    id: str


def in_order(rows: Iterable[bytes]) -> list[bytes]:
    """All lines, in the order in which their requests ended: they are of several middlemen. What is no span is left out."""
    decoder = msgspec.json.Decoder(_Line)
    found = []
    for line in (line for row in rows for line in row.splitlines(keepends=True)):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError):
            span = decoder.decode(line)
            ended = datetime.fromisoformat(span.at).timestamp() + span.seconds
            found.append((ended, line if line.endswith(b"\n") else line + b"\n"))
    return [line for _, line in sorted(found, key=lambda each: each[0])]


def append(run_dir: Path, lines: Sequence[bytes], *, sure: bool) -> None:
    """Add those that are not there yet to a job's spans, and return when they are on the disk.

    Args:
        sure: Nothing of them was written before.

    Raises:
        OSError: They can't be written.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = _spans_directory(run_dir)
    try:
        fd = os.open(_FILE, flags, 0o600, dir_fd=directory)
    finally:
        os.close(directory)
    with os.fdopen(fd, "r+b", buffering=0) as file:
        size = os.fstat(fd).st_size
        back = UNSURE if not sure else sum(map(len, lines)) + _SLACK
        tail = os.pread(fd, back, max(0, size - back))
        there = set(_WHOLE.findall(tail))
        new = b"".join(line for line in lines if not there.issuperset(_WHOLE.findall(line)))
        if tail and not tail.endswith(b"\n"):  # whoever wrote it was killed within it
            new = b"\n" + new
        view = memoryview(new)
        while view:
            view = view[file.write(view) :]
        os.fsync(fd)


def _spans_directory(run_dir: Path) -> int:
    """Opened, never through a link: on a volume that runners share, code of a task might make one."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    parent = os.open(run_dir, flags)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir("spans", 0o700, dir_fd=parent)
        return os.open("spans", flags, dir_fd=parent)
    finally:
        os.close(parent)
