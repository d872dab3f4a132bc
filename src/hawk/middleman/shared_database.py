"""What replicas share, in a PostgreSQL database: the tables, and one round trip that writes and reads them.

Everything is done under one advisory lock, so what is read is complete, and leases never add up to more than there is.
Tables are made at need, in the schema `hawk_middleman`. Leases live as long as their replica is heard of.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from hawk.core.traffic.ledger import Spend
from hawk.errors import UsageError

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Notify

HEARD_FOR = 2.0
"""Seconds after which a replica that is not heard of counts no more."""

CONNECT = 3
"""Seconds that connecting may take."""

_EXAMPLE = "Write --database-url postgresql://USER@HOST/NAME, or nothing for a middleman alone."

_LOCK = "SELECT pg_advisory_xact_lock(hashtext('hawk_middleman'))"

_SETTINGS = (
    "SET synchronous_commit = off",
    "SET lock_timeout = '1500ms'",
    "SET statement_timeout = '2000ms'",
    "SET idle_in_transaction_session_timeout = '2000ms'",
    "SET search_path = hawk_middleman",
    "LISTEN hawk_middleman",
)

_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS hawk_middleman;
CREATE SEQUENCE IF NOT EXISTS hawk_middleman.version;
CREATE TABLE IF NOT EXISTS hawk_middleman.replicas (
    id text PRIMARY KEY, heard_at timestamptz NOT NULL, fingerprint text NOT NULL, url text NOT NULL,
    batch bigint NOT NULL DEFAULT 0);
CREATE UNLOGGED TABLE IF NOT EXISTS hawk_middleman.leases (
    replica text NOT NULL REFERENCES hawk_middleman.replicas ON DELETE CASCADE, lane text NOT NULL,
    places integer NOT NULL, requests float8 NOT NULL, tokens float8 NOT NULL,
    used_requests float8 NOT NULL, used_tokens float8 NOT NULL, demand jsonb NOT NULL,
    PRIMARY KEY (replica, lane));
CREATE UNLOGGED TABLE IF NOT EXISTS hawk_middleman.limits (
    lane text PRIMARY KEY, value float8 NOT NULL, changed_at timestamptz NOT NULL);
CREATE UNLOGGED TABLE IF NOT EXISTS hawk_middleman.pauses (
    lane text PRIMARY KEY, until timestamptz NOT NULL, why text NOT NULL, version bigint NOT NULL);
CREATE TABLE IF NOT EXISTS hawk_middleman.jobs (
    job text PRIMARY KEY, usd float8 NOT NULL, tokens bigint NOT NULL, requests bigint NOT NULL,
    unpriced bigint NOT NULL, version bigint NOT NULL, changed_at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS hawk_middleman.revoked (
    job text PRIMARY KEY, at float8 NOT NULL, version bigint NOT NULL, changed_at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS hawk_middleman.keys (
    job text PRIMARY KEY, sealed text NOT NULL, version bigint NOT NULL, changed_at timestamptz NOT NULL);
"""

_TIDY = (
    "DELETE FROM replicas WHERE heard_at < clock_timestamp() - interval '1 day'",
    "DELETE FROM jobs WHERE changed_at < clock_timestamp() - interval '35 days'",
    "DELETE FROM revoked WHERE changed_at < clock_timestamp() - interval '35 days'",
    "DELETE FROM keys WHERE changed_at < clock_timestamp() - interval '35 days'",
    "DELETE FROM limits WHERE changed_at < clock_timestamp() - interval '1 day'",
    "DELETE FROM pauses WHERE until < clock_timestamp() - interval '1 day'",
)
"""What is of a job is kept for longer than its token is valid."""

_SPENT = """
INSERT INTO jobs AS j (job, usd, tokens, requests, unpriced, version, changed_at)
SELECT job, usd, tokens, requests, unpriced, nextval('version'), clock_timestamp()
FROM jsonb_to_recordset(%(spent)s::jsonb) AS x(job text, usd float8, tokens bigint, requests bigint, unpriced bigint)
WHERE coalesce((SELECT batch FROM replicas WHERE id = %(replica)s), 0) < %(batch)s
ON CONFLICT (job) DO UPDATE SET usd = j.usd + excluded.usd, tokens = j.tokens + excluded.tokens,
    requests = j.requests + excluded.requests, unpriced = j.unpriced + excluded.unpriced,
    version = excluded.version, changed_at = excluded.changed_at
"""
"""A batch counts once, though its replica does not know whether it arrived and sends it again."""

