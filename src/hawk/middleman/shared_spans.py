"""Spans of jobs whose run directories are elsewhere: a table from which the server that has them fetches the lines.

Written by the thread that writes spans, on a connection of its own. While the database is away a bounded part waits in
memory; beyond that lines are lost, and counted. No request waits for any of it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hawk.middleman import shared_sql as sql
from hawk.middleman.shared_database import CONNECT, driver, plain_url

if TYPE_CHECKING:
    from psycopg import Connection

ROW = 64 * 1024
"""Bytes of lines in one row, so that a server may fetch as much at once as it likes; one longer line is a row too."""

WAITING = 32 << 20
"""Bytes of lines that may wait in memory for a database that is away."""

OF_JOB, OF_ALL = 64 << 20, 1 << 30
"""Bytes of lines in the table that nobody has fetched."""

AGE = 7 * 86400.0
"""Seconds for which they are kept."""

_BOUNDED_EVERY = 60.0
_AGAIN = 1.0
"""Seconds after which a database that is away is tried again."""

_GONE_MS = 5000
"""Milliseconds without an answer of its machine after which a database counts as gone."""

_OPTIONS = "-c statement_timeout=5000 -c lock_timeout=3000 -c synchronous_commit=off"

_log = logging.getLogger(__name__)


class _Batch(NamedTuple):
    number: int
    rows: list[tuple[str, bytes]]
    size: int
    lines: int


def failures(url: str) -> tuple[type[Exception], ...]:
    """What the table raises while its database is away.

    Raises:
        UsageError: It can be nowhere: the URL is no PostgreSQL database's, or the driver is not installed.
    """
    return (driver(url).Error, OSError)


def connect(url: str, name: str, options: str) -> Connection[Any]:
    """A connection to where the table is, which notices when the database is gone.

    Args:
        name: What the database calls it.
        options: Settings of the session.

    Raises:
        psycopg.Error: It can't be reached.
    """
    import psycopg

    return psycopg.connect(
        plain_url(url),
        autocommit=True,
        connect_timeout=CONNECT,
        options=options,
        application_name=name,
        tcp_user_timeout=_GONE_MS,
    )


class SpanTable:
    """See the module. Any thread may use it.

    Args:
        url: Of the database; checked, and with the tables in it.
        replica: Who writes.

    Attributes:
        lost: Lines that found no place any more.
    """

    def __init__(self, url: str, replica: str) -> None:
        self._failures = failures(url)
        self._url, self._replica = url, replica
        self._connection: Connection[Any] | None = None
        self._guard = threading.Lock()  # the last thread may come while the one before it still waits
        self._waiting: deque[_Batch] = deque()
        self._size = self._number = 0
        self._next_try = self._next_look = 0.0
        self._away = False
        self.lost = 0

    @property
    def behind(self) -> bool:
        """There is something that the database has not got yet."""
        return bool(self._waiting)

    def put(self, lines: Mapping[str, Iterable[bytes]], *, last: bool = False) -> None:
        """Write lines, by job, and what has waited; never raises.

        Args:
            last: There will be no other time: try now.
        """
        rows = [(job, row) for job, its in lines.items() for row in _rows(its)]
        with self._guard:
            self._put(rows, last=last)

    def _put(self, rows: list[tuple[str, bytes]], *, last: bool) -> None:
        if rows:
            size = sum(len(row) for _, row in rows)
            self._number += 1
            self._waiting.append(_Batch(self._number, rows, size, sum(row.count(b"\n") for _, row in rows)))
            self._size += size
        while self._size > WAITING:
            self.lost += self._dropped().lines
        now = time.monotonic()
        if not last and now < self._next_try:
            return
        try:
            self._write(now)
        except self._failures as ex:
            self._next_try = now + _AGAIN
            self._forget()
            if not self._away:
                _log.warning("spans wait for the database: %s", str(ex).strip().partition("\n")[0])
            self._away = True
        else:
            self._away = False

    def close(self) -> None:
        """Let go of the connection."""
        with self._guard:
            self._forget()

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self._failures):
                connection.close()

    def _write(self, now: float) -> None:
        if self._connection is None:
            self._connection = connect(self._url, "hawk-middleman-spans", _OPTIONS)
        while self._waiting:
            batch = self._waiting[0]
            values = {
                "replica": self._replica,
                "batch": batch.number,
                "jobs": [job for job, _ in batch.rows],
                "lines": [row for _, row in batch.rows],
            }
            self._connection.execute(sql.SPANS, values)
            self._dropped()
        if now >= self._next_look:
            self._next_look = now + _BOUNDED_EVERY
            bounds = {"of_job": OF_JOB, "of_all": OF_ALL, "seconds": AGE}
            self._connection.execute(sql.SPANS_BOUNDED, bounds)

    def _dropped(self) -> _Batch:
        batch = self._waiting.popleft()
        self._size -= batch.size
        return batch


def _rows(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines joined into rows."""
    row = bytearray()
    for line in lines:
        if row and len(row) + len(line) > ROW:
            yield bytes(row)
            row.clear()
        row += line
    if row:
        yield bytes(row)
