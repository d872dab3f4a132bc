"""From what a person said about attempts to the part of a plan that says how they will run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from hawk.core.attempts.forecast import Forecaster
from hawk.core.attempts.history import Guess, History
from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.report import PolicyUse
from hawk.core.attempts.results import Pair, PassRule

SLOWER = 0.02
"""By how much a selective job may be predicted to end later than one that runs everything at once."""

_NOT_THE_OUTCOME = frozenset(
    {
        "name",
        "eval_set_id",
        "tags",
        "metadata",
        "runs",
        "epochs",
        "attempts",
        "engine",
        "runner",
        "secrets",
        "limit",
        "sample_shuffle",
        "acp_server",
        "max_connections",
        "adaptive_connections",
        "max_samples",
        "max_sandboxes",
        "max_subprocesses",
        "retry_attempts",
        "retry_on_error",
    }
)
"""Fields of an eval set that change how much runs and how fast, not what comes out of an attempt."""


class Way(NamedTuple):
    """How attempts will run.

    Attributes:
        predicted: Seconds that an attempt at each pair is expected to take, None where nobody knows.
        forecast: What this policy takes (first), and what the others would.
        known: Pairs of which history knows something.
    """

    rules: Rules
    predicted: list[float | None]
    forecast: list[PolicyUse]
    known: int


def rules_of(config: Mapping[str, Any]) -> Rules:
    """The policy that an eval set asks for.

    One by one is the default. `epochs` is Inspect's word for attempts that all run: with it they all do, at once, unless
    a policy is named.
    """
    said = config.get("attempts") or {}
    inspects = config.get("epochs") is not None or (config.get("runs") is None and said.get("runs") is None)
    policy = Policy(said.get("policy") or (Policy.PARALLEL if inspects else Policy.SEQUENTIAL))
    passing = said.get("pass") or {}
    return Rules(
        policy=policy,
        cancel_siblings=bool(said.get("cancel_siblings")),
        threshold=said.get("selective_above"),
        pass_rule=PassRule(passing.get("scorer"), passing.get("threshold", PassRule().threshold)),
    )


def plan_way(
    rules: Rules, pairs: Sequence[Pair], runs: Sequence[int], slots: int, history: History | None
) -> Way:
    """How the attempts of these pairs will run, and what that takes.

    Args:
        runs: Attempts of each pair.
        slots: Attempts at once.
        history: Earlier attempts; without any there is no forecast, and `selective` runs all at once.
    """
    guesses: list[Guess | None] = [history.guess(pair) if history else None for pair in pairs]
    known = sum(guess is not None for guess in guesses)
    predicted = [guess.seconds if guess else None for guess in guesses]
    if not known:
        return Way(rules, predicted, [], 0)
    forecaster = Forecaster(guesses, runs, slots)
    if rules.policy is Policy.SELECTIVE and rules.threshold is None:
        rules = msgspec.structs.replace(rules, threshold=forecaster.threshold(rules, slower=SLOWER))
    others = alternatives(rules) if max(runs, default=1) > 1 else []
    return Way(rules, predicted, [forecaster.use(way) for way in [rules, *others]], known)


def alternatives(rules: Rules) -> list[Rules]:
    """The policies that a plan and a report set beside the one that is used."""
    ways = [
        Rules(Policy.SEQUENTIAL, pass_rule=rules.pass_rule),
        Rules(Policy.PARALLEL, pass_rule=rules.pass_rule),
        Rules(Policy.PARALLEL, cancel_siblings=True, pass_rule=rules.pass_rule),
    ]
    return [way for way in ways if (way.policy, way.cancel_siblings) != (rules.policy, rules.cancel_siblings)]


def fingerprint_of(plan: str, sample: str | None) -> str:
    """Of one pair: the plan's, with the digest of what its sample was made from, where there is one."""
    return plan if sample is None else hashlib.sha256(f"{plan} {sample}".encode()).hexdigest()[:16]


def fingerprint(config: Mapping[str, Any]) -> str:
    """Of everything in an eval set that may change an outcome, 16 hexadecimal digits: equal means comparable."""
    kept = {key: value for key, value in config.items() if key not in _NOT_THE_OUTCOME and key[:4] != "log_"}
    kept["pass"] = (config.get("attempts") or {}).get("pass")
    text = json.dumps(kept, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
