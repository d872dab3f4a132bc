"""Databases to test on: SQLite in a file, and PostgreSQL where the `pgserver` package is."""

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

BOTH = [
    pytest.param("sqlite", id="sqlite"),
    pytest.param("postgresql", id="postgresql", marks=pytest.mark.postgres),
]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a PostgreSQL server of our own."""
    pgserver = pytest.importorskip(
        "pgserver", reason="PostgreSQL is not tested: the pgserver package is missing"
    )
    directory = tempfile.mkdtemp(prefix="hpg", dir="/tmp")  # a socket's path is limited to about 100 bytes
    server = pgserver.get_server(directory, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of the kind that the test is parametrized with (`indirect`), or SQLite."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield f"sqlite:///{tmp_path / 'hawk.db'}"
        return
    server = request.getfixturevalue("postgres")
    name = f"hawk_{uuid.uuid4().hex}"
    admin = create_engine(
        server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server.replace("/postgres?", f"/{name}?")
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()
