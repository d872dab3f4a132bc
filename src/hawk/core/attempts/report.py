"""What is said about a job's attempts, and about two jobs side by side: the data. Who makes it: `aggregate`, `compare`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hawk.core.attempts.results import Check, Outcome, Pair, Usage


class Estimate(msgspec.Struct, frozen=True):
    """A rate with its 95 % confidence interval, clustered by sample; `n` pairs or attempts that it is made of."""

    value: float
    low: float
    high: float
    n: int


class AttemptRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt of a pair, short."""

    attempt: int
    outcome: Outcome
    duration: float | None = None
    tokens: int = 0
    cost: float | None = None
    reason: str | None = None
    started_at: str | None = None
    workspace: bool = False
    uuid: str | None = None


class PairRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pair.

    Attributes:
        passed: True, False, or None while neither is certain (or nothing produced a result).
        final: Whether attempts that are still to come can't change that.
        representative: Number of the attempt that stands for the pair: the first that passed, else the first with a result.
        planned, run, produced, passes, canceled: Counts of attempts. `run`: those that began.
        checks: Of the representative.
        explanation: Of the representative's deciding scorer, short.
        error: Why there is no result at all, naming the pair.
    """

    pair: Pair
    passed: bool | None
    final: bool
    planned: int
    run: int
    produced: int
    passes: int
    canceled: int
    attempts: list[AttemptRow]
    representative: int | None = None
    checks: tuple[Check, ...] = ()
    explanation: str | None = None
    error: str | None = None
    directory: str = ""


class PolicyUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a policy takes, predicted or replayed.

    Attributes:
        wall: Seconds from the first start to the last end.
        attempts: That begin.
        seconds: Of sandboxes.
        cost: Dollars for models, where it can be said.
        waves: Times that all slots are filled anew, about.
        slots: Attempts at once.
        threshold: For selective: seconds above which a pair's attempts run at once.
    """

    policy: str
    wall: float
    attempts: int
    seconds: float
    tokens: int | None = None
    cost: float | None = None
    waves: int = 1
    slots: int = 0
    threshold: float | None = None


class GroupRow(msgspec.Struct, frozen=True):
    """The same figures for a part of the job: one model, one task, one agent or one suite."""

    kind: str
    name: str
    pairs: int
    passed: int
    failed: int
    undecided: int
    any_pass: Estimate | None
    pass_at_1: Estimate | None


class Report(msgspec.Struct):
    """A job's attempts.

    Attributes:
        complete: Whether every pair is final.
        pairs: In the plan's order.
        tally: How many pairs have passed how many of their attempts, as "1/2": 22. Only pairs of which all k produced
            a result; the others are in `incomplete`.
        any_pass: Share of pairs passed, among those decided.
        pass_at_1: Mean over attempts that produced a result.
        pass_at_k: Unbiased estimator (Chen et al. 2021), by k; empty when `biased`.
        pass_pow_k: Chance that k attempts all pass, by k; empty when `biased`.
        biased: Why pass@k can't be given (a policy that cancels or stops early), or None.
        incomplete: Pairs left out of pass@k, with what is missing of them.
        unfinished: Pairs without any result: errors that name them.
        saved: Pairs that only a later attempt saved.
        outcomes: Attempts by outcome.
        infra_errors: Infrastructure errors by their first line: how often.
        wall: Seconds from the first start to the last end; `slowest` the longest attempt's.
        usage: Tokens by model.
        actual: What was used; `policies` what the others would have, replayed from measured durations.
        fingerprints: Of the pair that has the most: several mean that what may change an outcome was changed meanwhile.
        problems: Files that could not be read, with the reason.
    """

    job_id: str
    policy: str
    runs: int
    complete: bool
    pairs: list[PairRow]
    passed: int
    failed: int
    undecided: int
    tally: dict[str, int] = {}
    any_pass: Estimate | None = None
    pass_at_1: Estimate | None = None
    pass_at_k: dict[int, Estimate] = {}
    pass_pow_k: dict[int, Estimate] = {}
    biased: str | None = None
    incomplete: dict[str, str] = {}
    unfinished: dict[str, str] = {}
    saved: list[str] = []
    groups: list[GroupRow] = []
    outcomes: dict[str, int] = {}
    infra_errors: dict[str, int] = {}
    wall: float | None = None
    slowest: float | None = None
    usage: dict[str, Usage] = {}
    actual: PolicyUse | None = None
    policies: list[PolicyUse] = []
    problems: list[str] = []
    fingerprints: list[str] = []


class Judgement(StrEnum):
    """What a difference between two runs is."""

    NOISE = "noise"
    THROTTLING = "throttling"
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    UNDERPOWERED = "underpowered"


class Concentration(msgspec.Struct, frozen=True):
    """Whether PASS→FAIL flips lie together: `p` of Fisher's exact test of `name` against the rest (None: too few)."""

    kind: str  # provider, model, agent, task, time
    name: str
    lost: int
    pairs: int
    p: float | None


class Comparison(msgspec.Struct):
    """Two runs, pair by pair.

    Attributes:
        common: Pairs decided in both. `only_a`, `only_b`: pairs that the other does not have.
        lost, gained: Pairs that went PASS→FAIL, FAIL→PASS.
        p: Exact McNemar, two-sided.
        expected_flips: How many flips two identical runs would show, by the attempts themselves; with its standard
            deviation. None where no pair has two attempts with results.
        smallest: The least number of net losses that would be significant (p < 0.05) among as many flips as that noise
            makes.
        errors_a, errors_b: Infrastructure errors by provider; `retries_a`, `retries_b`: provider retries by provider and kind.
        judgement: The verdict; `because` its evidence, one line each; `blame` the provider that throttled.
        different: The runs' configurations differ in what may change an outcome.
    """

    a: str
    b: str
    common: int
    both_passed: int
    both_failed: int
    lost: list[str]
    gained: list[str]
    p: float
    judgement: Judgement
    because: list[str] = []
    blame: str | None = None
    expected_flips: float | None = None
    expected_sd: float | None = None
    smallest: int | None = None
    concentration: list[Concentration] = []
    only_a: list[str] = []
    only_b: list[str] = []
    undecided: list[str] = []
    errors_a: dict[str, int] = {}
    errors_b: dict[str, int] = {}
    retries_a: dict[str, dict[str, int]] = {}
    retries_b: dict[str, dict[str, int]] = {}
    different: bool = False
