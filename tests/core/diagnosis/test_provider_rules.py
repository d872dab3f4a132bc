"""What the rules say of a provider that refuses, fails or is silent; and that they say nothing of one that is just slow."""

from __future__ import annotations

from typing import Any

import pytest

from hawk.core.diagnosis.evidence import Evidence
from hawk.core.diagnosis.verdict import FixKind
from hawk.core.states import ActivityType
from tests.core.diagnosis import build
from tests.core.diagnosis.build import (
    NAME,
    alarms,
    attempt,
    attempts,
    ended,
    evidence,
    group,
    lane,
    model,
    probe,
    request,
    retrying,
    verdict,
    verdicts,
)

WAITS = ActivityType.RETRY_WAIT
TRANSIENT = {
    "rate_limited": "rate_limited",
    "overloaded": "overloaded",
    "server_error": "server_error",
    "malformed": "malformed_response",
    "empty": "empty_output",
    "connect_refused": "connect_refused",
    "dns": "dns_or_tls",
    "tls": "dns_or_tls",
}
FINAL = {
    "auth_rejected": "auth_rejected",
    "no_key": "auth_rejected",
    "quota_exhausted": "quota_exhausted",
    "model_not_found": "model_not_found",
}


def failing(kind: str, *, waited: float = 12.0, since: float = 20.0, **more: Any) -> Evidence:
    """Four attempts, of which each request fails."""
    there = attempts(4, WAITS, retrying=retrying(3, waited, since=since, kind=kind))
    calls = group(kind, 12, since=since, uuids=[f"u{n}" for n in range(4)], said="its words")
    return evidence(there, [model(calls, since=since, **more)])


@pytest.mark.parametrize(("kind", "cause"), TRANSIENT.items())
def test_failures_in_a_row_are_a_warning_and_in_the_end_stuck(kind: str, cause: str) -> None:
    found = verdicts(failing(kind))[0]
    assert (found.cause, found.severity, found.attempts) == (cause, "warning", 4)
    assert found.clears == build.ago(-10)
    assert found.subject == NAME
    assert found.cost_hours == round(4 * 12 / 3600, 3)
    lasting = verdicts(failing(kind, since=400, waited=320))[0]
    assert (lasting.cause, lasting.severity) == (cause, "stuck")


@pytest.mark.parametrize("kind", TRANSIENT)
def test_failures_that_alternate_with_answers_are_progress(kind: str) -> None:
    """Many failures, and an answer a moment ago; at the end one attempt of 20 has failed once more and waits."""
    there = [attempt(0, WAITS, retrying=retrying(1, 4, since=3, kind=kind)), *attempts(20)[1:]]
    alternating = model(group(kind, 1, count=200, uuids=["u0"]), ok=3.5, since=3, recent="FS" * 20)
    burst = model(group(kind, 20, again=0, since=3, uuids=[f"u{n}" for n in range(20)]), ok=6, since=3)
    for one in (alternating, burst, model(group(kind, 0, count=50), ok=1)):
        found = evidence(there, [one], completed=3)
        assert alarms(found) == []
        assert all(v.layer in ("provider", "healthy", "scheduler") for v in verdicts(found))


def test_one_attempt_with_long_pauses_is_named_though_others_are_answered() -> None:
    alone = evidence([attempt(0, WAITS, retrying=retrying(2, 9, since=20, kind="overloaded"))], [
        model(group("overloaded", 6, since=20, uuids=["u0"]), since=20)
    ])  # fmt: skip
    assert alarms(alone) == [("overloaded", "warning")]
    assert verdict(alone, "overloaded").clears is not None
    patient = retrying(7, 360, since=500, next_in=300, kind="server_error")
    others = [attempt(0, WAITS, retrying=patient), *attempts(5)[1:]]
    stuck = verdict(
        evidence(others, [model(group("server_error", 6, since=500, uuids=["u0"]), ok=600)]), "server_error"
    )
    assert (stuck.severity, stuck.attempts) == ("stuck", 1)


@pytest.mark.parametrize(("kind", "cause"), FINAL.items())
def test_what_no_retry_helps_is_fatal_at_once(kind: str, cause: str) -> None:
    there = attempts(2, WAITS, retrying=retrying(2, 5, since=8, kind=kind))
    found = verdicts(evidence(there, [model(group(kind, 2, since=8, uuids=["u0", "u1"], said="no"))]))[0]
    assert (found.cause, found.severity, found.attempts, found.clears) == (cause, "fatal", 2, None)


