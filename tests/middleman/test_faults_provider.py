"""What providers do wrong: each fault passed on as it is, or told by an error of its own, in time."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.middleman.provider import Limit, Provider
from tests.middleman.provider_faults import (
    FAULTS,
    context_overflow,
    half_then_silence,
    rate_limited,
    redirect,
    server_error,
    trickle,
    unauthorized,
)
from tests.middleman.provider_raw import Answer
from tests.middleman.raw_client import Reply
from tests.middleman.running import Middleman
from tests.middleman.test_bytes import CHAT, body_of
from tests.system import until

QUICK = "/quick/v1/chat/completions"


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("overloaded", 529),
        ("unavailable", 503),
        ("server_error", 500),
        ("unauthorized", 401),
        ("not_found", 404),
        ("context_overflow", 400),
        ("malformed", 200),
        ("empty", 200),
        ("empty_output", 200),
        ("redirect", 307),
        ("rate_limited", 429),
    ],
)
def test_what_the_provider_says_is_passed_on_as_it_said_it(
    middleman: Middleman, provider: Provider, model: str, fault: str, status: int
) -> None:
    answer = FAULTS[fault]()
    provider.on(answer)
    reply = middleman.ask(CHAT, {"model": model})
    assert (reply.status, reply.body, reply.complete) == (status, body_of(answer), True)
    assert reply.header("x-hawk-upstream-status") == str(status)
    assert reply.header("content-type") == dict(answer.headers).get("Content-Type")
    assert not (reply.error_type or "").startswith("hawk_"), "nobody may take it for ours"


def test_a_redirect_is_not_followed(middleman: Middleman, provider: Provider, model: str) -> None:
    provider.on(redirect(f"{provider.url}/elsewhere"))
    reply = middleman.ask(CHAT, {"model": model})
    assert (reply.status, reply.header("location")) == (307, f"{provider.url}/elsewhere")
    assert [r.path for r in provider.received] == ["/v1/chat/completions"]


@pytest.mark.parametrize(
    ("name", "fault", "status", "kind"),
    [
        ("quick", "black_hole", 504, "hawk_first_byte_timeout"),
        ("openai", "closed_at_once", 502, "hawk_upstream_closed"),
        ("openai", "reset_at_once", 502, "hawk_upstream_closed"),
        ("openai", "not_http", 502, "hawk_upstream_protocol"),
        ("openai", "huge_headers", 502, "hawk_upstream_protocol"),
        ("closed", None, 502, "hawk_connect_refused"),
        ("nowhere", None, 502, "hawk_dns"),
        ("untrusted", None, 502, "hawk_tls"),
        ("unknown", None, 404, "hawk_unknown_provider"),
        ("keyless", None, 401, "hawk_no_key"),
    ],
)
def test_no_answer_has_an_error_of_ours_that_says_why_and_whose(
    middleman: Middleman, provider: Provider, model: str, name: str, fault: str | None, status: int, kind: str
) -> None:
    if fault:
        provider.on(FAULTS[fault](), always=True)
    reply = middleman.ask(f"/{name}/v1/chat/completions", {"model": model})
    assert (reply.status, reply.error_type) == (status, kind), reply.body
    assert name in reply.json()["error"]["message"]
    assert reply.header("x-hawk-request-id")
    assert reply.header("x-hawk-upstream-status") is None


def test_a_kept_connection_that_the_provider_has_given_up_costs_nobody_a_request(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    """Providers close idle connections, also while a request is on its way: llama.cpp and vLLM after five seconds.

    Without a byte of an answer it is sent again over a fresh connection, once, as curl does it.
    """
    assert middleman.ask(CHAT, {"model": model}).status == 200
    provider.on(FAULTS["closed_at_once"]())
    assert middleman.ask(CHAT, {"model": model}).status == 200
    first, second, third = provider.received
    assert first.connection == second.connection != third.connection
    assert second.body == third.body


@pytest.mark.parametrize(
    ("target", "inside"),
    [
        ("/anthropic/v1/messages", {"type": "error"}),
        ("/gemini/v1beta/models/m:generateContent", {}),
        ("/openai/v1/responses", {}),
    ],
)
def test_our_errors_have_the_shape_of_the_clients_dialect(
    middleman: Middleman, provider: Provider, model: str, target: str, inside: dict[str, Any]
) -> None:
    provider.on(FAULTS["closed_at_once"](), always=True)
    body = middleman.ask(target, {"model": model}).json()
    assert body["error"]["type"] == "hawk_upstream_closed"
    assert body["error"]["message"]
    assert inside.items() <= body.items()
    if "gemini" in target:
        assert body["error"]["code"] == 502
        assert body["error"]["status"]


def test_silence_in_the_middle_of_a_stream_cuts_it(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    answer = half_then_silence()
    provider.on(answer)
    reply = middleman.ask(QUICK, {"model": model, "stream": True})
    assert (reply.status, reply.complete, reply.body) == (200, False, body_of(answer))
    until("the provider is rid of it", lambda: provider.received[0].gone_at)
    until("the reason is noted", lambda: middleman.errors(model) == ["hawk_idle_timeout"])


def test_one_byte_a_time_is_slow_but_alive_until_the_total_deadline(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.on(trickle(0.001), trickle(0.1))
    assert middleman.ask(QUICK, {"model": model}).complete
    assert not middleman.ask(QUICK, {"model": model}).complete
    until("the reason is noted", lambda: "hawk_total_timeout" in middleman.errors(model))


def test_an_answer_that_takes_longer_than_elsewhere_is_waited_for(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.on(Answer([b"{}"], delay=1.2), always=True)
    assert middleman.ask(CHAT, {"model": model}).status == 200
    assert middleman.ask(QUICK, {"model": model}).error_type == "hawk_first_byte_timeout"


def test_waiting_too_long_for_a_place_has_an_error_of_its_own(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.on(Answer([b"{}"], delay=60))
    holder = threading.Thread(target=middleman.ask, args=("/narrow/v1/chat/completions", {"model": model}))
    holder.start()
    until("the only place is taken", lambda: provider.received)
    reply = middleman.ask("/narrow/v1/chat/completions", {"model": model})
    assert (reply.status, reply.error_type) == (503, "hawk_queue_timeout")
    assert len(provider.received) == 1
    provider.drop_connections()
    holder.join(10)


def test_a_waiting_request_is_visible_with_place_and_reason(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.on(Answer([b"{}"], delay=60))
    replies: list[Reply] = []
    target = "/single/v1/chat/completions"
    token = middleman.token("job-waits")

    def ask() -> None:
        replies.append(
            middleman.ask(target, {"model": model}, token=token, headers=[("X-Hawk-Sample", "s 1")])
        )

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    until("two wait", lambda: middleman.lane(model).get("waiting") == 2)
    waiting = [r for r in middleman.status()["requests"] if r["model"] == model and r["phase"] == "queued"]
    assert sorted(r["place"] for r in waiting) == [1, 2]
    assert {(r["reason"], r["job"], r["sample"]) for r in waiting} == {("concurrency", "job-waits", "s 1")}
    [share] = middleman.lane(model)["by_job"]
    assert (share["job"], share["in_flight"], share["waiting"]) == ("job-waits", 1, 2)
    provider.drop_connections()
    for thread in threads:
        thread.join(20)
    assert sorted(r.status for r in replies)[:2] == [200, 200]


def test_a_rate_limit_pauses_everyone_for_as_long_as_the_provider_says(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.on(rate_limited("1"))
    refused = middleman.ask(CHAT, {"model": model})
    assert (refused.status, refused.header("retry-after")) == (429, "1")
    assert middleman.lane(model)["paused_until"]
    assert middleman.lane(model)["status_429_last_minute"] == 1
    assert middleman.ask(CHAT, {"model": model}).status == 200
    first, second = provider.received
    assert second.at - first.at > 0.9


def test_a_rate_limit_without_a_time_is_passed_on_and_the_limit_goes_down(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.limit = Limit(in_flight=2, silent=True)
    provider.on(Answer([b"{}"], delay=0.05), always=True)
    replies: list[Reply] = []

    def ask() -> None:
        replies.append(middleman.ask("/adaptive/v1/chat/completions", {"model": model}))

    def lowered() -> bool:
        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return bool(middleman.lane(model)["limit"] < 8)

    until("the limit is below what it began with", lowered, timeout=20)
    limited = [r for r in replies if r.status == 429]
    assert limited
    assert {r.header("retry-after") for r in limited} == {None}
    assert {r.status for r in replies} == {200, 429}


def test_a_provider_that_fails_everything_is_given_up_and_tried_again(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    target = "/fragile/v1/chat/completions"
    provider.on(server_error(), always=True)
    replies: list[Reply] = []

    def opened() -> bool:
        replies.append(middleman.ask(target, {"model": model}))
        return replies[-1].error_type == "hawk_breaker_open"

    until("the breaker opens", opened, timeout=20, period=0.1)
    assert {r.status for r in replies[:-1]} == {500}, "until then the provider's own answer"
    refused = replies[-1]
    assert refused.status == 503
    assert int(refused.header("retry-after") or 0) >= 1
    assert "The server had an error while processing" in refused.json()["error"]["message"]
    breaker = middleman.lane(model)["breaker"]
    assert breaker["open"]
    assert breaker["retry_at"]
    asked = len(provider.received)
    assert middleman.ask(target, {"model": model}).error_type == "hawk_breaker_open"
    assert len(provider.received) == asked, "an open breaker asks nobody"
    assert middleman.ask(target, {"model": f"{model}-other"}).status == 500, "other models have their own"
    provider.reset()
    until("it recovers", lambda: middleman.ask(target, {"model": model}).status == 200, period=0.2)
    assert not middleman.lane(model)["breaker"]["open"]


@pytest.mark.parametrize("answer", [rate_limited(None), context_overflow()], ids=["429", "400"])
def test_errors_that_a_working_provider_gives_do_not_open_the_breaker(
    middleman: Middleman, provider: Provider, model: str, answer: Answer
) -> None:
    provider.on(answer, always=True)
    target = "/fragile/v1/chat/completions"
    started = time.monotonic()
    while time.monotonic() - started < 1:
        assert middleman.ask(target, {"model": model}).status == answer.status
    assert not middleman.lane(model)["breaker"]["open"]


def test_a_wrong_key_opens_the_breaker_with_what_was_said(
    middleman: Middleman, provider: Provider, model: str
) -> None:
    provider.on(unauthorized(), always=True)
    target = "/fragile/v1/chat/completions"
    last: list[Reply] = []

    def opened() -> bool:
        last[:] = [middleman.ask(target, {"model": model})]
        return last[0].status == 503

    until("the breaker opens", opened, timeout=20, period=0.1)
    assert "Incorrect API key provided" in last[0].json()["error"]["message"]
