"""The middleman's own paths, as its description has them: methods, names, bodies."""

import pytest

from tests.middleman.raw_client import ask
from tests.middleman.running import Middleman


@pytest.mark.parametrize("bears", [True, False])
def test_another_method_is_refused_with_those_that_there_are(middleman: Middleman, bears: bool) -> None:
    token = middleman.person() if bears else None
    for method, path, allowed in (
        ("POST", "/health/live", "GET, HEAD"),
        ("PUT", "/permitted_models", "GET, HEAD, POST"),
        ("GET", "/admin/reload", "POST"),
        ("POST", "/admin/keys", "GET, HEAD"),
        ("POST", "/admin/keys/openai", "GET, HEAD, PUT, DELETE"),
        ("PUT", "/job", "GET, HEAD, DELETE"),
        ("GET", "/job/keys", "PUT"),
        ("OPTIONS", "/openai/v1/models", "DELETE, GET, HEAD, PATCH, POST, PUT"),
    ):
        reply = ask(middleman.url, path, token, method=method)
        assert (reply.status, reply.error_type) == (405, "hawk_method_not_allowed"), (method, path)
        assert reply.header("allow") == allowed


def test_keys_are_found_under_any_spelling_of_their_name(middleman: Middleman) -> None:
    stored = middleman.admin("/admin/keys/google/me%40example.org", {"value": "sk-some-key"}, method="PUT")
    assert (stored["provider"], stored["account"]) == ("gemini", "me@example.org")
    for path in ("/admin/keys/google", "/admin/keys/gemini/me@example.org", "/admin/keys/g%65mini"):
        assert stored in middleman.admin(path), path
    middleman.admin("/admin/keys/gemini/me@example.org", method="DELETE")
    gone = ask(middleman.url, "/admin/keys/gemini/me@example.org", middleman.person(), method="DELETE")
    assert (gone.status, gone.error_type) == (404, "hawk_unknown_key")


@pytest.mark.parametrize("path", ["/admin/keys/%C2%84", "/admin/keys/openai/%20", "/admin/keys/health%20"])
def test_names_that_can_be_none_are_refused(middleman: Middleman, path: str) -> None:
    reply = ask(middleman.url, path, middleman.person())
    assert (reply.status, reply.error_type) == (400, "hawk_bad_request")


def test_what_can_be_no_job_is_not_revoked(middleman: Middleman) -> None:
    for job in ("%C2%84", "%20", "a:b", ".a"):
        reply = ask(middleman.url, f"/admin/jobs/{job}/revoke", middleman.person(), method="POST")
        assert (reply.status, reply.error_type) == (400, "hawk_bad_request"), job
    assert middleman.admin("/admin/jobs/never-seen_1.2/revoke", method="POST") == {"closed": 0}


def test_a_credential_may_be_in_the_body(middleman: Middleman) -> None:
    mine = ask(middleman.url, "/permitted_models", middleman.person())
    body = {"api_key": middleman.person(), "only_available_models": True}
    theirs = ask(middleman.url, "/permitted_models", None, body)
    assert (theirs.status, theirs.json()) == (200, mine.json())
    for wrong in ({"api_key": 1}, {"only_available_models": "yes"}, [], "x"):
        assert ask(middleman.url, "/permitted_models", middleman.person(), wrong).status == 400, wrong
    assert ask(middleman.url, "/permitted_models", None, {}).status == 401


def test_a_probe_of_nobodys_model_or_job_is_not_found(middleman: Middleman) -> None:
    for body, kind in (
        ({"model": "nothing"}, "hawk_unknown_provider"),
        ({"model": "openai/m", "job": "nobody"}, "hawk_unknown_job"),
    ):
        reply = ask(middleman.url, "/admin/probe", middleman.person(), body)
        assert (reply.status, reply.error_type) == (404, kind)
