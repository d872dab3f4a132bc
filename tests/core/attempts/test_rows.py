"""One pair, from its attempts: passed, failed or undecided, and what stands for it."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hawk.core.attempts.results import Check, Failure, Outcome, Scored, Usage, Workspace
from tests.core.attempts.made import P, reported, result, row_of

FINAL = [outcome for outcome in Outcome if outcome is not Outcome.MISSING]
NO_RESULT = [outcome for outcome in FINAL if not outcome.produced]


@given(st.lists(st.sampled_from(FINAL), min_size=1, max_size=5))
def test_a_pair_passes_by_any_attempt_and_fails_only_by_a_result(outcomes: list[Outcome]) -> None:
    report = row_of(*outcomes)
    row = report.pairs[0]
    assert (row.passed is True) == (Outcome.PASS in outcomes)
    assert (row.passed is None) == (not any(o.produced for o in outcomes))
    assert row.final
    assert report.complete
    assert (report.passed, report.failed, report.undecided) == (
        row.passed is True,
        row.passed is False,
        row.passed is None,
    )


@given(st.lists(st.sampled_from(Outcome), min_size=1, max_size=5), st.randoms())
def test_the_order_of_attempts_changes_no_verdict(outcomes: list[Outcome], rng: random.Random) -> None:
    shuffled = rng.sample(outcomes, len(outcomes))
    assert row_of(*outcomes).pairs[0].passed == row_of(*shuffled).pairs[0].passed


@given(st.lists(st.sampled_from(Outcome), max_size=5), st.booleans())
def test_one_more_pass_makes_every_pair_passed(outcomes: list[Outcome], cancels: bool) -> None:
    assert row_of(*outcomes, Outcome.PASS, cancels=cancels).pairs[0].passed is True


@given(st.lists(st.sampled_from(Outcome), min_size=1, max_size=4), st.sampled_from(NO_RESULT), st.booleans())
def test_an_attempt_without_a_result_is_never_counted_as_a_fail(
    outcomes: list[Outcome], other: Outcome, cancels: bool
) -> None:
    before, after = row_of(*outcomes, cancels=cancels), row_of(*outcomes, other, cancels=cancels)
    assert after.pairs[0].passed == before.pairs[0].passed
    assert after.pairs[0].produced == before.pairs[0].produced
    assert after.pass_at_1 == before.pass_at_1
    assert after.any_pass == before.any_pass


def test_a_pair_is_final_as_soon_as_it_can_be() -> None:
    def state(*outcomes: bool) -> tuple[bool | None, bool]:
        row = row_of(*outcomes, planned=2).pairs[0]
        return row.passed, row.final

    assert state() == (None, False)
    assert state(False) == (None, False)
    assert state(True) == (True, True)
    assert state(False, False) == (False, True)


def test_an_attempt_recorded_as_missing_is_still_to_come() -> None:
    row = row_of(False, Outcome.MISSING).pairs[0]
    assert (row.passed, row.final) == (None, False)


def test_a_pair_without_any_result_is_an_error_that_names_it() -> None:
    throttled = result(P, 1, Outcome.INFRA_ERROR, error=Failure("RateLimitError", "429 slow down\nmore"))
    report = reported([(P, 3)], [throttled])
    error = (
        "t · openai/m · 1: none of 3 planned attempts has a result: 1 infra_error, 2 missing; "
        "the last: RateLimitError: 429 slow down"
    )
    assert report.unfinished == {"t · openai/m · 1": error}
    assert report.pairs[0].error == error
    assert (report.failed, report.undecided) == (0, 1)
    assert report.any_pass is None


def test_a_pair_with_a_result_is_no_error() -> None:
    assert row_of(False, Outcome.INFRA_ERROR).unfinished == {}


def test_the_representative_is_the_first_pass_else_the_first_result() -> None:
    assert row_of(Outcome.INFRA_ERROR, False, True, True).pairs[0].representative == 3
    assert row_of(Outcome.CANCELED, Outcome.TIMEOUT, False).pairs[0].representative == 2
    assert row_of(Outcome.CANCELED).pairs[0].representative is None


def test_checks_and_explanation_are_the_deciding_scorers() -> None:
    checks = (Check("compiles", True), Check("tests", False, "2 of 3"))
    scores = {
        "style": Scored(value=1.0, explanation="tidy"),
        "tests": Scored(value="I", explanation="x" * 1000, checks=checks),
    }
    row = reported([(P, 1)], [result(P, 1, False, scores=scores, score=0.0)]).pairs[0]
    assert row.checks == checks
    assert row.explanation is not None
    assert row.explanation.startswith("xxx")
    assert len(row.explanation) == 300


def test_counts_of_attempts_are_kept_apart() -> None:
    results = [
        result(P, 1, False),
        result(P, 2, True),
        result(P, 3, Outcome.CANCELED),
        result(P, 4, Outcome.CANCELED, started_at=None),
        result(P, 5, Outcome.SCORER_ERROR),
    ]
    row = reported([(P, 6)], results).pairs[0]
    assert (row.planned, row.run, row.produced, row.passes, row.canceled) == (6, 4, 2, 1, 2)
    assert [a.outcome for a in row.attempts] == [*(r.outcome for r in results), Outcome.MISSING]


def test_an_attempts_row_says_what_it_took_and_why_it_ended() -> None:
    known = result(
        P,
        1,
        Outcome.INFRA_ERROR,
        usage={"m": Usage(input=3, output=4), "n": Usage(total=10)},
        cost=0.5,
        workspace=Workspace(1, 2, 3),
        uuid="u",
        error=Failure("Boom", "first\nsecond"),
    )
    attempt = reported([(P, 1)], [known]).pairs[0].attempts[0]
    assert (attempt.tokens, attempt.cost, attempt.workspace, attempt.uuid) == (17, 0.5, True, "u")
    assert attempt.reason == "Boom: first"
