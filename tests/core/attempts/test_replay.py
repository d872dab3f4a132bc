"""What the other policies would have used."""

from __future__ import annotations

import pytest

from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.replay import replayed
from hawk.core.attempts.results import Outcome, Pair, Result, Usage
from tests.core.attempts.data import replay


def published(*, only_first: bool = False) -> list[Result]:
    return [
        Result(pair, k, Outcome.PASS if passed else Outcome.FAIL, duration=seconds)
        for pair, durations, passes in replay()
        for k, (seconds, passed) in enumerate(zip(durations, passes, strict=True), start=1)
        if k == 1 or not (only_first and passes[0])
    ]


def test_a_parallel_run_says_what_one_by_one_would_have_used() -> None:
    planned = [(pair, 2) for pair, _, _ in replay()]
    uses = replayed(planned, published(), Rules(Policy.PARALLEL), slots=474, predicted={})
    assert [use.policy for use in uses] == ["sequential", "parallel+cancel"]
    sequential, cancel = uses
    assert (sequential.attempts, cancel.attempts) == (284, 474)
    assert sequential.wall == pytest.approx(1603.7, abs=0.1)
    assert cancel.wall == pytest.approx(823.9, abs=0.1)
    assert sequential.seconds / 3600 == pytest.approx(24.24, abs=0.01)
    assert cancel.seconds / 3600 == pytest.approx(36.20, abs=0.01)


def test_attempts_that_never_ran_are_taken_to_be_like_the_others_of_their_pair() -> None:
    planned = [(pair, 2) for pair, _, _ in replay()]
    results = published(only_first=True)
    uses = replayed(planned, results, Rules(Policy.SEQUENTIAL), slots=474, predicted={})
    assert [(use.policy, use.attempts) for use in uses] == [
        ("parallel", 474),
        ("parallel+cancel", 474),
    ]
    assert uses[0].seconds / 3600 == pytest.approx(39.69, rel=0.03)


def test_tokens_and_money_are_means_of_the_pair() -> None:
    pair = Pair("t", "s", "m")
    known = [
        Result(pair, 1, Outcome.PASS, duration=1.0, usage={"m": Usage(total=100)}, cost=1.0),
        Result(pair, 2, Outcome.FAIL, duration=1.0, usage={"m": Usage(input=40, output=10)}, cost=2.0),
    ]
    [sequential, cancel] = replayed([(pair, 2)], known, Rules(Policy.PARALLEL), slots=2, predicted={})
    assert (cancel.tokens, cancel.cost) == (150, 3.0)
    assert (sequential.tokens, sequential.cost) == (75, 1.5)


def test_without_results_there_is_nothing_to_say() -> None:
    pair = Pair("t", "s", "m")
    lost = [Result(pair, 1, Outcome.INFRA_ERROR), Result(pair, 2, Outcome.CANCELED, duration=3.0)]
    assert replayed([(pair, 2)], lost, Rules(Policy.PARALLEL), slots=2, predicted={}) == []
    assert replayed([], [], Rules(), slots=1, predicted={}) == []
