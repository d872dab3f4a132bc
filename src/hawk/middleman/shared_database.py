"""What replicas share, in a PostgreSQL database: the tables, and one round trip that writes and reads them.

Everything is done under one advisory lock, so what is read is complete, and leases never add up to more than there is.
Tables are made at need, in the schema `hawk_middleman`. Leases live as long as their replica is heard of.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hawk.core.traffic.ledger import Spend
from hawk.errors import UsageError
from hawk.middleman import shared_sql as sql

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Notify

HEARD_FOR = 2.0
"""Seconds after which a replica that is not heard of counts no more."""

CONNECT = 3
"""Seconds that connecting may take."""

_EXAMPLE = "Write --database-url postgresql://USER@HOST/NAME, or nothing for a middleman alone."


class LeaseRow(msgspec.Struct):
    """What a replica asks for in one lane. Rates: 0 where none is configured."""

    lane: str
    in_flight: int
    places: int
    most: int
    demand: dict[str, float]
    used_requests: float = 0.0
    requests: float = 0.0
    most_requests: float = 0.0
    used_tokens: float = 0.0
    tokens: float = 0.0
    most_tokens: float = 0.0


class LimitRow(msgspec.Struct):
    """What a replica learnt of an adaptive limit since it told it last."""

    lane: str
    start: float
    change: float
    lowest: float
    highest: float


class SpentRow(msgspec.Struct):
    """Spend of a job."""

    job: str
    usd: float
    tokens: int
    requests: int
    unpriced: int
    version: int = 0

    def spend(self) -> Spend:
        return Spend(self.usd, self.tokens, self.requests, self.unpriced)


class RevokedRow(msgspec.Struct):
    """Tokens that the job was given up to `at` (seconds since the epoch) are revoked. `age`: seconds since it was said."""

    job: str
    at: float
    version: int = 0
    age: float = 0.0


class KeysRow(msgspec.Struct):
    """Keys of a job's own, sealed."""

    job: str
    sealed: str
    version: int = 0


class PauseRow(msgspec.Struct):
    """A pause that a provider asked for, from now."""

    lane: str
    seconds: float
    why: str
    version: int = 0


class Held(msgspec.Struct):
    """A lease as it is in the database."""

    replica: str
    lane: str
    places: int
    requests: float
    tokens: float
    used_requests: float
    used_tokens: float
    demand: dict[str, float]


class Open(NamedTuple):
    """Requests of a job that a replica has now."""

    in_flight: int = 0
    waiting: int = 0


class ReplicaRow(msgspec.Struct):
    """A replica that lives. `url`: where others reach it; `open`: what it has, by job."""

    id: str
    url: str
    open: dict[str, Open] = {}


class Told(msgspec.Struct):
    """What one round trip writes. `version`: the newest change that is known; `tell`: others should look at once."""

    replica: str
    fingerprint: str
    url: str
    batch: int
    heard_for: float
    version: int
    lanes: list[str] = []
    leases: list[LeaseRow] = []
    limits: list[LimitRow] = []
    spent: list[SpentRow] = []
    known: list[SpentRow] = []
    revoked: list[RevokedRow] = []
    keys: list[KeysRow] = []
    pauses: list[PauseRow] = []
    open: dict[str, Open] = {}
    tell: bool = False


class Heard(msgspec.Struct):
    """What it reads: all living replicas, the lanes that were named, and everything else that is new.

    Attributes:
        now: The database's clock, in seconds since the epoch.
        stranger: The address of a replica with another signing key.
    """

    now: float
    replicas: list[ReplicaRow] | None
    stranger: str | None
    leases: list[Held] | None
    limits: dict[str, float] | None
    jobs: list[SpentRow] | None
    pauses: list[PauseRow] | None
    revoked: list[RevokedRow] | None
    keys: list[KeysRow] | None

    def version(self, known: int) -> int:
        rows = [*(self.jobs or ()), *(self.pauses or ()), *(self.revoked or ()), *(self.keys or ())]
        return max((row.version for row in rows), default=known)


_decoder = msgspec.json.Decoder(Heard)
_OPTIONAL = (
    ("known", sql.KNOWN), ("spent", sql.SPENT), ("revoked", sql.REVOKED), ("keys", sql.KEYS), ("pauses", sql.PAUSES),
)  # fmt: skip


