"""Who may not: wrong, old and borrowed tokens, other models, spent budgets."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hawk.config.token import new_token
from hawk.core.traffic.ledger import Budget
from hawk.middleman.tokens import SKEW, Upstream, mint, signing_key
from tests.middleman.provider import Provider
from tests.middleman.provider_answers import EVENTS, chat
from tests.middleman.provider_raw import Act, Answer, Framing, Part
from tests.middleman.raw_client import Reply, ask, request_bytes, wire
from tests.middleman.running import Middleman
from tests.middleman.test_bytes import CHAT
from tests.system import until


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def changed(token: str, **claims: Any) -> str:
    """The same token with other claims and the old signature."""
    head, body, signature = token.split(".")
    value = {**msgspec.json.decode(base64.urlsafe_b64decode(body + "==")), **claims}
    return f"{head}.{b64(msgspec.json.encode(value))}.{signature}"


def unsigned(token: str) -> str:
    head = b64(msgspec.json.encode({"alg": "none"}))
    return f"{head}.{token.split('.')[1]}."


FORGERIES: dict[str, Callable[[str], str]] = {
    "nonsense": lambda token: "nonsense",
    "another key": lambda token: mint(b"x" * 64, job="job-1", user="me"),
    "claims changed": lambda token: changed(token, job="job-2"),
    "lives longer": lambda token: changed(token, exp=4102444800),
    "no signature": unsigned,
    "empty signature": lambda token: token.rsplit(".", 1)[0] + ".",
    "cut": lambda token: token[:-1] if token[-1] != "A" else token[:-2],
    "a person's, but not ours": lambda token: new_token("me"),
    "not ASCII": lambda token: "caf\xe9.x.y",
    "huge": lambda token: "a." * 20_000,
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_tokens(middleman: Middleman, provider: Provider, model: str, forgery: str) -> None:
    reply = middleman.ask(CHAT, {"model": model}, token=FORGERIES[forgery](middleman.token()))
    assert (reply.status, reply.error_type) == (401, "hawk_token_invalid"), reply.body
    assert not provider.received


def test_no_token_and_an_expired_one(middleman: Middleman, provider: Provider, model: str) -> None:
    reply = ask(middleman.url, CHAT, None, {"model": model})
    assert (reply.status, reply.error_type) == (401, "hawk_token_missing")
    old = middleman.token(now=time.time() - 1000, lifetime=100)
    reply = middleman.ask(CHAT, {"model": model}, token=old)
    assert (reply.status, reply.error_type) == (401, "hawk_token_expired")
    assert reply.header("x-should-retry") == "false"
    assert not provider.received


@pytest.mark.parametrize("ahead", [-50, 50])
def test_clocks_may_differ_by_a_little(
    middleman: Middleman, provider: Provider, model: str, ahead: float
) -> None:
    token = middleman.token(f"job-skew{ahead}", now=time.time() + ahead, lifetime=20)
    assert middleman.ask(CHAT, {"model": model}, token=token).status == 200


def test_a_token_that_expires_in_mid_stream_is_good_until_the_stream_ends(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.on(chat({"model": model, "stream": True}, tuple("abcdefgh"), pause=0.1))
    token = middleman.token("job-expires", now=time.time() - 1000, lifetime=1000 - SKEW + 0.5)
    reply = middleman.ask(CHAT, {"model": model, "stream": True}, token=token)
    assert (reply.status, reply.complete) == (200, True)
    later = middleman.ask(CHAT, {"model": model}, token=token)
    assert later.error_type == "hawk_token_expired"


@pytest.mark.parametrize("ahead", [0, 50])
def test_a_revoked_token_is_dead_whatever_the_clock_of_its_maker(
    middleman: Middleman, provider: Provider, model: str, ahead: float
) -> None:
    job = f"job-revoked-{ahead}"
    token = middleman.token(job, now=time.time() + ahead)
    assert middleman.ask(CHAT, {"model": model}, token=token).status == 200
    middleman.admin(f"/admin/jobs/{job}/revoke", {})
    reply = middleman.ask(CHAT, {"model": model}, token=token)
    assert (reply.status, reply.error_type) == (401, "hawk_token_revoked")


def test_a_revoked_job_is_cut_in_mid_stream_and_in_the_queue(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    token = middleman.token("job-cut")
    parts: list[Part] = [b"data: {}\n\n", Act.SILENCE]
    provider.on(Answer(parts, headers=[*EVENTS], framing=Framing.CHUNKED))
    target = "/single/v1/chat/completions"
    queued: list[Reply] = []
    waiting = threading.Thread(
        target=lambda: queued.append(middleman.ask(target, {"model": model}, token=token))
    )
    with wire(middleman.url) as client:
        body = msgspec.json.encode({"model": model, "stream": True})
        client.send(request_bytes("POST", target, [("x-api-key", token)], body))
        client.read_until(b"data: {}")
        waiting.start()
        until("the second waits", lambda: middleman.lane(model).get("waiting") == 1)
        revoked = time.monotonic()
        closed = middleman.admin("/admin/jobs/job-cut/revoke", {})
        client.rest()
        cut = time.monotonic()
    waiting.join(60)
    assert closed == {"closed": 2}
    print(f"\nthe stream was cut {1000 * (cut - revoked):.1f} ms after the call to revoke")
    assert (queued[0].status, queued[0].error_type) == (401, "hawk_token_revoked")
    until("the provider is rid of it", lambda: provider.received[0].gone_at)
    assert len(provider.received) == 1
    until("no place is taken", lambda: middleman.lane(model)["in_flight"] == 0)
    later = middleman.token("job-cut", now=time.time() + 1)
    assert middleman.ask(target, {"model": model}, token=later).status == 200, "resumed, it gets a new token"


def test_a_job_is_who_its_token_says_not_who_it_says(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    one, other = middleman.token("job-one"), middleman.token("job-other")
    headers = [("X-Hawk-Job", "job-other")]
    assert middleman.ask(CHAT, {"model": model}, token=one, headers=headers).status == 200
    assert middleman.ask("/job", token=one).json()["requests"] == 1
    assert middleman.ask("/job", token=other).json()["requests"] == 0
    for method, target in [
        ("GET", "/admin/status"),
        ("POST", "/admin/reload"),
        ("GET", "/admin/keys"),
        ("PUT", "/admin/keys/openai"),
        ("DELETE", "/admin/keys/openai"),
        ("POST", "/admin/jobs/job-other/revoke"),
        ("POST", "/admin/probe"),
        ("GET", "/metrics"),
    ]:
        reply = middleman.ask(target, b"{}", token=one, method=method)
        assert reply.status == 403, (method, target, reply.status)
    assert middleman.ask("/job", token=middleman.person()).status in (401, 403)


@pytest.mark.parametrize(
    ("target", "body"),
    [
        (CHAT, b'{"model":"secret"}'),
        (CHAT, b'{"model":"good","model":"secret"}'),
        (CHAT, b'{"model":"secret","model":"good"}'),
        (CHAT, b'{"model":"good","\\u006dodel":"secret"}'),
        (CHAT, b'{"MODEL":"secret"}'),
        (CHAT, b"{}"),
        (CHAT, b'{"model":["good"]}'),
        (CHAT, b'\xef\xbb\xbf{"model":"good"}'),
        (CHAT, b'{"model":"good"}{"model":"secret"}'),
        (CHAT, b'{"model":"good","x":1e999999,"model":"secret"}'),
        ("/openai/v1/models/secret", None),
        ("/gemini/v1beta/models/secret:generateContent", b'{"model":"good"}'),
        ("/gemini/v1beta/models/secret:generateContent", b"{}"),
        ("/gemini/v1beta/tunedModels/secret:generateContent", b'{"model":"good"}'),
    ],
)
def test_models_that_a_job_may_not_use(
    middleman: Middleman, provider: Provider, target: str, body: bytes | None
) -> None:
    token = middleman.token("job-models", models=("openai/good", "google/good"))
    headers = [("Content-Type", "application/json")]
    reply = middleman.ask(target, body, token=token, headers=headers)
    assert reply.status in (400, 403), reply.body
    assert reply.error_type in ("hawk_bad_request", "hawk_model_not_permitted")
    assert not provider.received


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/octet-stream", "multipart/form-data; boundary=json"]
)
def test_a_model_is_not_hidden_by_calling_the_body_something_else(
    middleman: Middleman, provider: Provider, content_type: str
) -> None:
    token = middleman.token("job-models", models=("openai/good",))
    reply = middleman.ask(CHAT, b'{"model":"secret"}', token=token, headers=[("Content-Type", content_type)])
    assert (reply.status, reply.error_type) == (403, "hawk_model_not_permitted")
    packed = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
    reply = middleman.ask(CHAT, b"\x1f\x8b", token=token, headers=packed)
    assert (reply.status, reply.error_type) == (403, "hawk_model_not_permitted")
    assert not provider.received


def test_the_models_that_it_may_use(middleman: Middleman, provider: Provider) -> None:
    token = middleman.token("job-models", models=("openai/good*", "google/good"))
    assert middleman.ask(CHAT, {"model": "good-2"}, token=token).status == 200
    gemini = "/gemini/v1beta/models/good:generateContent"
    assert middleman.ask(gemini, {}, token=token).status == 200


@pytest.mark.parametrize("places", ["openai", "ten"])
def test_a_budget_crossed_by_a_hundred_at_once_ends_with_what_was_in_flight(
    middleman: Middleman, provider: Provider, model: str, places: str
) -> None:
    """Twelve tokens in, nine out: the fifth answer crosses the budget. Of `ten` only ten are in flight at once."""
    token = middleman.token(f"job-budget-{places}", budget=Budget(tokens=100))
    answer = chat({"model": model})
    answer.delay = 0.4
    provider.on(answer, always=True)
    replies: list[Reply] = []
    barrier = threading.Barrier(100)

    def one() -> None:
        barrier.wait()
        replies.append(middleman.ask(f"/{places}/v1/chat/completions", {"model": model}, token=token))

    threads = [threading.Thread(target=one) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    served = [r for r in replies if r.status == 200]
    refused = [r for r in replies if r.status != 200]
    assert len(replies) == 100
    assert {(r.status, r.error_type) for r in refused} <= {(402, "hawk_budget_exhausted")}
    assert len(provider.received) == len(served)
    if places == "ten":
        assert 5 <= len(served) <= 5 + 10, f"{len(served)} were served"
    last = middleman.ask(f"/{places}/v1/chat/completions", {"model": model}, token=token)
    assert (last.status, last.error_type) == (402, "hawk_budget_exhausted")
    assert f"job-budget-{places}" in last.json()["error"]["message"]
    spent = middleman.ask("/job", token=token).json()
    assert spent["tokens"] == 21 * len(served)
    assert spent["exhausted"]


def test_keys_of_a_job_are_its_own(middleman: Middleman, provider: Provider, model: str) -> None:
    mine = {"mine": Upstream(f"{provider.url}/v1")}
    token = middleman.token("job-keys", upstreams=mine)
    put = middleman.ask("/job/keys", {"MINE_API_KEY": "key-of-the-job"}, token=token, method="PUT")
    assert put.status == 200
    assert middleman.ask("/mine/v1/chat/completions", {"model": model}, token=token).status == 200
    assert provider.received[-1].header("authorization") == "Bearer key-of-the-job"
    other = middleman.token("job-keys-2", upstreams=mine)
    middleman.ask("/mine/v1/chat/completions", {"model": model}, token=other)
    assert all(r.header("authorization") != "Bearer key-of-the-job" for r in provider.received[1:])
    ended = middleman.ask("/job", token=token, method="DELETE")
    assert ended.status in (200, 204)
    assert middleman.ask("/job", token=token).error_type == "hawk_token_revoked"


def test_a_key_of_ours_never_goes_where_a_job_says(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    token = mint(
        signing_key(middleman.home),
        job="job-thief",
        user="me",
        upstreams={"openai": Upstream(f"{provider.url}/thief"), "local": Upstream(f"{provider.url}/thief")},
    )
    for name in ("openai", "local"):
        middleman.ask(f"/{name}/v1/chat/completions", {"model": model}, token=token)
    for request in provider.received:
        assert not (b"upstream" in request.head and "/thief" in request.target)
