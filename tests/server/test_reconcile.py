import pytest

from hawk.config.settings import Settings
from hawk.core.states import JobStatus, SamplePhase
from hawk.server.services import reconcile
from hawk.store import queries
from hawk.store.database import open_database
from tests.server.fakes import FakeEngine
from tests.server.serving import CONFIG, Service, serving, until
from tests.store.databases import BOTH
from tests.store.runs import make_run, snapshot_of

RUNNING, DONE = SamplePhase.RUNNING, SamplePhase.COMPLETED
SECRET = {**CONFIG, "secrets": ["KEY"]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "PERIOD", 0.05)
    monkeypatch.setattr(reconcile, "LAUNCH_GRACE", 0.2)
    monkeypatch.setattr(reconcile, "FIRST_DELAY", 0.05)


def seen(service: Service, job_id: str) -> bool:
    state = service.context.registry.get(job_id)
    return state is not None and state.seen_alive


def test_a_dead_runner_is_started_again_with_its_secrets(service: Service, engine: FakeEngine) -> None:
    service.submit("a", SECRET, secrets={"KEY": "v"})
    engine.write(snapshot_of("a", RUNNING))
    until(lambda: seen(service, "a"))
    engine.alive.clear()
    until(lambda: len(engine.launches) == 2)
    assert engine.launches[1] == ("a", {"KEY": "v"})
    assert service.status("a")["status"] == "running"
    states = [entry["state"] for entry in service.get("/monitoring/jobs/a/journal").json()["entries"]]
    assert "relaunched" in states


def test_a_runner_that_keeps_dying_is_given_up_and_the_job_says_why(
    service: Service, engine: FakeEngine
) -> None:
    engine.stillborn = True
    service.submit("a")
    data = service.until_status("a", "failed")
    assert "started again 3 times without progress" in data["reason"]
    assert "killed by SIGKILL" in data["reason"]
    assert "hawk logs a" in data["remedy"]
    assert len(engine.launches) == 1 + reconcile.MAX_RESTARTS
    assert engine.killed == engine.settled == ["a"]
    assert until(lambda: engine.run("a").read_snapshot()).status is JobStatus.FAILED  # type: ignore[union-attr]


