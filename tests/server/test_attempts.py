"""Reports, comparisons and exports, over a real socket."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from hawk.client import HawkClient
from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.report import Comparison, Judgement, Report
from hawk.core.attempts.results import Outcome, Pair, Workspace
from hawk.core.plan import Plan, PlanTask
from hawk.core.states import JobStatus, SamplePhase
from hawk.errors import NotFoundError, ServerUnavailableError, StorageError
from hawk.server.errors import StreamBrokenError
from hawk.server.services import attempts as service_module
from hawk.server.services.attempts_export import LARGEST_OCTAL, export, header
from hawk.store.attempts import attempt_directory, workspace_draft, write_result
from hawk.store.rundir import RunDir, write_json
from tests.core.attempts.made import result
from tests.server.fakes import FakeEngine
from tests.server.serving import Service
from tests.store.hostile import NAMES
from tests.store.runs import snapshot_of

REPORT = "/meta/eval-sets/a/report"
EXPORT = "/meta/eval-sets/a/attempts/export"
MODEL = "mock/one"


def pair(sample: object, task: str = "coding") -> Pair:
    return Pair(task, str(sample), MODEL)


def plan(run: RunDir, samples: list[str], runs: int = 2, **fields: Any) -> None:
    tasks = [PlanTask("i", "coding", MODEL, samples, runs)]
    write_json(run.plan_file, Plan(run.job_id, tasks, runs=runs, **fields))


def job(service: Service, engine: FakeEngine, job_id: str = "a", samples: int = 3, runs: int = 2) -> RunDir:
    """A job that runs, with a plan and no result yet."""
    assert service.submit(job_id).status_code == 200
    engine.write(snapshot_of(job_id, SamplePhase.RUNNING))
    run = RunDir(engine.root / job_id)
    plan(run, [str(i) for i in range(samples)], runs)
    return run


def put(run: RunDir, sample: object, attempt: int, passed: bool, **fields: Any) -> None:
    write_result(run, result(pair(sample), attempt, passed, **fields))


def report(service: Service, job_id: str = "a") -> Report:
    answer = service.get(f"/meta/eval-sets/{job_id}/report")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=Report)


def test_a_report_during_a_running_job_tells_what_is_decided_so_far(
    service: Service, engine: FakeEngine
) -> None:
    run = job(service, engine)
    first = report(service)
    assert (first.complete, first.passed, first.undecided, first.any_pass) == (False, 0, 3, None)
    put(run, 0, 1, True)
    put(run, 1, 1, False)
    found = report(service)
    assert [row.passed for row in found.pairs] == [True, None, None]
    assert (found.passed, found.failed, found.complete) == (1, 0, False)
    for sample, attempt in ((0, 2), (1, 2), (2, 1), (2, 2)):
        put(run, sample, attempt, False)
    done = report(service)
    assert (done.complete, done.passed, done.failed) == (True, 1, 2)
    assert done.tally == {"1/2": 1, "0/2": 2}


def test_two_reports_are_the_same_bytes_also_by_another_server(
    service: Service, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job(service, engine)
    for sample in range(3):
        put(run, sample, 1, sample > 0, cost=0.1, model_calls=sample)
    first, second = service.get(REPORT), service.get(REPORT)
    assert first.content == second.content
    fresh = service_module.Reports(service.context.registry, service.context.database)
    assert fresh.report("a").body == first.content
    assert fresh.report("a").etag == first.headers["etag"]


def test_a_report_is_made_again_only_when_something_changed(
    service: Service, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    original = service_module.make_report
    monkeypatch.setattr(service_module, "make_report", lambda run: made.append(run.job_id) or original(run))
    run = job(service, engine)
    put(run, 0, 1, False)
    before = service.get(REPORT)
    again = service.get(REPORT, headers={"if-none-match": f'"other", W/{before.headers["etag"]}'})
    assert (again.status_code, again.content, len(made)) == (304, b"", 1)
    put(run, 0, 1, True)  # replaced, with the same size and maybe in the same moment
    after = service.get(REPORT, headers={"if-none-match": before.headers["etag"]})
    assert (after.status_code, len(made)) == (200, 2)
    assert after.headers["etag"] != before.headers["etag"]
    plan(run, ["0", "1"])
    assert (len(report(service).pairs), len(made)) == (2, 3)
    (run.path / "attempts" / "stray").write_text("x")
    assert "stray" in report(service).problems[0]


def test_damaged_and_foreign_files_are_named_and_the_rest_counts(
    service: Service, engine: FakeEngine
) -> None:
    run = job(service, engine)
    put(run, 0, 1, True)
    torn = attempt_directory(run, pair(1), 1)
    torn.mkdir(parents=True)
    (torn / "result.json").write_bytes(b'{"pair": {"task": "co')
    write_result(run, result(pair("gone"), 1, True))
    found = report(service)
    assert (found.passed, found.undecided) == (1, 2)
    assert "torn or damaged" in found.problems[0]
    assert "not in the plan" in found.problems[1]


def test_a_policy_that_stops_early_gives_no_pass_at_k(service: Service, engine: FakeEngine) -> None:
    run = job(service, engine)
    plan(run, ["0"], rules=Rules(Policy.PARALLEL, cancel_siblings=True))
    put(run, 0, 1, True)
    write_result(run, result(pair(0), 2, Outcome.CANCELED))
    found = report(service)
    assert (found.policy, found.pass_at_k, found.complete) == ("parallel+cancel", {}, True)
    assert "biased" in (found.biased or "")


def test_ten_thousand_results_are_reported(service: Service, engine: FakeEngine) -> None:
    run = job(service, engine, samples=2500, runs=4)
    for sample in range(2500):
        for attempt in range(1, 5):
            home = attempt_directory(run, pair(sample), attempt)
            home.mkdir(parents=True)
            one = result(pair(sample), attempt, sample % 2 == 0)
            (home / "result.json").write_bytes(msgspec.json.encode(one))
    found = report(service)
    assert (found.passed, found.failed, found.undecided) == (1250, 1250, 0)
    assert sum(found.outcomes.values()) == 10_000


def test_hostile_names_travel_unharmed(service: Service, engine: FakeEngine) -> None:
    run = job(service, engine)
    plan(run, NAMES, 1)
    for name in NAMES:
        put(run, name, 1, False)
    found = report(service)
    assert [row.pair.sample for row in found.pairs] == NAMES
    assert found.failed == len(NAMES)


def test_the_same_run_against_itself_is_noise(service: Service, engine: FakeEngine) -> None:
    for job_id in ("a", "b"):
        run = job(service, engine, job_id)
        for sample in range(3):
            put(run, sample, 1, sample > 0)
            put(run, sample, 2, True)
    answer = service.get("/meta/compare", params={"a": "a", "b": "b"})
    found = msgspec.json.decode(answer.content, type=Comparison)
    assert (found.a, found.b, found.common, found.judgement) == ("a", "b", 3, Judgement.NOISE)
    same = service.get(
        "/meta/compare", params={"a": "a", "b": "b"}, headers={"if-none-match": answer.headers["etag"]}
    )
    assert same.status_code == 304
    put(run, 0, 2, False)
    changed = service.get("/meta/compare", params={"a": "a", "b": "b"})
    assert msgspec.json.decode(changed.content, type=Comparison).lost == [str(pair(0))]


@pytest.mark.parametrize(
    "path", [REPORT, EXPORT, "/meta/compare?a=a&b=b", "/meta/compare?a=b&b=a"], ids=lambda path: path
)
def test_unknown_deleted_and_misspelt_ids_are_said(service: Service, engine: FakeEngine, path: str) -> None:
    run = job(service, engine, "b")
    put(run, 0, 1, True)
    unknown = service.get(path)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    assert unknown.json()["remedy"] == "hawk list eval-sets"
    job(service, engine, "a")
    assert service.get(path).status_code == 200
    assert service.client.delete("/eval_sets/a").status_code == 200
    deleted = service.get(path)
    assert (deleted.status_code, "deleted" in deleted.json()["detail"]) == (404, True)
    odd = service.get(path.replace("sets/a/", "sets/..%5Cx/").replace("=a", "=../x"))
    assert odd.status_code in (400, 404)


def test_without_a_plan_there_is_nothing_to_report(service: Service) -> None:
    service.submit("a")
    answer = service.get(REPORT)
    assert (answer.status_code, answer.json()["remedy"]) == (404, "hawk watch a")


@pytest.mark.parametrize("path", [REPORT, EXPORT, "/meta/compare?a=a&b=a"])
def test_nothing_is_told_without_the_token(service: Service, engine: FakeEngine, path: str) -> None:
    job(service, engine)
    assert httpx.get(service.url + path, trust_env=False).status_code == 401


def test_the_schema_names_the_types(service: Service) -> None:
    document = service.get("/openapi.json").json()
    answer = document["paths"]["/meta/eval-sets/{eval_set_id}/report"]["get"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/Report")
    assert {"Report", "Comparison", "PairRow", "PolicyUse"} <= set(document["components"]["schemas"])


# --- export


def saved(run: RunDir, sample: object, content: bytes) -> None:
    draft = workspace_draft(run, pair(sample), 1)
    draft.write_bytes(content)
    size = len(content)
    write_result(run, result(pair(sample), 1, True, workspace=Workspace(1, size, size)), workspace=draft)


def names_in(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        members = archive.getmembers()
        assert all(member.isreg() for member in members)
        return {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def test_an_export_holds_every_result_and_workspace_and_nothing_else(
    service: Service, engine: FakeEngine, tmp_path: Path
) -> None:
    run = job(service, engine)
    saved(run, 0, b"old")
    saved(run, 0, os.urandom(3_000_000))
    saved(run, "../../x", b"")
    home = attempt_directory(run, pair(0), 1)
    (home / "secret").symlink_to("/etc/passwd")
    (home / "linked").symlink_to("/etc")
    os.mkfifo(home / "pipe")
    (home / ".draft").write_bytes(b"x")
    (home / "a name\n").write_bytes(b"x")
    answer = service.get(EXPORT)
    assert answer.headers["content-type"] == "application/x-tar"
    assert 'filename="a-attempts.tar"' in answer.headers["content-disposition"]
    held = names_in(answer.content)
    assert held == {
        str(path.relative_to(run.path)): path.read_bytes()
        for path in run.path.glob("attempts/**/*")
        if path.name in ("result.json", "workspace.tar.zst")
    }
    assert len(held) == 6


def test_the_client_gets_the_same_bytes_in_parts(service: Service, engine: FakeEngine) -> None:
    run = job(service, engine)
    saved(run, 0, os.urandom(3_000_000))
    with HawkClient(service.url, service.token) as client:
        parts = list(client.export("a"))
        assert client.report("a").passed == 1
        assert client.compare("a", "a").judgement is Judgement.NOISE
        with pytest.raises(NotFoundError):
            list(client.export("none"))
    assert len(parts) > 1
    assert b"".join(parts) == service.get(EXPORT).content


def test_an_eval_set_without_attempts_exports_an_empty_archive(service: Service, engine: FakeEngine) -> None:
    job(service, engine)
    assert names_in(service.get(EXPORT).content) == {}


def test_an_export_is_read_as_it_is_sent(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "a")
    run.create()
    run.spec_file.write_text("{}")
    for sample in range(50):
        saved(run, sample, bytes(1_000_000))
    stream = export(run)
    assert len(next(stream)) < 2_000_000
    assert sum(len(part) for part in stream) > 45_000_000


def test_a_job_that_is_deleted_meanwhile_breaks_the_stream(
    service: Service, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job(service, engine)
    for sample in range(3):
        saved(run, sample, os.urandom(2_000_000))
    with HawkClient(service.url, service.token) as client:
        stream = client.export("a")
        next(stream)
        assert service.client.delete("/eval_sets/a").status_code == 200
        with pytest.raises(ServerUnavailableError, match=r"closed|broke off"):
            list(stream)


def test_files_that_vanish_are_left_out_and_ones_that_shrink_break_the_stream(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "a")
    run.create()
    run.spec_file.write_text("{}")
    for sample in range(3):
        saved(run, sample, os.urandom(1_000_000))
    stream = export(run)
    first = next(stream)
    victims = sorted(run.path.glob("attempts/*/1/workspace.tar.zst"))
    victims[1].unlink()
    assert len(names_in(first + b"".join(stream))) == 5
    stream = export(run)
    next(stream)
    os.truncate(victims[0], 600_000)
    with pytest.raises(StreamBrokenError):
        list(stream)
    with pytest.raises(StreamBrokenError, match="stopping"):
        list(export(run, stopping=lambda: True))


@pytest.mark.parametrize("size", [0, 511, LARGEST_OCTAL, LARGEST_OCTAL + 1, 1 << 40])
def test_headers_are_read_by_others_whatever_the_size(size: int) -> None:
    block = header("attempts/x/1/workspace.tar.zst", size, 1_700_000_000)
    assert block is not None
    info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    assert (info.name, info.size, info.mtime) == ("attempts/x/1/workspace.tar.zst", size, 1_700_000_000)


def test_names_that_the_format_cant_hold_have_no_header() -> None:
    assert header("attempts/" + "x" * 300, 1, 0) is None
    assert header("attempts/é", 1, 0) is None


def test_a_finished_job_reports_as_well(service: Service, engine: FakeEngine) -> None:
    run = job(service, engine, samples=1, runs=1)
    put(run, 0, 1, True)
    engine.end(snapshot_of("a", SamplePhase.COMPLETED, status=JobStatus.COMPLETE))
    service.until_status("a", "complete")
    assert report(service).complete
    assert json.loads(service.get(REPORT).content)["passed"] == 1


def test_a_broken_plan_is_a_storage_error(service: Service, engine: FakeEngine) -> None:
    run = job(service, engine)
    run.plan_file.write_text("{")
    assert service.get(REPORT).status_code == StorageError.http_status
