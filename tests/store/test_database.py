from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from hawk.errors import StorageError, UsageError
from hawk.store.database import open_database
from hawk.store.migrations import HEAD, MIGRATIONS
from hawk.store.models import Base, Job
from tests.store.databases import BOTH

both = pytest.mark.parametrize("database_url", BOTH, indirect=True)


@both
def test_migrations_make_what_the_models_say(database_url: str) -> None:
    database = open_database(database_url)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    database.close()


def test_the_revision_the_code_knows_is_the_newest_script() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


@both
def test_opening_again_changes_nothing(database_url: str) -> None:
    for _ in range(2):
        database = open_database(database_url)
        database.ping()
        database.close()


@both
def test_a_database_of_a_newer_hawk_is_refused_and_left_alone(database_url: str) -> None:
    database = open_database(database_url)
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(StorageError, match=r"schema '9999'.*newer Hawk") as caught:
        open_database(database_url)
    assert "Upgrade Hawk" in str(caught.value.remedy)


@both
def test_a_failed_write_leaves_no_trace(database_url: str) -> None:
    database = open_database(database_url)

    def fail_half_way() -> None:
        with database.write() as session:
            session.add(Job(job_id="a", created_at=datetime.now(UTC), status="pending"))
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    with database.read() as session:
        assert session.execute(text("SELECT count(*) FROM jobs")).scalar() == 0
    database.close()


def test_a_home_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="file"):
        open_database(f"sqlite:///{tmp_path / 'file' / 'hawk.db'}")


def test_a_file_that_is_no_database_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "hawk.db").write_bytes(b"not a database, by any means" * 100)
    with pytest.raises(StorageError, match="not a database"):
        open_database(f"sqlite:///{tmp_path / 'hawk.db'}")


def test_a_server_out_of_reach_is_named_without_its_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StorageError) as caught:
        open_database("postgresql://ada:hunter2@127.0.0.1:1/hawk")
    assert "127.0.0.1" in caught.value.message
    assert "hunter2" not in caught.value.render()


@pytest.mark.parametrize("url", ["nonsense", "mysterydb://x/y"])
def test_a_wrong_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="HAWK_DATABASE_URL"):
        open_database(url)
