"""Which jobs can be scored again, and what the new job is made of."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from hawk.core.attempts.results import Outcome, Pair, Result, Workspace
from hawk.core.states import JobStatus
from hawk.store.attempts import write_result
from tests.server.fakes import FakeEngine
from tests.server.serving import CONFIG, Service
from tests.server.test_submissions import OTHER, ended

PAIR = Pair("t", "s", "m")


def result(attempt: int = 1, outcome: Outcome = Outcome.PASS, **fields: Any) -> Result:
    return Result(pair=PAIR, attempt=attempt, outcome=outcome, **fields)


def source(service: Service, engine: FakeEngine, *results: Result, job: str = "a", **fields: Any) -> None:
    assert service.submit(job, **fields).status_code == 200
    for each in results or (result(),):
        write_result(engine.run(job), each)
    ended(engine, service, job)


def rescore(service: Service, job: str = "a", config: Any = None, **fields: Any) -> httpx.Response:
    return service.submit(fields.pop("name", None), config, rescore=job, **fields)


def test_the_new_job_has_the_saved_config_and_says_whose_attempts_it_scores(
    service: Service, engine: FakeEngine
) -> None:
    source(service, engine, source="# as written\n", base_dir="/somewhere", secrets={"KEY": "x"})
    refused = rescore(service)
    assert (refused.status_code, refused.json()["code"]) == (409, "secrets_needed")
    body = rescore(service, secrets={"KEY": "x"}).json()
    assert body == {"eval_set_id": "a-rescore-1", "warnings": [], "created": True, "adopted": False}
    run = engine.run("a-rescore-1")
    old, new = engine.run("a").read_spec(), run.read_spec()
    assert (new.rescore, old.rescore) == ("a", None)
    assert (new.config, new.base_dir, new.secret_names) == (old.config, "/somewhere", ["KEY"])
    assert run.config_file.read_text() == "# as written\n"
    assert engine.launches[-1] == ("a-rescore-1", {"KEY": "x"})
    assert rescore(service, secrets={"KEY": "x"}).json()["eval_set_id"] == "a-rescore-2"
    assert engine.run("a").read_spec() == old


def test_it_runs_where_the_first_one_ran_unless_somebody_says_otherwise(
    service: Service, engine: FakeEngine
) -> None:
    assert service.submit("a", engine="kubernetes").status_code == 200
    write_result(engine.run("a"), result())
    ended(engine, service, "a")
    here = {**CONFIG, "engine": "local"}
    ids = [
        rescore(service).json(),
        rescore(service, config=CONFIG).json(),
        rescore(service, config=here).json(),
    ]
    ids.append(rescore(service, engine="local").json())
    engines = [engine.run(body["eval_set_id"]).read_spec().engine for body in ids]
    assert engines == ["kubernetes", "kubernetes", "local", "local"]


def test_names_are_the_next_free_and_fit(service: Service, engine: FakeEngine) -> None:
    long = "x" * 43
    source(service, engine, job=long)
    assert rescore(service, long).json()["eval_set_id"] == f"{'x' * 33}-rescore-1"
    assert rescore(service, long, name="mine").json()["eval_set_id"] == "mine"
    assert rescore(service, long, name="Not Valid").status_code == 400
    own = rescore(service, long, name=long)
    assert (own.status_code, "in its own place" in own.json()["detail"]) == (400, True)


def test_the_same_again_is_found_running_and_resumed_when_it_has_ended(
    service: Service, engine: FakeEngine
) -> None:
    source(service, engine)
    assert rescore(service, name="b").json()["created"]
    assert rescore(service, name="b").json()["adopted"]
    ended(engine, service, "b")
    again = rescore(service, name="b").json()
    assert (again["created"], again["adopted"]) == (False, False)
    ended(engine, service, "b")
    assert service.submit("b", config=None, resume=True).status_code == 200
    spec = engine.run("b").read_spec()
    assert (spec.rescore, spec.generation) == ("a", 3)


def test_an_id_is_one_job_for_good(service: Service, engine: FakeEngine) -> None:
    source(service, engine)
    source(service, engine, job="c")
    rescore(service, name="b")
    ended(engine, service, "b")
    for answer, what in (
        (service.submit("b", CONFIG), "scores a again"),
        (rescore(service, "c", name="b"), "scores a again"),
        (rescore(service, "a", name="c"), "runs agents"),
    ):
        assert answer.status_code == 409
        assert answer.json()["detail"].endswith(f"is another job: it {what}.")
        assert "--name" in answer.json()["remedy"]


def test_another_config_is_taken_whatever_id_it_names(service: Service, engine: FakeEngine) -> None:
    source(service, engine)
    body = rescore(service, config={**OTHER, "eval_set_id": "a"}, base_dir="/elsewhere").json()
    spec = engine.run(body["eval_set_id"]).read_spec()
    assert (spec.job_id, spec.rescore, spec.base_dir) == ("a-rescore-1", "a", "/elsewhere")
    assert spec.config["message_limit"] == 3
    assert rescore(service, config={"tasks": []}).status_code == 422


def test_what_can_not_be_scored_again_says_why(service: Service, engine: FakeEngine) -> None:
    def said(answer: httpx.Response) -> tuple[int, str]:
        assert answer.json()["remedy"]
        return answer.status_code, answer.json()["detail"]

    assert said(rescore(service, "nobody")) == (404, "No eval set 'nobody' to score again.")
    service.submit("a")
    assert said(rescore(service)) == (
        409,
        "Eval set 'a' is running; it can be scored again when it has ended.",
    )
    ended(engine, service, "a", JobStatus.FAILED)
    write_result(engine.run("a"), result(1, Outcome.INFRA_ERROR))
    write_result(engine.run("a"), result(2, Outcome.CANCELED))
    nothing = "Eval set 'a' has no attempt that could be scored again: none has a result."
    assert said(rescore(service)) == (409, nothing)
    source(service, engine, job="b", config={**CONFIG, "log_samples": False})
    code, why = said(rescore(service, "b"))
    assert (code, "has kept no transcripts" in why) == (409, True)
    assert [run.name for run in engine.root.iterdir() if "rescore" in run.name] == []
    assert rescore(service, "../a").status_code == 400


@pytest.mark.parametrize(
    ("more", "warning"),
    [
        (result(2, Outcome.CANCELED), "Attempts of a without a result are not scored again: 1 canceled."),
        (
            result(2, workspace=Workspace(1, 1, 1, truncated=True)),
            "Workspaces of a that are not whole, being too large: 1. What scorers miss there may have been left.",
        ),
        (
            result(2, workspace_error="too slow"),
            "Attempts of a without a kept workspace: 1 (too slow). A scorer that looks there fails.",
        ),
    ],
)
def test_what_will_be_missing_is_a_warning(
    service: Service, engine: FakeEngine, more: Result, warning: str
) -> None:
    source(service, engine, result(), more)
    assert rescore(service).json()["warnings"] == [warning]
