"""What the rules say of the middleman itself: away, refusing, queueing."""

from __future__ import annotations

import pytest

from hawk.core.diagnosis.evidence import Held, Job
from hawk.core.states import ActivityType
from tests.core.diagnosis import build
from tests.core.diagnosis.build import (
    NAME,
    alarms,
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


def test_a_middleman_that_is_away_explains_the_failures_of_calls() -> None:
    there = attempts(
        3, WAITS, retrying=retrying(2, 6, since=15, kind="connection_lost", error="APIConnectionError")
    )
    for away, severity in ((1, "info"), (15, "warning"), (60, "stuck")):
        job = Job(
            models_problem="the middleman does not answer: refused", models_problem_since=build.ago(away)
        )
        found = evidence(there, [model()], job=job)
        down = verdict(found, "down")
        assert down.severity == severity
        if severity != "info":
            assert [v.cause for v in verdicts(found) if v.layer != "healthy"] == ["down"]
            assert down.attempts == 3


@pytest.mark.parametrize(
    ("kind", "cause"), [("token_expired", "token_expired"), ("token_revoked", "token_revoked")]
)
def test_a_token_that_is_good_for_nothing_any_more(kind: str, cause: str) -> None:
    words = {"token_expired": "has expired", "token_revoked": "is revoked: the job has ended or was stopped"}[
        kind
    ]
    heard = Job(
        models_problem=f"The middleman answered 401: The token of job j {words}.",
        models_problem_since=build.ago(2),
    )
    said = verdicts(evidence(attempts(2), [model()], job=heard))
    assert (said[0].cause, said[0].severity, said[0].attempts) == (cause, "fatal", 2)
    refused = model(group(kind, 2, uuids=["u0"], status=401), name="openai/")
    assert verdicts(evidence(attempts(2), [refused]))[0].cause == cause
    over = ended("", f"Error code: 401 - {{'error': {{'type': 'hawk_{kind}', 'message': 'x'}}}}", 3)
    assert (verdicts(evidence((), (), ended=[over]))[0].cause, verdicts(evidence((), (), ended=[over]))[0].severity) == (
        cause, "fatal"
    )  # fmt: skip
    both = evidence(
        attempts(1), [model(group(kind, 9, uuids=["u0"], status=401), name="openai/")], ended=[over]
    )
    assert verdicts(both)[0].what.endswith("; 9 requests refused"), "those that ended attempts are among them"
    stopping = evidence(attempts(2), [refused], job=Job(stopping_since=build.ago(1)))
    assert alarms(stopping) == [], "a stop revokes it"


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("not_permitted", "model_not_permitted"),
        ("forbidden_address", "model_not_permitted"),
        ("replay_miss", "replay_miss"),
    ],
)
def test_what_it_refuses_for_one_model(kind: str, cause: str) -> None:
    found = verdicts(evidence(attempts(2), [model(group(kind, 2, uuids=["u0", "u1"], said="because"))]))[0]
    assert (found.cause, found.severity, found.subject, found.attempts) == (cause, "fatal", NAME, 2)
    assert "because" in found.what


def test_a_budget_that_is_used_up() -> None:
    found = verdicts(evidence(attempts(2), (), job=Job(exhausted="$20.01 of $20.00 are spent")))[0]
    assert (found.cause, found.severity, found.scope) == ("budget_exhausted", "fatal", "job")
    over = ended(
        "APIStatusError", "Error code: 402 - {'error': {'type': 'hawk_budget_exhausted', 'message': 'x'}}", 2
    )
    assert verdicts(evidence((), (), ended=[over]))[0].cause == "budget_exhausted"


def test_behind_an_open_breaker_is_what_the_provider_said() -> None:
    opened = lane(
        breaker_open=True,
        breaker_since=build.ago(30),
        breaker_retry_at=build.ago(-12),
        breaker_said="Internal error",
    )
    there = attempts(2, WAITS, retrying=retrying(3, 12, kind="breaker"))
    refused = group("breaker", 4, uuids=["u0", "u1"])
    known = verdicts(
        evidence(there, [model(group("server_error", 12, said="Internal error"), refused, lane=opened)])
    )
    assert (known[0].cause, known[0].severity, known[0].attempts) == ("server_error", "warning", 2)
    assert ("breaker_open", "info") in [(v.cause, v.severity) for v in known]
    unknown = verdicts(evidence(there, [model(refused, lane=opened)]))
    assert (unknown[0].cause, unknown[0].severity, unknown[0].clears) == (
        "breaker_open",
        "stuck",
        build.ago(-12),
    )
    opened.breaker_said = '{"error": {"type": "authentication_error", "message": "invalid x-api-key"}}'
    assert verdicts(evidence(there, [model(refused, lane=opened)]))[0].cause == "auth_rejected"


def test_a_queue_that_moves_is_no_trouble_however_long() -> None:
    others = [Held("j", 2, 400, 300.0, mine=True), Held("another job", 6, 900, 250.0)]
    crowd = [request(n, 300 + n, phase="waiting", place=n + 1) for n in range(50)]
    moving = model(open=crowd, lane=lane(waiting=1300, by_job=others, per_minute=30.0), ok=2)
    found = verdict(evidence(attempts(50), [moving]), "queue_wait")
    assert (found.severity, found.attempts) == ("info", 50)
    assert "6 by another job" in found.what
    assert alarms(evidence(attempts(50), [moving])) == []


def test_a_queue_that_stands_is_named_with_who_holds_it() -> None:
    held = [Held("j", 0, 2, 90.0, mine=True), Held("other", 8, 0)]
    stands = model(
        open=[request(n, 90, phase="waiting") for n in range(2)],
        lane=lane(waiting=2, by_job=held, per_minute=0.0),
    )
    found = verdict(evidence(attempts(2), [stands]), "queue_wait")
    assert (found.severity, found.attempts) == ("warning", 2)
    assert "8 by other" in found.what
    hole = model(
        open=[request(0, 90), request(1, 90, phase="waiting")],
        lane=lane(limit=1, waiting=1, per_minute=0.0),
        probe=probe(answered=False),
    )
    behind = verdicts(evidence(attempts(2), [hole]))
    assert (behind[0].cause, behind[0].severity) == ("black_hole", "stuck")
    assert [v.severity for v in behind if v.cause == "queue_wait"] in (["info"], [])


def test_faults_of_its_own_are_its_own_where_the_provider_answers() -> None:
    there = attempts(2, WAITS, retrying=retrying(2, 6, kind="internal", status=500))
    calls = group("internal", 6, uuids=["u0", "u1"], error="hawk_internal", status=500)
    sure = verdicts(evidence(there, [model(calls, direct=probe(answered=True))]))[0]
    assert (sure.cause, sure.severity, sure.attempts) == ("proxy_fault", "stuck", 2)
    assert verdicts(evidence(there, [model(calls)]))[0].severity == "warning"
