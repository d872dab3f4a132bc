import threading
from pathlib import Path

import httpx
import pytest

from hawk.config.settings import Settings
from hawk.core.states import JobStatus, SamplePhase
from hawk.errors import HawkError
from hawk.store.rundir import RunDir
from tests.server.fakes import FakeEngine
from tests.server.serving import CONFIG, Service, until
from tests.store.databases import BOTH
from tests.store.runs import snapshot_of

both = pytest.mark.parametrize("database_url", BOTH, indirect=True)
OTHER = {**CONFIG, "message_limit": 3}


def ended(engine: FakeEngine, service: Service, job_id: str, status: JobStatus = JobStatus.COMPLETE) -> None:
    engine.end(snapshot_of(job_id, SamplePhase.COMPLETED, status=status))
    service.until_status(job_id, status)


@both
def test_a_submit_starts_a_job_and_says_its_id(service: Service, engine: FakeEngine) -> None:
    answer = service.submit(config={**CONFIG, "name": "My Set"}, source="tasks: [] # as written\n")
    body = answer.json()
    assert answer.status_code == 200
    assert body["eval_set_id"].startswith("my-set-")
    assert (body["created"], body["adopted"]) == (True, False)
    run = engine.run(body["eval_set_id"])
    assert run.config_file.read_text() == "tasks: [] # as written\n"
    assert engine.launches == [(run.job_id, {})]
    assert service.status(run.job_id)["status"] == "pending"
    assert service.get(f"/eval_sets/{run.job_id}/config").json()["tasks"][0]["package"] == "some-package"
    [job] = service.get("/meta/jobs").json()["items"]
    assert (job["job_id"], job["job_type"], job["status"]) == (run.job_id, "eval-set", "pending")


