import functools
import logging
import re
from typing import Any

import httpx
import pytest

from hawk.server.gate import OPEN_PATHS
from hawk.server.routes.public_client import DOWNLOAD
from tests.server.fakes import FakeEngine
from tests.server.serving import Service

ENVELOPE = {"title", "status", "detail", "code", "remedy", "fields"}


request = functools.partial(httpx.request, trust_env=False, verify=False)
"""Without the certificates, which take longer to load than an answer."""


def is_problem(answer: httpx.Response, status: int) -> bool:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert set(body) == ENVELOPE
    assert body["status"] == status
    assert answer.headers["x-request-id"]
    return True


def test_every_route_but_the_open_ones_needs_the_token(service: Service) -> None:
    document = service.get("/openapi.json").json()
    assert document["security"] == [{"bearer": []}]
    paths: dict[str, dict[str, Any]] = document["paths"]
    assert len(paths) > 20
    for path, operations in paths.items():
        open_ = path in OPEN_PATHS or path.startswith(DOWNLOAD)
        for method, operation in operations.items():
            answer = request(method, service.url + path.replace("{", "").replace("}", ""))
            assert (answer.status_code == 401) != open_, (method, path, answer.status_code)
            assert open_ or is_problem(answer, 401)
            assert (operation.get("security") == []) == open_
            assert {"403", "405", "5XX"} <= set(operation["responses"])


@pytest.mark.parametrize("token", [True, False])
def test_another_method_is_refused_with_those_that_there_are(service: Service, token: bool) -> None:
    headers = service.client.headers if token else {}
    for method, path, allowed in (
        ("PUT", "/meta/jobs", "GET"),
        ("TRACE", "/eval_sets/some-job", "DELETE"),
        ("GET", "/eval_sets/", "POST"),
        ("POST", f"{DOWNLOAD}a/b.eval", "GET, HEAD"),
        ("POST", "/version", "GET"),
    ):
        answer = request(method, service.url + path, headers=headers)
        assert is_problem(answer, 405)
        assert answer.headers["allow"] == allowed
    nowhere = request("GET", f"{service.url}/no/such/route", headers=headers)
    assert is_problem(nowhere, 404 if token else 401)


@pytest.mark.parametrize("header", ["Bearer wrong", "Basic abc", "Bearer", "Bearer \xff"])
def test_a_wrong_token_is_refused(service: Service, header: str) -> None:
    given = {"authorization": header.encode("latin-1")}
    assert is_problem(request("GET", f"{service.url}/meta/jobs", headers=given), 401)


def test_a_page_whose_name_was_pointed_at_this_machine_is_refused(service: Service) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[::1"):
        assert is_problem(service.get("/version", headers={"host": host}), 403)
    for host in ("localhost:1", "127.0.0.1", "[::1]:80"):
        assert service.get("/version", headers={"host": host}).status_code == 200


def test_errors_of_every_origin_have_one_envelope(service: Service, engine: FakeEngine) -> None:
    assert is_problem(service.get("/no/such/route"), 404)
    assert is_problem(service.client.put("/meta/jobs"), 405)
    assert is_problem(service.get("/meta/jobs?limit=0"), 422)
    assert is_problem(service.get("/monitoring/jobs/nobody/eval-set-status"), 404)
    assert is_problem(service.get("/monitoring/jobs/nobody/eval-set-status/stream"), 404)
    assert is_problem(service.get("/monitoring/jobs/..%2f..%2fetc/logs"), 404)
    assert is_problem(service.get("/monitoring/jobs/UPPER/logs"), 400)
    assert is_problem(service.client.post("/eval_sets/", content=b"{"), 422)
    assert is_problem(service.client.post("/eval_sets/", json={"secrets": "x"}), 422)
    deep = b'{"eval_set_config":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
    assert is_problem(service.client.post("/eval_sets/", content=deep), 422)
    assert is_problem(service.get("/meta/samples?search=%00"), 422)
    assert is_problem(service.get("/meta/samples?status=error&status=%00"), 422)
    assert is_problem(service.get("/meta/samples/a%00b/scores"), 422)
    service.submit("a")
    too_long = "x" * 300 + ".eval"
    assert is_problem(service.get(f"/view/logs/log-download-url/a/{too_long}"), 404)


def test_a_bug_is_logged_with_the_request_and_not_shown(
    service: Service, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    service.submit("a")
    engine.liveness = lambda job_id: 1 / 0  # type: ignore[assignment, return-value]
    answer = service.get("/monitoring/jobs/a/job-status")
    assert is_problem(answer, 500)
    assert "division" not in answer.text
    assert answer.json()["fields"]["request_id"] == answer.headers["x-request-id"]
    assert any(answer.headers["x-request-id"] in record.getMessage() for record in caplog.records)


def test_neither_token_nor_query_is_logged(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        service.get("/meta/samples?search=hunter2%0aforged")
        service.get("/meta/jobs%0aforged")
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("hawk")]
    assert any("/meta/samples" in line for line in lines)
    assert not any(service.token in line or "hunter2" in line or "\nforged" in line for line in lines)


def test_the_openapi_document_describes_the_bodies(service: Service) -> None:
    document = service.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert {"StatusResponse", "Snapshot", "SubmitRequest", "SubmitReply", "Problem", "SampleItem"} <= set(
        schemas
    )
    operation = document["paths"]["/monitoring/jobs/{job_id}/eval-set-status"]["get"]
    assert operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "StatusResponse"
    )
    assert "x-type" not in str(document)
    config = schemas["SubmitRequest"]["properties"]["eval_set_config"]["anyOf"][0]["$ref"]
    assert schemas[config.rsplit("/", 1)[1]]["required"] == ["tasks"]


def test_every_reference_in_the_openapi_document_leads_somewhere(service: Service) -> None:
    answer = service.get("/openapi.json")
    names = set(re.findall(r'"\$ref":\s*"([^"]*)"', answer.text))
    assert names
    for name in names:
        assert name.removeprefix("#/components/schemas/") in answer.json()["components"]["schemas"], name


def test_health_version_and_schema_are_open(service: Service) -> None:
    with httpx.Client(base_url=service.url, trust_env=False) as anyone:
        assert anyone.get("/health/live").json() == {"status": "ok"}
        assert anyone.get("/health").json()["status"] == "ok"
        assert set(anyone.get("/version").json()) == {"version", "place"}
        assert "properties" in anyone.get("/schemas/eval-set.json").json()
        assert anyone.get("/auth/config").json()["issuer"] == "hawk"
    assert service.get("/auth/me").json()["user"]
