"""From a person's words to the policy of a plan."""

from __future__ import annotations

from typing import Any

import pytest

from hawk.core.attempts.planning import alternatives, fingerprint, plan_way, rules_of
from hawk.core.attempts.policy import Policy, Rules
from tests.core.attempts.data import history, replay


@pytest.mark.parametrize(
    ("config", "rules"),
    [
        ({}, Rules(Policy.PARALLEL)),
        ({"runs": 2}, Rules(Policy.SEQUENTIAL)),
        ({"attempts": {"runs": 2}}, Rules(Policy.SEQUENTIAL)),
        ({"epochs": {"epochs": 2}}, Rules(Policy.PARALLEL)),
        ({"epochs": {"epochs": 2}, "attempts": {"policy": "sequential"}}, Rules(Policy.SEQUENTIAL)),
        (
            {"runs": 2, "attempts": {"policy": "parallel", "cancel_siblings": True}},
            Rules(Policy.PARALLEL, cancel_siblings=True),
        ),
        (
            {"runs": 2, "attempts": {"policy": "selective", "selective_above": 9}},
            Rules(Policy.SELECTIVE, threshold=9),
        ),
    ],
)
def test_policies(config: dict[str, Any], rules: Rules) -> None:
    assert rules_of(config) == rules


def test_when_an_attempt_has_passed() -> None:
    rule = rules_of({"attempts": {"pass": {"scorer": "quality", "threshold": 0.7}}}).pass_rule
    assert (rule.scorer, rule.threshold) == ("quality", 0.7)
    assert rules_of({}).pass_rule.threshold == 1.0


def test_without_history_there_is_no_forecast_and_selective_runs_all_at_once() -> None:
    pairs = [pair for pair, _, _ in replay()]
    way = plan_way(Rules(Policy.SELECTIVE), pairs, [2] * len(pairs), 250, None)
    assert (way.forecast, way.known) == ([], 0)
    assert not way.rules.one_by_one(None)


def test_with_history_the_plan_chooses_the_threshold_and_sets_the_others_beside_it() -> None:
    pairs = [pair for pair, _, _ in replay()]
    way = plan_way(Rules(Policy.SELECTIVE, cancel_siblings=True), pairs, [2] * len(pairs), 250, history())
    assert way.rules.threshold is not None
    assert 200 < way.rules.threshold < 350
    assert [use.policy for use in way.forecast] == [
        "selective+cancel",
        "sequential",
        "parallel",
        "parallel+cancel",
    ]
    hours = [use.seconds for use in way.forecast]
    assert hours[1] < hours[0] < hours[3] < hours[2]


def test_a_threshold_that_was_given_stays() -> None:
    pairs = [pair for pair, _, _ in replay()]
    rules = Rules(Policy.SELECTIVE, threshold=123.0)
    assert plan_way(rules, pairs, [2] * len(pairs), 250, history()).rules == rules


def test_alternatives_leave_out_what_is_used() -> None:
    used = Rules(Policy.PARALLEL)
    assert used not in alternatives(used)
    assert len(alternatives(used)) == 2


def test_fingerprints_tell_what_may_change_an_outcome_from_what_does_not() -> None:
    base: dict[str, Any] = {"tasks": ["a"], "models": ["m"], "time_limit": 10}
    same: list[dict[str, Any]] = [
        {"runs": 3},
        {"max_samples": 1},
        {"log_level": "debug"},
        {"attempts": {"policy": "parallel"}},
    ]
    assert {fingerprint({**base, **more}) for more in same} == {fingerprint(base)}
    other: list[dict[str, Any]] = [
        {"time_limit": 11},
        {"models": ["n"]},
        {"attempts": {"pass": {"threshold": 0.5}}},
    ]
    assert len({fingerprint({**base, **more}) for more in [{}, *other]}) == 4
