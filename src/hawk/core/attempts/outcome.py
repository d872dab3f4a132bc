"""From what happened to an attempt to its outcome."""

from __future__ import annotations

from typing import Any, NamedTuple

from hawk.core.attempts.results import Failure, Outcome, PassRule

TIME_LIMITS = frozenset({"time", "working"})

SCORING = "scoring"
"""`Failure.phase` of what failed after the agent was done."""


class Verdict(NamedTuple):
    """An outcome, the number that decided, and what went wrong if something did."""

    outcome: Outcome
    score: float | None
    error: Failure | None = None
    reason: str | None = None


def judge(
    rule: PassRule,
    *,
    values: dict[str, Any],
    error: Failure | None,
    canceled: bool,
    limit: str | None,
    limit_reason: str | None = None,
    idle: str | None = None,
    unscored: str | None = None,
) -> Verdict:
    """The outcome of one attempt.

    A pass is a pass whatever ended the attempt: an agent that ran into its limit of time may have done its work, and one
    whose cancel came too late has passed.

    Args:
        rule: When an attempt has passed.
        values: The scorers' values by name.
        error: What went wrong, or None.
        canceled: It was interrupted.
        limit: Inspect's name of the limit that ended it, or None.
        idle: Why the agent can have done nothing at all, or None: then its score says nothing about it.
        unscored: What the deciding scorer says of why it gave no number, if it says so.
    """
    number = rule.number(values)
    if error is not None:
        scorer = error.phase == SCORING
        return Verdict(Outcome.SCORER_ERROR if scorer else Outcome.INFRA_ERROR, None, error)
    if canceled:
        return Verdict(Outcome.CANCELED, None)
    if idle is not None:
        return Verdict(Outcome.INFRA_ERROR, None, Failure("NothingDone", idle), idle)
    if rule.passes(number):
        return Verdict(Outcome.PASS, number, reason=limit_reason)
    if limit in TIME_LIMITS:
        return Verdict(Outcome.TIMEOUT, number, reason=limit_reason)
    if limit is not None:
        return Verdict(Outcome.LIMIT, number, reason=limit_reason)
    if number is None:
        missing = rule.scorer if rule.scorer is not None and rule.scorer not in values else None
        what = f"there is no score of {missing!r}" if missing else unscored or "no score that is a number"
        return Verdict(Outcome.SCORER_ERROR, None, Failure("NoScore", what, SCORING), what)
    return Verdict(Outcome.FAIL, number)


def idle(
    *, model_tries: int, model_calls: int, tool_calls: int, sandbox_calls: int, usage: bool
) -> str | None:
    """Why an agent can have done nothing at all; None when it did something.

    Without a call there may be an agent that needs none: a script that works in the sandbox counts as work.
    """
    if model_calls or usage:
        return None
    if model_tries:
        return f"none of {model_tries} model calls was answered"
    return None if tool_calls or sandbox_calls else "no model call, no tool call, no command in the sandbox"