def test_progress_between_deaths_starts_the_count_again(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    for done in range(1, 6):
        engine.write(snapshot_of("a", *[DONE] * done, RUNNING))
        until(lambda: seen(service, "a"))
        engine.alive.clear()
        until(lambda done=done: len(engine.launches) == done + 1)
    assert service.status("a")["status"] == "running"


@pytest.mark.parametrize("database_url", BOTH, indirect=True)
def test_the_next_server_adopts_what_runs_and_starts_what_does_not(
    settings: Settings, engine: FakeEngine
) -> None:
    with serving(settings, engine) as service:
        service.submit("alive")
        service.submit("dead")
        engine.write(snapshot_of("alive", RUNNING))
    engine.alive.discard("dead")
    with serving(settings, engine) as service:
        assert service.status("alive")["status"] == "running"
        until(lambda: [job for job, _ in engine.launches].count("dead") == 2)
        assert [job for job, _ in engine.launches].count("alive") == 1


def test_a_runner_is_started_without_lost_secrets_and_what_it_says_is_needed_can_be_given(
    settings: Settings, engine: FakeEngine
) -> None:
    with serving(settings, engine) as service:
        service.submit("a", SECRET, secrets={"KEY": "v"})
        engine.write(snapshot_of("a", DONE, RUNNING))
    engine.alive.clear()
    with serving(settings, engine) as service:
        until(lambda: engine.launches[-1] == ("a", {}))
        engine.end(snapshot_of("a", DONE, status=JobStatus.FAILED))
        service.until_status("a", "failed")
        assert service.submit("a", None).json()["code"] == "secrets_needed"
        assert service.submit("a", None, secrets={"KEY": "w"}).status_code == 200
        assert engine.launches[-1] == ("a", {"KEY": "w"})
        assert service.status("a")["status"] == "pending"


def test_a_job_that_ended_while_no_server_ran_is_indexed_by_the_next(
    settings: Settings, engine: FakeEngine
) -> None:
    with serving(settings, engine) as service:
        service.submit("a")
    engine.end(snapshot_of("a", DONE, status=JobStatus.COMPLETE))
    with serving(settings, engine) as service:
        service.until_status("a", "complete")
        until(lambda: service.get("/meta/jobs").json()["items"][0]["status"] == "complete")
    assert len(engine.launches) == 1


def test_run_directories_are_found_without_their_database(settings: Settings, engine: FakeEngine) -> None:
    run = make_run(settings.root, "a")
    engine.end(snapshot_of("a", DONE, status=JobStatus.FAILED))
    make_run(settings.root, "broken").spec_file.write_text("{")
    assert run.spec_file.exists()
    with serving(settings, engine) as service:
        service.until_status("a", "failed")
        assert [job["job_id"] for job in service.get("/meta/jobs").json()["items"]] == ["a"]


def test_a_settled_job_is_left_alone_by_the_next_server(settings: Settings, engine: FakeEngine) -> None:
    with serving(settings, engine) as service:
        service.submit("a")
        engine.end(snapshot_of("a", DONE, status=JobStatus.COMPLETE))
        until(lambda: service.context.registry.get("a") is None)
    with serving(settings, engine) as service:
        assert len(service.context.registry) == 0
        assert service.status("a")["status"] == "complete"


def test_delete_ends_the_job_and_removes_what_it_made(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    engine.write(snapshot_of("a", RUNNING))
    seen_operations: list[str | None] = []
    engine.on_kill = lambda job_id: seen_operations.append(
        service.context.feeds.status(job_id).snapshot.operation
    )
    for _ in range(2):
        assert service.client.delete("/eval_sets/a").json() == {"eval_set_id": "a", "deleted": True}
    assert seen_operations == ["deleting"]
    assert engine.killed == ["a"]
    assert not engine.run("a").path.exists()
    assert service.status("a")["status"] == "deleted"
    assert service.get("/meta/jobs").json()["items"] == []
    assert service.client.delete("/eval_sets/nobody").status_code == 404
    assert service.submit("a").json()["created"] is True
    assert service.status("a")["status"] == "pending"


def test_a_deletion_that_was_cut_short_is_finished_by_the_next_server(
    settings: Settings, engine: FakeEngine
) -> None:
    with serving(settings, engine) as service:
        service.submit("a")
        service.client.delete("/eval_sets/a")
    make_run(settings.root, "a")
    (settings.root / ".deleted-b-1234").mkdir()
    with serving(settings, engine) as service:
        assert service.status("a")["status"] == "deleted"
        assert [path.name for path in settings.root.iterdir()] == [".locks"]
    assert len(engine.launches) == 1


def test_a_run_directory_removed_by_hand_is_a_deletion(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    until(lambda: seen(service, "a"))
    engine.run("a").path.rename(engine.root / ".gone")
    engine.alive.clear()
    service.until_status("a", "deleted")


def test_a_stop_is_passed_on_and_acknowledged(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    engine.write(snapshot_of("a", RUNNING, DONE))
    service.until_status("a", "running")
    answer = service.client.post("/eval_sets/a/stop", json={"action": "error"})
    assert (answer.status_code, answer.json()["acknowledged"]) == (202, True)
    one = service.client.post("/eval_sets/a/stop", json={"action": "score", "sample_uuid": "a-uuid-0"})
    assert one.status_code == 202
    assert engine.stops == [("a", "error", None), ("a", "score", "a-uuid-0")]
    for uuid, status in (("a-uuid-1", 409), ("nobody", 404)):
        assert service.client.post("/eval_sets/a/stop", json={"sample_uuid": uuid}).status_code == status
    assert service.client.post("/eval_sets/a/stop", json={"action": "explode"}).status_code == 422
    assert service.client.post("/eval_sets/nobody/stop", json={}).status_code == 404
    engine.end(snapshot_of("a", DONE, status=JobStatus.COMPLETE))
    service.until_status("a", "complete")
    assert service.client.post("/eval_sets/a/stop", json={}).status_code == 409


def test_a_stop_that_nobody_hears_says_so(
    service: Service, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawk.server.services.stops.ACKNOWLEDGE", 0.2)
    engine.deaf = True
    service.submit("a")
    assert service.client.post("/eval_sets/a/stop", json={}).json()["acknowledged"] is False


def test_the_index_outlives_the_server(settings: Settings, engine: FakeEngine) -> None:
    with serving(settings, engine) as service:
        service.submit("a")
        engine.end(snapshot_of("a", DONE, status=JobStatus.COMPLETE))
        until(lambda: service.context.registry.get("a") is None)
    database = open_database(settings.database_url)
    with database.read() as session:
        assert queries.finished(session) == {"a"}
    database.close()
