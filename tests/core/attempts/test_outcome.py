"""From what happened to an outcome."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hawk.core.attempts.outcome import idle, judge
from hawk.core.attempts.results import Failure, Outcome, Pair, PassRule, as_number

AGENT, SCORER = Failure("ValueError", "x", "agent"), Failure("ValueError", "x", "scoring")
FACTS: dict[str, Any] = {"values": {}, "error": None, "canceled": False, "limit": None}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({"values": {"s": "C"}}, Outcome.PASS),
        ({"values": {"s": "I"}}, Outcome.FAIL),
        ({"values": {"s": "P"}}, Outcome.FAIL),
        ({"values": {"s": 1}}, Outcome.PASS),
        ({"values": {"s": 0.99}}, Outcome.FAIL),
        ({"values": {"s": True}}, Outcome.PASS),
        ({"values": {"s": {"a": 1, "b": 1}}}, Outcome.PASS),
        ({"values": {"s": {"a": 1, "b": 0}}}, Outcome.FAIL),
        ({"values": {"s": "C"}, "limit": "time"}, Outcome.PASS),
        ({"values": {"s": "I"}, "limit": "time"}, Outcome.TIMEOUT),
        ({"values": {"s": "I"}, "limit": "working"}, Outcome.TIMEOUT),
        ({"values": {"s": "I"}, "limit": "message"}, Outcome.LIMIT),
        ({"values": {}, "limit": "token"}, Outcome.LIMIT),
        ({"error": AGENT}, Outcome.INFRA_ERROR),
        ({"error": SCORER}, Outcome.SCORER_ERROR),
        ({"values": {"s": "C"}, "error": AGENT}, Outcome.INFRA_ERROR),
        ({"canceled": True}, Outcome.CANCELED),
        ({"values": {}}, Outcome.SCORER_ERROR),
        ({"values": {"s": "no number"}}, Outcome.SCORER_ERROR),
        ({"values": {"s": math.nan}}, Outcome.SCORER_ERROR),
        ({"values": {"s": "I"}, "idle": "nothing"}, Outcome.INFRA_ERROR),
        ({"values": {"s": "C"}, "idle": "nothing"}, Outcome.INFRA_ERROR),
    ],
)
def test_outcomes(facts: dict[str, Any], outcome: Outcome) -> None:
    verdict = judge(PassRule(), **{**FACTS, **facts})
    assert verdict.outcome is outcome
    assert (verdict.error is None) == (outcome not in (Outcome.INFRA_ERROR, Outcome.SCORER_ERROR))


def test_the_scorer_that_decides_can_be_named_and_its_threshold_set() -> None:
    values = {"first": 1.0, "second": 0.6}
    assert judge(PassRule("second", 0.5), **{**FACTS, "values": values}).outcome is Outcome.PASS
    assert judge(PassRule("second"), **{**FACTS, "values": values}).outcome is Outcome.FAIL
    missing = judge(PassRule("third"), **{**FACTS, "values": values})
    assert missing.outcome is Outcome.SCORER_ERROR
    assert missing.reason == "there is no score of 'third'"
    unscored = judge(PassRule(), **{**FACTS, "values": {"s": math.nan}, "unscored": "it took too long"})
    assert (unscored.outcome, unscored.reason) == (Outcome.SCORER_ERROR, "it took too long")


def test_nothing_done_is_told_apart_from_a_script() -> None:
    nothing: dict[str, Any] = {
        "model_tries": 0,
        "model_calls": 0,
        "tool_calls": 0,
        "sandbox_calls": 0,
        "usage": False,
    }
    assert idle(**nothing) == "no model call, no tool call, no command in the sandbox"
    assert idle(**{**nothing, "model_tries": 3}) == "none of 3 model calls was answered"
    assert idle(**{**nothing, "model_tries": 3, "sandbox_calls": 5}) is not None
    assert idle(**{**nothing, "model_tries": 3, "model_calls": 1}) is None
    assert idle(**{**nothing, "sandbox_calls": 1}) is None
    assert idle(**{**nothing, "usage": True}) is None


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("C", 1.0),
        ("yes", 1.0),
        ("False", 0.0),
        ("0.25", 0.25),
        (3, 3.0),
        (None, None),
        ("x", None),
        ([], None),
    ],
)
def test_scores_as_numbers(value: Any, number: float | None) -> None:
    assert as_number(value) == number


def test_directories_are_legible_unlike_any_other_and_never_lead_elsewhere() -> None:
    names = ["../../etc", "a/b", "a b", "", "x" * 400, "\n", "é", ".", "..", "a-b", "CON"]
    pairs = [Pair(task, sample, "m/x") for task in names for sample in names]
    directories = [pair.directory for pair in pairs]
    assert len(set(directories)) == len(pairs)
    for name in directories:
        assert name.isascii()
        assert "/" not in name
        assert not name.startswith(".")
        assert len(name) < 140
    assert Pair("coding", "add", "openai/gpt", "react").directory.startswith("coding-react-openai-gpt-add-")