_KNOWN = """
INSERT INTO jobs AS j (job, usd, tokens, requests, unpriced, version, changed_at)
SELECT job, usd, tokens, requests, unpriced, nextval('version'), clock_timestamp()
FROM jsonb_to_recordset(%(known)s::jsonb) AS x(job text, usd float8, tokens bigint, requests bigint, unpriced bigint)
ON CONFLICT (job) DO UPDATE SET usd = greatest(j.usd, excluded.usd), tokens = greatest(j.tokens, excluded.tokens),
    requests = greatest(j.requests, excluded.requests), unpriced = greatest(j.unpriced, excluded.unpriced),
    version = excluded.version, changed_at = excluded.changed_at
"""

_REVOKED = """
WITH said AS (
    INSERT INTO revoked AS r (job, at, version, changed_at)
    SELECT job, at, nextval('version'), clock_timestamp()
    FROM jsonb_to_recordset(%(revoked)s::jsonb) AS x(job text, at float8)
    ON CONFLICT (job) DO UPDATE SET at = excluded.at, version = excluded.version, changed_at = excluded.changed_at
    WHERE r.at < excluded.at RETURNING job)
DELETE FROM keys WHERE job IN (SELECT job FROM said)
"""

_KEYS = """
INSERT INTO keys (job, sealed, version, changed_at)
SELECT job, sealed, nextval('version'), clock_timestamp()
FROM jsonb_to_recordset(%(keys)s::jsonb) AS x(job text, sealed text)
ON CONFLICT (job) DO UPDATE
SET sealed = excluded.sealed, version = excluded.version, changed_at = excluded.changed_at
"""

_PAUSES = """
INSERT INTO pauses AS p (lane, until, why, version)
SELECT lane, clock_timestamp() + make_interval(secs => seconds), why, nextval('version')
FROM jsonb_to_recordset(%(pauses)s::jsonb) AS x(lane text, seconds float8, why text)
ON CONFLICT (lane) DO UPDATE SET until = excluded.until, why = excluded.why, version = excluded.version
WHERE p.until < excluded.until
"""

_HEARTBEAT = """
INSERT INTO replicas (id, heard_at, fingerprint, url, batch)
VALUES (%(replica)s, clock_timestamp(), %(fingerprint)s, %(url)s, %(batch)s)
ON CONFLICT (id) DO UPDATE SET heard_at = excluded.heard_at, batch = greatest(replicas.batch, excluded.batch)
"""

_FREED = "DELETE FROM leases WHERE replica = %(replica)s AND NOT lane = ANY(%(lanes)s)"

_LEASES = """
WITH taken AS (
    SELECT lane, sum(places) AS places, sum(requests) AS requests, sum(tokens) AS tokens
    FROM leases JOIN replicas ON id = replica
    WHERE replica <> %(replica)s AND lane = ANY(%(lanes)s)
      AND heard_at > clock_timestamp() - make_interval(secs => %(heard_for)s)
    GROUP BY lane)
INSERT INTO leases (replica, lane, places, requests, tokens, used_requests, used_tokens, demand)
SELECT %(replica)s, x.lane,
    greatest(x.in_flight, least(x.places, x.most - coalesce(t.places, 0))),
    greatest(x.used_requests, least(x.requests, x.most_requests - coalesce(t.requests, 0))),
    greatest(x.used_tokens, least(x.tokens, x.most_tokens - coalesce(t.tokens, 0))),
    x.used_requests, x.used_tokens, x.demand
FROM jsonb_to_recordset(%(leases)s::jsonb) AS x(
    lane text, in_flight bigint, places bigint, most bigint, used_requests float8, requests float8,
    most_requests float8, used_tokens float8, tokens float8, most_tokens float8, demand jsonb)
LEFT JOIN taken t ON t.lane = x.lane
ON CONFLICT (replica, lane) DO UPDATE SET places = excluded.places, requests = excluded.requests,
    tokens = excluded.tokens, used_requests = excluded.used_requests, used_tokens = excluded.used_tokens,
    demand = excluded.demand
"""

_LIMITS = """
INSERT INTO limits AS l (lane, value, changed_at)
SELECT lane, start, clock_timestamp()
FROM jsonb_to_recordset(%(limits)s::jsonb) AS x(lane text, start float8, change float8, lowest float8, highest float8)
ON CONFLICT (lane) DO UPDATE SET changed_at = excluded.changed_at,
    value = CASE WHEN l.changed_at < excluded.changed_at - interval '10 minutes' THEN excluded.value ELSE
        (SELECT greatest(x.lowest, least(x.highest, l.value + x.change))
         FROM jsonb_to_recordset(%(limits)s::jsonb) AS x(lane text, change float8, lowest float8, highest float8)
         WHERE x.lane = l.lane) END
"""
"""What an old limit says of the provider is not known any more."""

