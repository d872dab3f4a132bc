"""Attempts of one pair that end together, a pass that comes while it is being canceled, samples that nobody planned."""

from __future__ import annotations

import pytest

from hawk.core.attempts.results import Outcome
from tests.chaos.attempts.conftest import Stage
from tests.chaos.attempts.test_kills import check_against_logs
from tests.system import until

pytestmark = pytest.mark.slow

CANCELING = {"policy": "parallel", "cancel_siblings": True}


def test_an_attempt_that_passes_while_its_cancel_is_under_way_has_passed(stage: Stage) -> None:
    script = {"a": [(2.0, "pass"), (0.1, "late"), (60.0, "fail")]}
    stage.play("late", script, CANCELING)
    end = stage.system.finish("late")
    assert (end.status, end.progress.completed, end.progress.canceled) == ("complete", 2, 1)
    assert stage.outcomes("late") == {"a/1": "pass", "a/2": "pass", "a/3": "canceled"}
    results = stage.results("late")
    first, second = results["one/a/1"], results["one/a/2"]
    assert (first.ended_at or "") < (second.ended_at or "")
    assert second.scores["judge"].value == "C"
    assert second.reason is None
    assert results["one/a/3"].reason == "not needed: attempt 1 passed"
    assert end.tasks[0].pairs.tally == {"2/2": 1}
    assert end.tasks[0].pairs.not_needed == 1
    check_against_logs(stage, "late", results)


def test_of_attempts_that_pass_together_each_passes_or_is_canceled(stage: Stage) -> None:
    script = {f"p{i}": [(0.5, "pass")] * 3 for i in range(6)}
    stage.play("together", script, CANCELING)
    end = stage.system.finish("together")
    assert (end.status, end.reason) == ("complete", None)
    results = stage.results("together")
    for sample in script:
        mine = [results.get(f"one/{sample}/{k}") for k in (1, 2, 3)]
        outcomes = [result.outcome for result in mine if result is not None]
        assert Outcome.PASS in outcomes
        assert set(outcomes) <= {Outcome.PASS, Outcome.CANCELED}
        for result in mine:
            if result is not None and result.outcome is Outcome.CANCELED:
                assert (result.reason or "").startswith("not needed: attempt ")
                assert result.scores == {}
    pairs = end.tasks[0].pairs
    assert (pairs.passed, pairs.failed) == (6, 0)
    passes = sum(result.passed for result in results.values())
    assert end.progress.completed == passes
    assert end.progress.canceled == pairs.not_needed == 18 - passes
    check_against_logs(stage, "together", results)
    until("nothing is left", lambda: stage.system.leftovers("together") == [])