@pytest.mark.parametrize(
    ("kind", "message", "cause"),
    [
        ("AuthenticationError", "Error code: 401 - {'error': {'message': 'Incorrect API key provided'}}", "auth_rejected"),
        ("", "Error code: 401 - {'error': {'type': 'hawk_no_key', 'message': 'no key'}}", "auth_rejected"),
        ("RateLimitError", "Error code: 429 - {'error': {'code': 'insufficient_quota'}}", "quota_exhausted"),
        ("NotFoundError", "Error code: 404 - {'error': {'message': 'The model `m` does not exist'}}", "model_not_found"),
        ("BadRequestError", "Error code: 400 - prompt is too long: 5 tokens > 4 maximum", "context_overflow"),
        ("BadRequestError", "Error code: 400 - tools.0: Input should be an object", "invalid_request"),
        ("BadRequestError", "Error code: 400 - flagged by our usage policies", "content_refused"),
        ("InternalServerError", "Error code: 500 - {}", "server_error"),
    ],
)  # fmt: skip
def test_errors_that_ended_attempts_name_the_cause(kind: str, message: str, cause: str) -> None:
    all_of_them = verdicts(evidence((), (), ended=[ended(kind, message, 5)]))[0]
    assert (all_of_them.cause, all_of_them.severity, all_of_them.attempts) == (cause, "fatal", 5)
    assert all_of_them.subject == NAME
    one_of_many = verdict(evidence(attempts(3), (), ended=[ended(kind, message)], completed=90), cause)
    own = cause in (
        "context_overflow",
        "invalid_request",
        "content_refused",
    )  # what one attempt asks is its affair
    assert (one_of_many.severity, one_of_many.attempts) == ("info" if own else "warning", 1)
    mine = evidence((), (), ended=[ended("ValueError", "not 401 but my own")])
    assert [v.cause for v in verdicts(mine) if v.layer in ("provider", "middleman")] == []


def test_an_attempt_that_asks_too_much_is_told_from_those_that_are_answered() -> None:
    mine = attempt(0, retrying=retrying(4, since=40, kind="context_overflow"))
    calls = group("context_overflow", 0, count=4, uuids=["u0"], upstream_status=400)
    found = evidence([mine, *attempts(6)[1:]], [model(calls, ok=1)])
    assert [(v.cause, v.severity, v.attempts) for v in verdicts(found) if v.layer == "provider"] == [
        ("context_overflow", "stuck", 1)
    ]
    refused = group("content_refused", 1, count=9, uuids=["u0"], upstream_status=200)
    assert alarms(evidence(attempts(2), [model(refused, ok=2)])) == []


def test_two_providers_that_fail_differently_have_a_verdict_each() -> None:
    theirs = "anthropic/claude"
    there = [
        *attempts(2, WAITS, retrying=retrying(3, 9, since=15, kind="server_error")),
        attempt(2, model=theirs, retrying=retrying(2, 5, since=15, kind="auth_rejected", model=theirs)),
    ]
    models = [
        model(group("server_error", 9, since=15, uuids=["u0", "u1"]), since=15),
        model(group("auth_rejected", 2, since=15, uuids=["u2"]), name=theirs, since=15),
    ]
    found = {
        v.cause: (v.subject, v.attempts) for v in verdicts(evidence(there, models)) if v.layer == "provider"
    }
    assert found == {"auth_rejected": (theirs, 1), "server_error": (NAME, 2)}


def test_a_pause_that_the_provider_asks_for_explains_the_queue() -> None:
    paused = lane(paused_until=build.ago(-240), paused_why="retry_after", in_flight=0, waiting=3)
    calls = group("rate_limited", 1, since=30, uuids=["u0"], said="slow")
    there = attempts(3)
    found = evidence(
        there, [model(calls, since=30, lane=paused, open=[request(n, 30, phase="waiting") for n in range(3)])]
    )
    first, *others = verdicts(found)
    assert (first.cause, first.severity, first.attempts, first.clears) == (
        "rate_limited",
        "warning",
        3,
        build.ago(-240),
    )
    assert "queue_wait" not in [v.cause for v in others]


# --- silence


def silent(quiet: float, count: int = 1, **more: Any) -> Evidence:
    requests = {k: more.pop(k) for k in ("stream", "reasoning", "phase", "bytes") if k in more}
    open_ = [request(n, quiet, **requests) for n in range(count)]
    return evidence(attempts(count), [model(open=open_, lane=lane(in_flight=count), **more)])


def test_silence_is_named_within_a_minute_and_no_alarm_while_it_can_be_a_long_answer() -> None:
    assert [v for v in verdicts(silent(15)) if v.layer == "provider"] == []
    suspected = verdicts(silent(50, probe=probe(answered=True)))[0]
    assert (suspected.cause, suspected.severity) == ("black_hole", "info")
    assert suspected.next == f"hawk probe {NAME} --job j"
    assert verdicts(silent(42, stream=True))[0].cause == "black_hole"
    assert verdicts(silent(400, probe=probe(answered=True)))[0].severity == "info"


