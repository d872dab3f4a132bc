"""What is said of attempts themselves: repetition, limits, scorers, and whom they wait for."""

from __future__ import annotations

from typing import Any

import pytest

from hawk.core.diagnosis.causes import Cause, Severity, Who
from hawk.core.diagnosis.diagnose import explain
from hawk.core.diagnosis.evidence import Repeat, Times, Try
from hawk.core.diagnosis.verdict import FixKind
from hawk.core.states import ActivityType, SamplePhase
from tests.core.diagnosis.build_attempts import (
    NOW,
    RULES,
    ago,
    call,
    ended,
    evidence,
    found,
    in_flight,
    only,
    process,
    wait,
)


def tries(count: int, error: str = "KeyError('answer 12')") -> list[Try]:
    return [Try(ago(100 - n), error.replace("12", str(n)), 60.0) for n in range(count)]


def test_the_same_error_at_every_try_is_a_loop_whatever_numbers_are_in_it() -> None:
    finding = only(evidence(in_flight(tries=tries(3))), Cause.RETRY_LOOP)
    assert (finding.severity, finding.held, finding.cost) == (Severity.WARNING, [0], 180.0)
    assert only(evidence(in_flight(tries=tries(6))), Cause.RETRY_LOOP).severity is Severity.STUCK
    assert found(evidence(in_flight(tries=tries(1))), Cause.RETRY_LOOP) == []
    mixed = [Try(ago(50), "KeyError('a')"), Try(ago(20), "ValueError('b')")]
    assert found(evidence(in_flight(tries=mixed)), Cause.RETRY_LOOP) == []


def test_attempts_that_ended_so_are_told_of_too_unless_a_cause_of_its_own_explains_them() -> None:
    agents = ended("boom", 6, phase="agent", retried=4, attempts=2)
    finding = only(evidence(ends=[agents], errored=2, completed=3), Cause.RETRY_LOOP)
    assert finding.ended == 2
    scorers = ended("no key", 3, phase="scoring", retried=2, attempts=1)
    causes = [v.cause for v in explain(evidence(ends=[scorers], errored=1, completed=2), NOW, RULES).verdicts]
    assert causes[0] == "scorer_error"


@pytest.mark.parametrize(
    ("count", "spread", "same", "severity"),
    [
        (3, 10.0, True, None),
        (4, 10.0, True, Severity.INFO),
        (6, 10.0, True, Severity.WARNING),
        (40, 60.0, True, Severity.STUCK),
        (8, 240.0, True, Severity.INFO),  # once in half a minute: it looks whether something is done
        (25, 600.0, True, Severity.WARNING),
        (20, 10.0, False, None),
    ],
)
def test_the_same_call_with_the_same_answer(
    count: int, spread: float, same: bool, severity: Severity | None
) -> None:
    repeat = Repeat("bash", '{"cmd": "ls"}', count, same, ago(spread))
    findings = found(evidence(in_flight(repeat=repeat)), Cause.AGENT_LOOPING)
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_a_limit_is_information_with_its_name_and_value() -> None:
    group = ended("exceeded 50000 tokens", 7, phase="agent", limit="token")
    finding = only(evidence(ends=[group], limit=7), Cause.LIMIT_HIT)
    assert (finding.severity, finding.subject, finding.ended) == (Severity.INFO, "token", 7)
    assert "50000" in finding.what
    assert finding.fix is not None
    assert finding.fix.kind is FixKind.RAISE_LIMIT


def scoring(quiet: float, **fields: Any) -> Severity | None:
    attempt = in_flight(
        waited=quiet,
        activity=ActivityType.SCORING,
        phase=SamplePhase.SCORING,
        scorer="graded",
        detail="scoring",
        **fields,
    )
    findings = found(evidence(attempt), Cause.SCORER_HUNG)
    return findings[0].severity if findings else None


def test_a_scorer_is_hung_when_nothing_of_it_moves() -> None:
    assert scoring(60, wait=wait("event", since=60)) is Severity.STUCK
    assert scoring(60, wait=wait("lock", since=60)) is Severity.STUCK
    assert scoring(60, processes=[process("pytest", 55.0, "its standard input")]) is Severity.STUCK
    assert scoring(60, wait=wait("timer", since=60)) is Severity.INFO
    assert scoring(60, wait=wait("network", since=60), calls=[call("m", 50.0, "Model")]) is Severity.INFO
    assert scoring(60, wait=wait("thread", since=60)) is Severity.INFO
    assert scoring(400, wait=wait("thread", since=400)) is Severity.STUCK
    assert scoring(600, processes=[process("pytest -q", 1.0, busy=0.9)]) is None
    assert scoring(30, wait=wait("event", since=30)) is None


def test_a_scorer_that_always_takes_long_is_not_hung() -> None:
    attempt = in_flight(
        waited=100.0,
        activity=ActivityType.SCORING,
        phase=SamplePhase.SCORING,
        scorer="slow",
        wait=wait("event"),
    )
    seen = evidence(attempt)
    seen.learnt.scorers = {"slow": Times(9, 90.0, 100.0, 120.0)}
    assert found(seen, Cause.SCORER_HUNG) == []


def test_errors_of_scorers_and_setups_are_told_apart_by_their_phase() -> None:
    failed = ended("'NoneType' object is not subscriptable", 4, phase="scoring")
    assert only(evidence(ends=[failed], errored=4), Cause.SCORER_ERROR).severity is Severity.FATAL
    assert (
        only(evidence(ends=[failed], errored=4, completed=4), Cause.SCORER_ERROR).severity is Severity.WARNING
    )
    assert found(evidence(ends=[failed], errored=4), Cause.SETUP_FAILED) == []


def test_waiting_for_a_person_is_information_for_who_can_answer() -> None:
    asked = in_flight(activity=ActivityType.APPROVAL, phase=SamplePhase.AWAITING_APPROVAL, detail="publish()")
    finding = only(evidence(asked), Cause.AWAITING_APPROVAL)
    assert (finding.severity, finding.who, finding.since) == (Severity.INFO, Who.OPERATOR, asked.since)
    own = in_flight(activity=ActivityType.SOLVER, wait=wait("future", label="an approval"))
    verdicts = explain(evidence(own), NOW, RULES).verdicts
    assert [v.cause for v in verdicts] == ["awaiting_approval"]
    question = in_flight(activity=ActivityType.QUESTION)
    assert only(evidence(question), Cause.AWAITING_INPUT).severity is Severity.INFO