def test_submitting_twice_adopts_the_running_job(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    body = service.submit("a").json()
    assert (body["created"], body["adopted"]) == (False, True)
    assert len(engine.launches) == 1


def test_another_config_under_a_running_id_is_refused(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    for answer in (service.submit("a", OTHER), service.submit("a", restart=True)):
        assert answer.status_code == 409
        assert "'a' is running" in answer.json()["detail"]
    assert len(engine.launches) == 1


def test_of_two_submits_at_once_one_starts_and_the_other_adopts(service: Service, engine: FakeEngine) -> None:
    answers: list[httpx.Response] = []
    headers = {"authorization": f"Bearer {service.token}"}

    def submit() -> None:
        body = {"eval_set_config": CONFIG, "eval_set_id": "a"}
        answers.append(
            httpx.post(f"{service.url}/eval_sets/", json=body, headers=headers, timeout=30, trust_env=False)
        )

    threads = [threading.Thread(target=submit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.json()["adopted"] for answer in answers) == [False] + [True] * 5
    assert len(engine.launches) == 1


@pytest.mark.parametrize("fields", [{"config": None}, {"config": None, "resume": True}, {}])
def test_an_ended_job_resumes_and_is_not_shown_as_ended(
    service: Service, engine: FakeEngine, fields: dict[str, object]
) -> None:
    service.submit("a")
    ended(engine, service, "a")
    body = service.submit("a", **fields).json()  # type: ignore[arg-type]
    assert (body["created"], body["adopted"]) == (False, False)
    data = service.status("a")
    assert data["status"] == "pending"
    assert data["progress"]["completed"] == 1  # what is done stays done
    assert engine.run("a").read_spec().generation == 2
    assert len(engine.launches) == 2


def test_a_restart_moves_earlier_logs_aside_and_deletes_nothing(service: Service, engine: FakeEngine) -> None:
    service.submit("a")
    run = engine.run("a")
    (run.logs / "old.eval").write_bytes(b"evidence")
    ended(engine, service, "a")
    assert service.submit("a", restart=True).status_code == 200
    assert (run.path / "logs.1" / "old.eval").read_bytes() == b"evidence"
    assert (run.path / "logs.1" / "snapshot.json").exists()
    assert list(run.logs.iterdir()) == []
    assert service.status("a")["progress"]["total"] == 0


def test_resuming_what_never_was_is_not_found(service: Service) -> None:
    assert service.submit("nobody", config=None).status_code == 404
    assert service.client.post("/eval_sets/", json={}).status_code == 400


def test_a_wrong_config_starts_nothing_and_says_where(service: Service, engine: FakeEngine) -> None:
    answer = service.submit("a", {"tasks": [], "mesage_limit": 3})
    assert answer.status_code == 422
    assert answer.json()["code"] == "config"
    assert {problem["field"] for problem in answer.json()["fields"]["problems"]} >= {"tasks"}
    assert not engine.run("a").path.exists()
    for bad in ("UPPER", "x" * 60, "../up"):
        assert service.submit(bad).status_code == 400


def test_secrets_that_were_not_given_are_named(service: Service, engine: FakeEngine) -> None:
    answer = service.submit("a", {**CONFIG, "secrets": ["FIRST", "SECOND"]}, secrets={"FIRST": "x"})
    assert answer.status_code == 409
    assert answer.json()["code"] == "secrets_needed"
    assert answer.json()["fields"]["names"] == ["SECOND"]
    assert not engine.run("a").path.exists()


@pytest.mark.parametrize("field", ["secrets", "access"])
@pytest.mark.parametrize(("name", "value"), [("A", "b\0"), ("A\0", "b"), ("A=B", "c"), ("", "d")])
def test_what_no_environment_holds_is_no_secret(
    service: Service, engine: FakeEngine, field: str, name: str, value: str
) -> None:
    answer = service.submit("a", **{field: {name: value}})
    assert (answer.status_code, engine.launches) == (400, [])


def test_experiments_without_names_are_a_problem_of_the_config(service: Service) -> None:
    config = {**CONFIG, "experiments": [{"name": name, "model": "a/b"} for name in ({}, [], None, 1)]}
    answer = service.submit("a", config)
    assert answer.status_code == 422
    assert "experiments.0.name" in answer.text or "experiments[0].name" in answer.text


def test_secrets_reach_the_engine_and_no_file(
    service: Service, engine: FakeEngine, settings: Settings
) -> None:
    secret = "s3cr3t-value-of-a-key"
    service.submit("a", {**CONFIG, "secrets": ["FIRST"]}, secrets={"FIRST": secret, "EXTRA": secret})
    assert engine.launches == [("a", {"FIRST": secret, "EXTRA": secret})]
    assert engine.run("a").read_spec().secret_names == ["EXTRA", "FIRST"]
    ended(engine, service, "a")
    until(lambda: service.context.registry.get("a") is None)
    for path in settings.home.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_a_launch_that_fails_leaves_nothing_behind(service: Service, engine: FakeEngine) -> None:
    engine.refusal = HawkError("no processes left")
    answer = service.submit("a")
    assert answer.status_code == 500
    assert answer.json()["detail"] == "no processes left"
    assert not engine.run("a").path.exists()
    assert service.get("/meta/jobs").json()["items"] == []


def test_a_script_is_taken_by_its_path(service: Service, engine: FakeEngine, tmp_path: Path) -> None:
    script = tmp_path / "my_evals.py"
    script.write_text("eval_set()")
    body = service.submit(None, None, script=str(script), source="eval_set()").json()
    assert body["eval_set_id"].startswith("my-evals-")
    assert engine.run(body["eval_set_id"]).read_spec().script == str(script)
    assert service.submit(None, None, script="relative.py").status_code == 400
    assert service.submit(None, CONFIG, script=str(script)).status_code == 400


def test_a_script_whose_path_is_too_long_is_none(service: Service) -> None:
    answer = service.submit("a", None, script="/" + "x" * 300)
    assert answer.status_code == 400


def test_fields_without_a_meaning_here_are_warned_of(service: Service) -> None:
    quiet = service.submit("a", priority="medium", image=None, secrets={}).json()
    assert quiet["warnings"] == []
    assert "image_tag" in service.submit("b", image_tag="v1").json()["warnings"][0]


def test_a_root_that_cannot_be_written_is_said_so(service: Service, settings: Settings) -> None:
    RunDir(settings.root / "a").path.write_text("in the way")
    answer = service.submit("a")
    assert answer.status_code == 507
    assert answer.json()["code"] == "storage"
