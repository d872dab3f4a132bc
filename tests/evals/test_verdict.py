"""What a scorer returns, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.evals.errors import ScorerError
from hawk.evals.scorer import as_score
from hawk.evals.verdict import Judged, Verdict, cut, parse_answer

CHECKS = st.lists(
    st.fixed_dictionaries(
        {"name": st.text(), "passed": st.booleans()}, optional={"notes": st.text() | st.none()}
    ),
    min_size=1,
    max_size=20,
)


@given(CHECKS, st.booleans() | st.none())
def test_the_scorer_decides_and_else_every_check_must_have_passed(
    checks: list[Any], passed: bool | None
) -> None:
    verdict = parse_answer({"checks": checks} if passed is None else {"checks": checks, "passed": passed})
    assert verdict.passed is (all(c["passed"] for c in checks) if passed is None else passed)
    assert [check.passed for check in verdict.checks] == [c["passed"] for c in checks]
    assert len(verdict.explanation) <= 1000


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "not NoneType"),
        (True, "not bool"),
        ([], "not list"),
        ({}, "neither 'passed' nor any 'checks'"),
        ({"checks": []}, "neither"),
        ({"passed": 1}, "no verdict"),
        ({"passed": "yes"}, "no verdict"),
        ({"passed": True, "score": 1}, "score"),
        ({"checks": [{"name": "a"}]}, "passed"),
        ({"checks": [{"name": 3, "passed": True}]}, "name"),
        ({"checks": [{"name": "a", "passed": True, "why": "x"}]}, "why"),
        ({"checks": [{"name": "a", "passed": True}] * 501}, "501 checks"),
        ({1: 2}, "no verdict"),
    ],
)
def test_anything_else_is_the_scorers_error(answer: Any, words: str) -> None:
    with pytest.raises(ScorerError, match=words):
        parse_answer(answer)


def test_the_explanation_names_the_checks_that_failed() -> None:
    failed = {"name": "it runs", "passed": False, "notes": "exit code 3"}
    other = {"name": "it is fast", "passed": False}
    fine = {"name": "it is there", "passed": True}
    assert parse_answer({"checks": [fine, failed, other]}).explanation == (
        "2 of 3 checks failed: it runs (exit code 3); it is fast"
    )
    assert parse_answer({"checks": [fine]}).explanation == "1 of 1 checks passed"
    assert parse_answer({"passed": False, "checks": [fine]}).explanation == "failed"
    assert parse_answer({"passed": True}).explanation == "passed"


def test_inspect_gets_the_checks_and_the_judges_name() -> None:
    verdict = parse_answer({"passed": False, "checks": [{"name": "a", "passed": False}]})
    plain = as_score(verdict)
    assert (plain.value, plain.metadata) == ("I", {"checks": [{"name": "a", "passed": False, "notes": ""}]})
    judged = as_score(Verdict(True, (), (Judged(True, "well said", "provider/m"),)))
    assert judged.value == "C"
    assert judged.metadata == {
        "checks": [],
        "judge": {"model": "provider/m", "verdicts": [{"passed": True, "notes": "well said"}]},
    }


@given(st.text(), st.integers(1, 50))
def test_cut_text_is_never_longer_and_begins_the_same(text: str, most: int) -> None:
    short = cut(text, most)
    assert len(short) <= most
    assert short == text or (short[-1] == "…" and text.startswith(short[:-1]))