def test_a_silence_whose_provider_does_not_answer_a_free_question_is_a_black_hole() -> None:
    found = verdicts(silent(50, 4, probe=probe(answered=False)))[0]
    assert (found.cause, found.severity, found.attempts) == ("black_hole", "stuck", 4)
    assert found.fix is not None
    assert found.fix.kind is FixKind.REQUEUE
    busy = silent(50, probe=probe(answered=False), name="llama-cpp-python/x")
    assert alarms(busy) == [], "such a server answers nothing while it generates"


def test_silence_beyond_what_this_model_takes_grows_to_stuck() -> None:
    quick = [0.9, 1.0, 1.1, 2.0] * 3
    assert verdicts(silent(70, 3, ok_seconds=quick, ok=100))[0].severity == "warning"
    assert verdicts(silent(100, 3, ok_seconds=quick, ok=120))[0].severity == "stuck"
    assert alarms(silent(70, 3, ok_seconds=quick, ok=100, probe=probe(answered=True))) == []
    assert (
        verdicts(silent(200, 3, ok_seconds=quick, ok=250, probe=probe(answered=True)))[0].severity == "stuck"
    )
    assert alarms(silent(100, 1, ok_seconds=quick, ok=5)) == [], "others are answered meanwhile"
    assert verdicts(silent(700, stream=False))[0].severity == "warning"
    assert verdicts(silent(200, stream=True))[0].severity == "warning"


@pytest.mark.parametrize(
    "found",
    [
        silent(300, 5, reasoning=True, probe=probe(answered=True)),
        silent(300, 5, ok_seconds=[200.0, 310.0, 250.0], ok=10),
        silent(12, 5, phase="answering", bytes=40_000, ok_seconds=[1.0] * 5, ok=400),
        silent(25, 5, phase="answering", bytes=10),
    ],
    ids=["reasoning", "usual for the model", "bytes keep coming", "a pause in a stream"],
)
def test_long_generations_are_no_alarm(found: Evidence) -> None:
    for one in found.models[0].open:
        one.upstream_age = 300.0
    assert [(v.cause, v.severity) for v in verdicts(found) if v.layer == "provider"] == [
        ("slow_generation", "info")
    ]


def test_calls_that_are_cut_off_again_and_again_are_a_black_hole_or_a_stall() -> None:
    for kind, cause in (("first_byte_timeout", "black_hole"), ("idle_timeout", "stream_stalled")):
        there = attempts(2, WAITS, retrying=retrying(2, 5, kind=kind))
        found = verdicts(evidence(there, [model(group(kind, 4, uuids=["u0", "u1"]))]))[0]
        assert (found.cause, found.severity, found.attempts) == (cause, "stuck", 2)


def test_streams_that_stop_half_way() -> None:
    for quiet, severity in ((40, "info"), (100, "warning"), (200, "stuck")):
        found = verdicts(silent(quiet, 2, phase="answering", bytes=900, stream=True))[0]
        assert (found.cause, found.severity) == ("stream_stalled", severity), quiet
    dead = verdicts(silent(50, 2, phase="answering", bytes=900, probe=probe(answered=False)))[0]
    assert (dead.cause, dead.severity) == ("stream_stalled", "stuck")


def test_calls_past_the_middleman_are_judged_by_their_age() -> None:
    there = attempts(2, since=build.ago(50))
    quiet = evidence(there, [model(past=True, direct=probe(answered=True))])
    assert [(v.cause, v.severity) for v in verdicts(quiet) if v.layer == "provider"] == [
        ("black_hole", "info")
    ]
    dead = verdicts(evidence(there, [model(past=True, direct=probe(answered=False))]))[0]
    assert (dead.cause, dead.severity, dead.attempts) == ("black_hole", "stuck", 2)
    assert alarms(evidence(attempts(2, since=build.ago(50)), ())) == []


def test_calls_that_die_at_one_age_are_a_clients_time_out() -> None:
    for ages, severity in (([30.0, 30.1], "warning"), ([30.2, 30.0, 30.1], "stuck")):
        calls = group("client_gone", len(ages), again=1, seconds=[3.0, *ages], uuids=["u0"])
        found = verdicts(evidence(attempts(1), [model(calls, probe=probe(answered=True))]))[0]
        assert (found.cause, found.severity) == ("client_timeout_too_short", severity)
        assert found.fix is not None
        assert (found.fix.subject, found.fix.value) == ("attempt_timeout", 120.0)
    for harmless in (
        group("client_gone", 3, again=2, seconds=[5.0, 40.0, 12.0], uuids=["u0"]),
        group("client_gone", 3, again=0, seconds=[30.0, 30.0, 30.0]),
        group("client_gone", 0, count=3, seconds=[30.0, 30.0, 30.0], uuids=["u0"]),
    ):
        assert alarms(evidence(attempts(3), [model(harmless, ok=2)])) == []