def plain_url(url: str) -> str:
    """As libpq takes it: the server's index may name its driver too."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


def driver(url: str) -> ModuleType:
    """The module `psycopg`, where it can be used with a URL.

    Raises:
        UsageError: It is no PostgreSQL URL, or the driver is not installed.
    """
    plain = plain_url(url)
    if not plain.startswith(("postgresql://", "postgres://")):
        raise UsageError(
            "The database that replicas of the middleman share is no PostgreSQL database.",
            remedy=_EXAMPLE,
        )
    try:
        import psycopg
    except ImportError as ex:
        raise UsageError(
            "The PostgreSQL driver for --database-url is not installed.",
            remedy="pip install 'hawk-evals[postgres]'",
        ) from ex
    try:
        psycopg.conninfo.conninfo_to_dict(plain)
    except psycopg.ProgrammingError:  # its text may have a part of the password
        raise UsageError("--database-url is not a valid URL.", remedy=_EXAMPLE) from None
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it tells of each lost connection, twice
    return psycopg


class SharedDatabase:
    """One connection, for one task; an error of it (`psycopg.Error`, `OSError`) means: connect again.

    Args:
        url: `postgresql://…`, or a string that libpq takes.
        heard: Called when another replica wants this one to look.

    Raises:
        UsageError: It is no PostgreSQL URL, or the driver is not installed.
    """

    def __init__(self, url: str, heard: Callable[[], None]) -> None:
        self._url = plain_url(url)
        self._heard = heard
        self._connection: AsyncConnection[Any] | None = None
        psycopg = driver(url)
        self._psycopg = psycopg
        self.failures: tuple[type[Exception], ...] = (psycopg.Error, OSError)

    async def connect(self) -> None:
        """Connect, and make what is missing."""
        self._connection = connection = await self._psycopg.AsyncConnection.connect(
            self._url, autocommit=True, connect_timeout=CONNECT, application_name="hawk-middleman"
        )
        async with connection.transaction():
            await connection.execute(sql.LOCK)
            if not await self._schema_is_there(connection):
                await connection.execute(sql.SCHEMA)
        for setting in sql.SETTINGS:
            await connection.execute(setting)
        async with connection.transaction():
            for statement in sql.TIDY:
                await connection.execute(statement)
        connection.add_notify_handler(self._noticed)

    async def _schema_is_there(self, connection: AsyncConnection[Any]) -> bool:
        """Someone without the right to make it may use one that was made for him."""
        found = await connection.execute(sql.NEWEST)
        row = await found.fetchone()
        return row is not None and row[0] is not None

    def _noticed(self, notify: Notify) -> None:
        if self._connection is not None and notify.pid != self._connection.pgconn.backend_pid:
            self._heard()

    async def exchange(self, told: Told) -> Heard:
        """Write and read, in one round trip and one transaction."""
        connection = self._connection
        if connection is None:
            raise ConnectionError("not connected")
        values = {
            name: msgspec.json.encode(value).decode()
            if isinstance(value, list | dict) and name != "lanes"
            else value
            for name, value in msgspec.structs.asdict(told).items()
        }
        async with connection.pipeline(), connection.transaction():
            await connection.execute(sql.LOCK)
            for name, statement in _OPTIONAL:
                if getattr(told, name):
                    await connection.execute(sql.DURABLE)
                    await connection.execute(statement, values)
            await connection.execute(sql.HEARTBEAT, values)
            await connection.execute(sql.FREED, values)
            if told.leases:
                await connection.execute(sql.LEASES, values)
            if told.limits:
                await connection.execute(sql.LIMITS, values)
            cursor = await connection.execute(sql.READ, values)
            if told.tell:
                await connection.execute(sql.TELL)
        row = await cursor.fetchone()
        assert row is not None
        return _decoder.decode(row[0])

    async def leave(self, replica: str) -> None:
        """The replica ends: what it held is free."""
        if self._connection is not None:
            await self._connection.execute("DELETE FROM replicas WHERE id = %s", (replica,))
            await self._connection.execute(sql.TELL)

    @property
    def handle(self) -> int | None:
        """To be watched while nothing is asked: readable when another replica has something to say."""
        connection = self._connection
        return None if connection is None or connection.closed else connection.fileno()

    def address(self) -> str | None:
        """This machine's address on the way to the database, where that leads over a network."""
        handle = self.handle
        if handle is None:
            return None
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(handle)) as copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6):
                return str(copy.getsockname()[0])
        return None

    def cut(self) -> None:
        """End a round trip that does not end by itself: canceling one would ask the database, which does not answer."""
        handle = self.handle
        if handle is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(handle)) as copy:
                copy.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """Forget the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self.failures):
                await connection.close()
