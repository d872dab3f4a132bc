"""The connection to SQLite or PostgreSQL, and the schema on it.

Reads and writes are separate doors: a SQLite transaction that begins as a read and then writes can fail at
once instead of waiting for its turn, so one that writes says so when it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session

from hawk.errors import HawkError, StorageError, UsageError
from hawk.store.migrations import HEAD, MIGRATIONS
from hawk.store.rundir import storage_error

BUSY_TIMEOUT_SECONDS = 15
_MIGRATION_LOCK = 0x6861776B  # any number that every Hawk agrees on


class Database:
    """An engine with its two kinds of session."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self._writer = self.engine.execution_options(hawk_write=True)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that only reads."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session in one transaction: committed at the end, rolled back on an error."""
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def ping(self) -> None:
        """Raises: StorageError when the database does not answer."""
        try:
            with self.engine.connect() as connection:
                connection.execute(text("SELECT 1"))
        except SQLAlchemyError as ex:
            raise _unreachable(self.engine, ex) from ex

    def close(self) -> None:
        self.engine.dispose()


def open_database(url: str) -> Database:
    """Connect, create or upgrade the schema, and return the database.

    Raises:
        StorageError: It can't be reached or written, or a newer Hawk has upgraded it.
        UsageError: The URL is not one, or its driver is not installed.
    """
    database = Database(url)
    try:
        migrate(database)
    except BaseException:
        database.close()
        raise
    return database


def migrate(database: Database) -> None:
    """Bring the schema to this version of Hawk.

    Raises:
        StorageError: A newer Hawk wrote it, or it can't be reached or written.
    """
    try:
        with database._writer.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            found = _revision(connection)
            if found != HEAD:
                _upgrade(connection, found)
    except SQLAlchemyError as ex:
        raise _unreachable(database.engine, ex) from ex


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _upgrade(connection: Connection, found: str | None) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    if found is not None:
        try:
            ScriptDirectory.from_config(config).get_revision(found)
        except CommandError as ex:
            raise StorageError(
                f"The database {_shown(connection.engine)} has schema {found!r}, which this version of Hawk does "
                f"not know (its newest is {HEAD!r}): a newer Hawk has upgraded it.",
                remedy="Upgrade Hawk, or move the database away and run `hawk server reindex`.",
                path=_shown(connection.engine),
                found=found,
                known=HEAD,
            ) from ex
    command.upgrade(config, "head")


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        options: dict[str, Any] = {
            "json_serializer": lambda value: msgspec.json.encode(value).decode(),
            "json_deserializer": msgspec.json.decode,
        }
        sqlite = parsed.get_backend_name() == "sqlite"
        if sqlite:
            options["connect_args"] = {"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
            _make_parent(parsed.database)
        else:
            options["pool_pre_ping"] = True
        engine = create_engine(parsed, **options)
    except ImportError as ex:
        raise UsageError(
            f"The driver of HAWK_DATABASE_URL is not installed ({ex.name}).",
            remedy="pip install 'hawk-evals[postgres]'",
        ) from ex
    except (ArgumentError, NoSuchModuleError) as ex:
        raise UsageError(
            "HAWK_DATABASE_URL is not a database URL.",
            remedy="Write sqlite:////path/hawk.db or postgresql://user@host/name.",
        ) from ex
    if sqlite:
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_parent(database: str | None) -> None:
    if database and database != ":memory:":
        parent = Path(database).parent
        try:
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as ex:
            raise storage_error(parent, ex) from ex


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions of its own: _begin_sqlite does
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("hawk_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _shown(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=True)


def _unreachable(engine: Engine, ex: SQLAlchemyError) -> HawkError:
    why = str(getattr(ex, "orig", None) or ex).strip().splitlines()[0]
    return StorageError(
        f"The database {_shown(engine)} can't be used: {why}.",
        remedy="Check HAWK_DATABASE_URL, and that HAWK_HOME is writable and its disk not full.",
        path=_shown(engine),
    )