_READ = """
WITH living AS (
    SELECT id FROM replicas WHERE heard_at > clock_timestamp() - make_interval(secs => %(heard_for)s))
SELECT json_build_object(
    'now', extract(epoch FROM clock_timestamp()),
    'replicas', (SELECT json_agg(id) FROM living),
    'stranger', (SELECT min(url) FROM replicas WHERE fingerprint <> %(fingerprint)s
        AND heard_at > clock_timestamp() - make_interval(secs => %(heard_for)s)),
    'leases', (SELECT json_agg(l) FROM leases l JOIN living ON id = replica WHERE lane = ANY(%(lanes)s)),
    'limits', (SELECT json_object_agg(lane, value) FROM limits WHERE lane = ANY(%(lanes)s)),
    'jobs', (SELECT json_agg(j) FROM jobs j WHERE version > %(version)s),
    'pauses', (SELECT json_agg(json_build_object('lane', lane, 'why', why, 'version', version,
        'seconds', extract(epoch FROM until - clock_timestamp()))) FROM pauses WHERE version > %(version)s),
    'revoked', (SELECT json_agg(json_build_object('job', job, 'at', at, 'version', version,
        'age', extract(epoch FROM clock_timestamp() - changed_at))) FROM revoked WHERE version > %(version)s),
    'keys', (SELECT json_agg(k) FROM keys k WHERE version > %(version)s))::text
"""

_TELL = "SELECT pg_notify('hawk_middleman', '')"


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
    tell: bool = False


class Heard(msgspec.Struct):
    """What it reads: all living replicas, the lanes that were named, and everything else that is new.

    Attributes:
        now: The database's clock, in seconds since the epoch.
        stranger: The address of a replica with another signing key.
    """

    now: float
    replicas: list[str] | None
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
    ("known", _KNOWN), ("spent", _SPENT), ("revoked", _REVOKED), ("keys", _KEYS), ("pauses", _PAUSES),
)  # fmt: skip


class SharedDatabase:
    """One connection, for one task; an error of it (`psycopg.Error`, `OSError`) means: connect again.

    Args:
        url: `postgresql://…`, or a string that libpq takes.
        heard: Called when another replica wants this one to look.

    Raises:
        UsageError: It is no PostgreSQL URL, or the driver is not installed.
    """

    def __init__(self, url: str, heard: Callable[[], None]) -> None:
        self._url = url.replace("postgresql+psycopg://", "postgresql://", 1)
        self._heard = heard
        self._connection: AsyncConnection[Any] | None = None
        if not self._url.startswith(("postgresql://", "postgres://")):
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
            psycopg.conninfo.conninfo_to_dict(self._url)
        except psycopg.ProgrammingError:  # its text may have a part of the password
            raise UsageError("--database-url is not a valid URL.", remedy=_EXAMPLE) from None
        self._psycopg = psycopg
        self.failures: tuple[type[Exception], ...] = (psycopg.Error, OSError)

    async def connect(self) -> None:
        """Connect, and make what is missing."""
        self._connection = connection = await self._psycopg.AsyncConnection.connect(
            self._url, autocommit=True, connect_timeout=CONNECT, application_name="hawk-middleman"
        )
        async with connection.transaction():
            await connection.execute(_LOCK)
            if not await self._schema_is_there(connection):
                await connection.execute(_SCHEMA)
        for setting in _SETTINGS:
            await connection.execute(setting)
        async with connection.transaction():
            for statement in _TIDY:
                await connection.execute(statement)
        connection.add_notify_handler(self._noticed)

    async def _schema_is_there(self, connection: AsyncConnection[Any]) -> bool:
        """Someone without the right to make it may use one that was made for him."""
        found = await connection.execute("SELECT to_regclass('hawk_middleman.keys')")
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
            if isinstance(value, list) and name != "lanes"
            else value
            for name, value in msgspec.structs.asdict(told).items()
        }
        async with connection.pipeline(), connection.transaction():
            await connection.execute(_LOCK)
            for name, statement in _OPTIONAL:
                if getattr(told, name):
                    await connection.execute(statement, values)
            await connection.execute(_HEARTBEAT, values)
            await connection.execute(_FREED, values)
            if told.leases:
                await connection.execute(_LEASES, values)
            if told.limits:
                await connection.execute(_LIMITS, values)
            cursor = await connection.execute(_READ, values)
            if told.tell:
                await connection.execute(_TELL)
        row = await cursor.fetchone()
        assert row is not None
        return _decoder.decode(row[0])

    async def leave(self, replica: str) -> None:
        """The replica ends: what it held is free."""
        if self._connection is not None:
            await self._connection.execute("DELETE FROM replicas WHERE id = %s", (replica,))
            await self._connection.execute(_TELL)

    @property
    def handle(self) -> int | None:
        """To be watched while nothing is asked: readable when another replica has something to say."""
        connection = self._connection
        return None if connection is None or connection.closed else connection.fileno()

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
