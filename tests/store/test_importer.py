import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from hawk.core.states import JobStatus, SamplePhase
from hawk.store import queries
from hawk.store.database import Database, open_database
from hawk.store.importer import Importer, register, reindex
from hawk.store.items import SampleItem
from hawk.store.models import Sample
from hawk.store.rundir import RunDir, write_json
from tests.bridge.conftest import Evaluation
from tests.store.databases import BOTH
from tests.store.runs import make_run, settings_in, snapshot_of

both = pytest.mark.parametrize("database_url", BOTH, indirect=True)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    found = open_database(database_url)
    yield found
    found.close()


def registered(database: Database, run: RunDir) -> Importer:
    with database.write() as session:
        register(session, run, run.read_spec())
    return Importer(database, run)


def listed(database: Database, root: Path, **wanted: Any) -> list[SampleItem]:
    with database.read() as session:
        return queries.samples(session, root, **wanted)[0]


@both
def test_finished_attempts_are_found_with_outcome_and_scores(
    database: Database, finished: Evaluation, tmp_path: Path
) -> None:
    run = make_run(tmp_path, "a", finished.logs)
    report = registered(database, run).run()
    assert (report.logs, report.samples, report.errors) == (1, 10, {})
    rows = {(row.id, row.epoch): row for row in listed(database, tmp_path, eval_set_id="a")}
    assert len(rows) == 10
    assert [rows[(f"s{i}", 2)].status for i in range(5)] == [
        "success", "success", "error", "message_limit", "success"
    ]  # fmt: skip
    assert rows[("s0", 1)].score_value == 1.0
    assert rows[("s1", 1)].score_value == 0.0
    nan = rows[("s4", 1)].scores[0]
    assert (nan.value_float, nan.value_nonfinite) == (None, "nan")
    assert rows[("s0", 1)].filename == finished.log.name
    with database.read() as session:
        assert queries.sample_count(session, "a") == 10
        [item], total = queries.evals(session, eval_set_id="a")
        assert (item.task_name, item.total_samples, item.completed_samples, total) == ("tiny", 10, 10, 1)
        [eval_set], _ = queries.eval_sets(session, search="TIN")
        assert (eval_set.eval_set_id, eval_set.task_names) == ("a", ["tiny"])


@both
def test_importing_again_writes_nothing(database: Database, finished: Evaluation, tmp_path: Path) -> None:
    run = make_run(tmp_path, "a", finished.logs)
    assert registered(database, run).run().samples == 10
    assert Importer(database, run).run().samples == 0
    for path in run.logs.iterdir():  # touched, as by a copy: read again, found unchanged
        os.utime(path, (1, 1))
    assert Importer(database, run).run().samples == 0


@both
def test_a_log_that_changes_while_it_is_read_is_read_again(
    database: Database, finished: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, "a", finished.logs)
    importer = registered(database, run)
    read = importer._cache.read_dir

    def changed(directory: Path) -> Any:
        found = read(directory)
        for path in run.logs.iterdir():
            os.utime(path, (1, 1))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(importer._cache, "read_dir", changed)
        importer.run()
    with database.write() as session:
        session.execute(delete(Sample))
    assert importer.run().samples == 10


@both
def test_search_and_pages(database: Database, finished: Evaluation, tmp_path: Path) -> None:
    registered(database, make_run(tmp_path, "a", finished.logs)).run()
    assert {row.id for row in listed(database, tmp_path, search="S2")} == {"s2"}
    assert {row.status for row in listed(database, tmp_path, search="broke tiny")} == {"error"}
    assert listed(database, tmp_path, search="100%_") == []
    log = finished.log.name
    assert (
        len(listed(database, tmp_path, search=log)) == len(listed(database, tmp_path, search=log[:10])) == 10
    )
    assert listed(database, tmp_path, search=log[-12:]) == [], "a part of a random name is no word"
    assert len(listed(database, tmp_path, status=["error", "message_limit"])) == 4
    whole = [row.uuid for row in listed(database, tmp_path)]
    paged = [row.uuid for start in (0, 4, 8) for row in listed(database, tmp_path, offset=start, limit=4)]
    assert paged == whole
    assert [row.uuid for row in listed(database, tmp_path, search=whole[3])] == [whole[3]]


def test_a_torn_log_is_reported_and_read_once_it_is_whole(
    database: Database, finished: Evaluation, tmp_path: Path
) -> None:
    run = make_run(tmp_path, "a")
    importer = registered(database, run)
    torn = run.logs / finished.log.name
    torn.write_bytes(finished.log.read_bytes()[:1000])
    report = importer.run()
    assert list(report.errors) == [torn.name]
    assert listed(database, tmp_path) == []
    shutil.copy2(finished.log, torn)
    assert importer.run().errors == {}
    assert len(listed(database, tmp_path)) == 10


def test_rows_of_logs_that_have_gone_go_too(database: Database, finished: Evaluation, tmp_path: Path) -> None:
    run = make_run(tmp_path, "a", finished.logs)
    importer = registered(database, run)
    importer.run()
    for path in run.logs.iterdir():
        path.unlink()
    importer.run()
    assert listed(database, tmp_path) == []


def test_a_copied_run_directory_is_reported_not_mixed_up(
    database: Database, finished: Evaluation, tmp_path: Path
) -> None:
    registered(database, make_run(tmp_path, "a", finished.logs)).run()
    report = registered(database, make_run(tmp_path, "b", finished.logs)).run()
    assert "eval set 'a'" in next(iter(report.errors.values()))
    assert len(listed(database, tmp_path, eval_set_id="a")) == 10


@both
def test_reindex_rebuilds_everything_from_run_directories_alone(
    database_url: str, finished: Evaluation, tmp_path: Path
) -> None:
    settings = settings_in(tmp_path / "home", database_url)
    run = make_run(settings.root, "a", finished.logs)
    ended = snapshot_of("a", SamplePhase.COMPLETED, status=JobStatus.COMPLETE)
    ended.finished_at = "2026-01-02T04:00:00+00:00"
    write_json(run.snapshot_file, ended)
    make_run(settings.root, "b")
    damaged = make_run(settings.root, "c")
    damaged.spec_file.write_text("{")

    first = reindex(settings)
    assert (first.jobs, first.logs, first.samples) == (2, 1, 10)
    assert list(first.errors) == ["c"]
    assert reindex(settings).samples == 10
    database = open_database(database_url)
    with database.read() as session:
        jobs = {job.job_id: job for job in queries.jobs(session)[0]}
    assert jobs["a"].status == "complete"
    assert jobs["a"].created_at.isoformat() == "2026-01-02T03:04:05+00:00"
    assert jobs["b"].status == "pending"
    assert len(listed(database, settings.root)) == 10
    database.close()
