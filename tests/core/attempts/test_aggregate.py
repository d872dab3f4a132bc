"""From results to a report: what counts, what is only named, and that the order of reading is all one."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.attempts.report import PolicyUse
from hawk.core.attempts.results import Failure, Outcome, Pair, Result, Scored, Usage
from hawk.core.attempts.statistics import pass_at_k
from tests.core.attempts.made import P, at, pair, reported, result, row_of

REPLAY = Path(__file__).parents[3] / "benchmarks" / "data" / "replay.csv"


def replayed() -> tuple[list[tuple[Pair, int]], list[Result]]:
    rows = list(csv.DictReader(REPLAY.open()))
    results = [
        result(
            pair(r["eval"], model=f"openai/{r['experiment']}", task="replay"),
            int(r["attempt"]),
            r["passed"] == "1",
            duration=float(r["duration_s"]),
        )
        for r in rows
    ]
    return [(p, 2) for p in dict.fromkeys(r.pair for r in results)], results


def test_the_replayed_run_has_the_published_tally() -> None:
    planned, results = replayed()
    report = reported(planned, results)
    assert report.tally == {"2/2": 185, "1/2": 22, "0/2": 30}
    assert report.complete
    assert report.incomplete == {}
    assert report.slowest == report.wall == 823.9
    assert report.any_pass is not None
    assert report.pass_at_1 is not None
    assert report.any_pass.value == pytest.approx(207 / 237)
    assert report.pass_at_1.value == pytest.approx(392 / 474)
    assert [e.value for e in report.pass_at_k.values()] == pytest.approx([392 / 474, 207 / 237])
    assert [e.value for e in report.pass_pow_k.values()] == pytest.approx([392 / 474, 185 / 237])
    assert report.outcomes == {"fail": 82, "pass": 392}
    assert report.actual is not None
    assert (report.actual.attempts, report.actual.slots, report.actual.waves) == (474, 474, 1)
    assert report.actual.seconds / 3600 == pytest.approx(39.69, abs=0.01)


def test_the_replayed_run_attempt_after_attempt_says_that_it_is_biased() -> None:
    planned, results = replayed()
    passed_first = {r.pair for r in results if r.attempt == 1 and r.passed}
    run = [r for r in results if r.attempt == 1]
    run += [
        msgspec.structs.replace(r, started_at=at(2000), ended_at=at(2000 + (r.duration or 0)))
        for r in results
        if r.attempt == 2 and r.pair not in passed_first
    ]
    report = reported(planned, run, policy="sequential", cancels=True)
    assert report.actual is not None
    assert report.actual.attempts == 284
    assert report.pass_at_k == report.pass_pow_k == {}
    assert report.biased is not None
    assert report.biased.startswith("sequential ends or skips attempts")
    assert report.incomplete == {}
    assert report.tally == {"1/1": 190, "1/2": len(report.saved), "0/2": 30}
    assert (report.passed, report.failed) == (207, 30)
    # The second attempts are of pairs that are hard: a mean over all would be too low.
    assert report.pass_at_1 is not None
    assert report.pass_at_1.value == pytest.approx(190 / 237)
    assert set(report.outcomes) == {"pass", "fail"}


def test_a_sibling_that_a_pass_canceled_neither_biases_pass_at_1_nor_counts_in_the_tally() -> None:
    results = [result(P, 1, Outcome.CANCELED, duration=5), result(P, 2, True, duration=5)]
    report = reported([(P, 2)], results, cancels=True)
    assert report.tally == {"1/1": 1}
    assert report.pass_at_1 is not None
    assert report.pass_at_1.value == 1
    assert report.saved == []
    assert report.incomplete == {}


def test_one_attempt_a_pair_is_never_biased() -> None:
    report = row_of(True, policy="sequential", cancels=True)
    assert report.biased is None
    assert report.pass_at_k[1].value == 1


def test_pairs_with_fewer_results_than_planned_are_named_and_left_out_of_pass_at_k() -> None:
    whole, part, none = pair("whole"), pair("part"), pair("none")
    results = [
        result(whole, 1, True),
        result(whole, 2, False),
        result(part, 1, True),
        result(part, 2, Outcome.INFRA_ERROR),
    ]
    report = reported([(whole, 2), (part, 2), (none, 2)], results)
    assert report.tally == {"1/2": 1}
    assert [e.n for e in report.pass_at_k.values()] == [1, 1]
    assert report.incomplete == {
        str(part): "1 of 2 attempts have a result: 1 infra_error",
        str(none): "0 of 2 attempts have a result: 2 missing",
    }
    assert not report.complete


def test_a_failed_pair_that_lost_an_attempt_is_incomplete_though_the_policy_cancels() -> None:
    report = row_of(False, Outcome.INFRA_ERROR, cancels=True)
    assert report.tally == {}
    assert report.failed == 1
    assert list(report.incomplete) == [str(P)]


def test_a_pair_with_fewer_attempts_planned_than_others_is_named() -> None:
    other = pair("other")
    results = [result(P, 1, True), result(P, 2, True), result(other, 1, True)]
    report = reported([(P, 2), (other, 1)], results)
    assert report.tally == {"2/2": 1}
    assert report.incomplete == {
        str(other): "1 of 1 attempts have a result; planned are only 1 of 2",
    }


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), min_size=1))))
def test_pass_at_k_is_the_mean_over_pairs(counts: tuple[int, list[int]]) -> None:
    n, passes = counts
    planned = [(pair(i), n) for i in range(len(passes))]
    results = [result(pair(i), k, k <= c) for i, c in enumerate(passes) for k in range(1, n + 1)]
    report = reported(planned, results)
    assert list(report.pass_at_k) == list(range(1, n + 1))
    for k, estimate in report.pass_at_k.items():
        assert estimate.value == pytest.approx(sum(pass_at_k(n, c, k) for c in passes) / len(passes))
        assert estimate.low <= estimate.value <= estimate.high
    assert sum(report.tally.values()) == len(passes)


def test_thousands_of_runs_give_pass_at_k_for_some_k() -> None:
    report = reported([(P, 1000)], [result(P, k, k % 2 == 0) for k in range(1, 1001)])
    assert list(report.pass_at_k) == [*range(1, 11), 16, 32, 64, 128, 256, 512, 1000]


def test_a_pass_that_only_a_later_attempt_saved_is_named() -> None:
    def saved(*outcomes: Outcome | bool) -> bool:
        return bool(row_of(*outcomes).saved)

    assert saved(False, True)
    assert saved(Outcome.TIMEOUT, Outcome.INFRA_ERROR, True)
    assert saved(Outcome.INFRA_ERROR, True)
    assert not saved(True, False)
    assert not saved(False, False)
    assert not saved(Outcome.CANCELED, True)


def test_infrastructure_errors_are_counted_by_their_first_line() -> None:
    messages = ["429\nat 12:00", " \n429\nat 13:00", "x" * 200, ""]
    planned = [(pair(i), 1) for i in range(5)]
    results = [
        result(pair(i), 1, Outcome.INFRA_ERROR, error=Failure("Kind", message))
        for i, message in enumerate(messages)
    ]
    results.append(result(pair(4), 1, Outcome.SCORER_ERROR, error=Failure("Kind", "not this")))
    assert reported(planned, results).infra_errors == {"429": 2, "Kind": 1, "x" * 120: 1}


def test_usage_is_summed_by_model_and_a_total_is_made_where_there_is_none() -> None:
    results = [
        result(
            P, 1, True, usage={"b": Usage(input=1, output=2, cache_read=5), "a": Usage(total=7)}, cost=0.25
        ),
        result(P, 2, False, usage={"b": Usage(input=10, output=20, total=40)}),
    ]
    report = reported([(P, 2)], results)
    assert list(report.usage) == ["a", "b"]
    assert report.usage["b"] == Usage(input=11, output=22, cache_read=5, total=43)
    assert report.actual is not None
    assert (report.actual.tokens, report.actual.cost) == (50, 0.25)


def test_a_result_that_is_not_planned_is_used_but_not_counted() -> None:
    other = pair("gone")
    results = [
        result(P, 1, False),
        result(P, 2, True, usage={"m": Usage(total=5)}),
        result(other, 1, True, duration=3),
    ]
    report = reported([(P, 1)], results, problems=["x.json: torn"])
    assert (report.passed, report.failed) == (0, 1)
    assert report.usage == {"m": Usage(total=5)}
    assert report.actual is not None
    assert (report.actual.attempts, report.actual.seconds) == (3, 23)
    assert report.slowest == 10
    assert report.problems == [
        "x.json: torn",
        "t · openai/m · 1 attempt 2: not in the plan; only what it used is counted",
        "t · openai/m · gone attempt 1: not in the plan; only what it used is counted",
    ]


def test_of_two_results_for_an_attempt_the_later_counts_and_it_is_named() -> None:
    first, second = result(P, 1, True, start=0), result(P, 1, False, start=100)
    late = msgspec.structs.replace(second, ended_at="2026-01-01T02:01:50+02:00")  # 00:01:50 in UTC
    for results in ([first, late], [late, first]):
        report = reported([(P, 1)], results)
        assert report.failed == 1
        assert report.problems == [
            "t · openai/m · 1 attempt 1: more than one result; the one that ended later counts"
        ]


def test_wall_clock_and_slots_are_those_of_the_attempts() -> None:
    results = [
        result(P, 1, True, start=0, duration=10),
        result(P, 2, True, start=5, duration=10),
        result(P, 3, True, start=10, duration=20),
        result(P, 4, Outcome.CANCELED, started_at=None),
        result(P, 5, False, start=50, duration=7, ended_at=at(0)),  # the clock was set back
    ]
    report = reported([(P, 5)], results)
    assert (report.wall, report.slowest) == (57, 20)
    assert report.actual is not None
    assert (report.actual.slots, report.actual.waves, report.actual.attempts) == (2, 2, 4)


def test_times_that_are_none_are_no_error() -> None:
    odd = result(P, 1, True, started_at="yesterday", ended_at="", duration=-5)
    report = reported([(P, 1)], [odd])
    assert (report.wall, report.slowest, report.passed) == (None, None, 1)


def test_groups_have_the_same_figures_for_parts() -> None:
    pairs = [
        pair(1, model="a/x", task="t", agent="solo"),
        pair(1, model="b/y", task="t"),
        pair(2, model="b/y", task="u"),
    ]
    results = [result(pairs[0], 1, True), result(pairs[1], 1, False)]
    report = reported([(p, 1) for p in pairs], results)
    found = [(g.kind, g.name, g.pairs, g.passed, g.failed, g.undecided) for g in report.groups]
    assert found == [
        ("model", "a/x", 1, 1, 0, 0),
        ("model", "b/y", 2, 0, 1, 1),
        ("task", "t", 2, 1, 1, 0),
        ("task", "u", 1, 0, 0, 1),
        ("agent", "solo", 1, 1, 0, 0),
    ]
    assert report.groups[2].any_pass is not None
    assert report.groups[2].any_pass.value == 0.5
    assert report.groups[3].any_pass is None


def test_pairs_that_would_be_called_the_same_are_told_apart() -> None:
    one, two = Pair(task="t · a", sample="s", model="m"), Pair(task="t", sample="s", model="m", agent="a")
    assert str(one) == str(two)
    report = reported([(one, 1), (two, 1)], [])
    assert len(report.unfinished) == len(report.incomplete) == 2


def test_an_empty_plan_and_a_pair_without_attempts_are_no_crash() -> None:
    assert reported([], []).complete
    report = reported([(P, 0)], [], runs=0)
    assert report.undecided == 1
    assert report.unfinished == {str(P): "t · openai/m · 1: no attempt is planned"}


def test_policies_and_problems_are_passed_on() -> None:
    use = PolicyUse(policy="sequential", wall=1, attempts=1, seconds=1)
    assert reported([(P, 1)], [], policies=[use]).policies == [use]


PAIRS = [pair(i, model=m, agent=a) for i in range(2) for m, a in (("a/x", None), ("b/y", "solo"))]
SOME = st.lists(
    st.builds(
        result,
        st.sampled_from(PAIRS),
        st.integers(1, 4),
        st.sampled_from(Outcome),
        start=st.floats(0, 50),
        duration=st.floats(0, 50),
        usage=st.dictionaries(st.sampled_from("mn"), st.builds(Usage, input=st.integers(0, 9))),
        cost=st.none() | st.floats(0, 1),
        scores=st.dictionaries(st.sampled_from("xy"), st.builds(Scored, explanation=st.sampled_from("ab"))),
        fingerprint=st.sampled_from(["", "f", "g"]),
    ),
    max_size=16,
)


@given(SOME, st.randoms(), st.booleans())
def test_any_order_of_reading_gives_the_same_bytes(
    results: list[Result], rng: random.Random, cancels: bool
) -> None:
    planned = [(p, 3) for p in PAIRS[:3]]

    def encoded(read: list[Result]) -> bytes:
        return msgspec.json.encode(reported(planned, read, cancels=cancels))

    once = encoded(results)
    assert encoded(rng.sample(results, len(results))) == once
    read_back = [msgspec.json.decode(msgspec.json.encode(r), type=Result) for r in results]
    assert encoded(read_back) == once


@given(SOME, st.booleans())
def test_every_pair_is_counted_once_and_every_attempt_has_one_outcome(
    results: list[Result], cancels: bool
) -> None:
    report = reported([(p, 3) for p in PAIRS], results, cancels=cancels)
    assert report.passed + report.failed + report.undecided == len(PAIRS)
    assert sum(report.outcomes.values()) == sum(len(row.attempts) for row in report.pairs)
    if not cancels:
        assert sum(report.outcomes.values()) == 3 * len(PAIRS)
        assert sum(report.tally.values()) + len(report.incomplete) == len(PAIRS)
    for row in report.pairs:
        assert row.passes <= row.produced <= row.run <= row.planned
        assert (row.error is None) == (row.produced > 0)
