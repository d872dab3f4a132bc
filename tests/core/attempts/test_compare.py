"""Two runs side by side: which difference is noise, and what is not."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.attempts.compare import compare
from hawk.core.attempts.report import Comparison, Concentration, Judgement
from hawk.core.attempts.results import Failure, Outcome, Pair, Result, SandboxRecord
from hawk.core.attempts.statistics import fisher, mcnemar
from hawk.core.attempts.throttling import loads
from tests.core.attempts.made import at, pair, reported, result

OUTCOMES = Path(__file__).parents[3] / "benchmarks" / "data" / "outcomes.csv"
PROVIDERS = {"claude": "anthropic", "codex": "openai", "opencode": "moonshot"}

SEQUENTIAL, PARALLEL, COLD = "seq_warm_pr201", "par_pr203", "cold_0813"


def compared(
    a: Sequence[Result], b: Sequence[Result], planned: Iterable[Pair] = (), runs: int | None = None
) -> Comparison:
    """All pairs of either run, or `planned`, with the attempts that the runs have."""
    pairs = list(planned) or list(dict.fromkeys(r.pair for r in [*a, *b]))
    k = runs or max(r.attempt for r in [*a, *b])
    reports = [reported([(p, k) for p in pairs], some, name) for name, some in (("A", a), ("B", b))]
    return compare(reports[0], reports[1], a, b)


def published(run: str) -> list[Result]:
    """A published run. Which attempt of a pair passed was not published: here the last one."""
    results: list[Result] = []
    for row in csv.DictReader(OUTCOMES.open()):
        model = f"{PROVIDERS[row['experiment'].partition('-')[0]]}/{row['experiment']}"
        of = pair("sample", task=row["eval"], model=model)
        passed, attempts = row[f"{run}_passed"] == "1", int(row[f"{run}_attempts"])
        if run == PARALLEL:
            # Their tally was 168 / 22 / 30. For the 22 with one pass stands every ninth that passed.
            flaky = passed and (len(results) // 2) % 9 == 0
            results += [result(of, 1, passed and not flaky), result(of, 2, passed)]
        else:
            results += [result(of, k, passed and k == attempts) for k in range(1, attempts + 1)]
    return results


def test_the_published_runs_differ_by_noise_and_could_not_have_shown_a_loss_of_ten_pairs() -> None:
    found = compared(published(SEQUENTIAL), published(PARALLEL))
    assert (found.common, len(found.lost), len(found.gained)) == (220, 10, 6)
    assert (found.both_passed, found.both_failed) == (184, 20)
    assert round(found.p, 2) == 0.45
    assert found.judgement is Judgement.NOISE
    assert found.blame is None
    assert found.expected_flips is not None
    assert found.expected_sd is not None
    assert abs(16 - found.expected_flips) < 2 * found.expected_sd
    assert found.smallest == 10
    assert (
        "10 pairs went from pass to fail and 6 from fail to pass, of 220 decided in both" in found.because[0]
    )
    assert "exact McNemar p = 0.45" in found.because[0]
    assert any("a net loss under about 10 pairs (4.5%) could not have been seen" in x for x in found.because)
    assert any("losses are scattered" in line for line in found.because)


def test_all_published_runs_differ_by_noise() -> None:
    runs = [published(run) for run in ("main_0807", COLD, SEQUENTIAL, PARALLEL)]
    assert {compared(a, b).judgement for a in runs for b in runs} == {Judgement.NOISE}


def test_concentration_is_counted_among_pairs_that_had_passed() -> None:
    a, b = published(SEQUENTIAL), published(PARALLEL)
    rows = [row for row in compared(a, b).concentration if row.kind == "provider"]
    assert [(row.name, row.lost) for row in rows] == [("anthropic", 1), ("moonshot", 4), ("openai", 5)]
    assert sum(row.pairs for row in rows) == 194
    kimi = rows[1]
    assert kimi.p == fisher(4, kimi.pairs, 6, 194 - kimi.pairs)


def run(
    passes: Sequence[int], *, k: int = 2, model: str = "openai/m", start: float = 0, **fields: Any
) -> list[Result]:
    """A pair for each number: how many of its k attempts pass."""
    return [
        result(pair(i, model=model, task=f"t{i % 7}"), attempt, attempt <= c, start=start, **fields)
        for i, c in enumerate(passes)
        for attempt in range(1, k + 1)
    ]


COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(COUNTS, st.integers(1, 3))
def test_a_run_against_itself_is_noise(passes: list[int], k: int) -> None:
    results = run([min(c, k) for c in passes], k=k, provider_retries={"429 RateLimitError": 3})
    found = compared(results, results)
    assert found.judgement is Judgement.NOISE
    assert found.lost == found.gained == []
    assert found.p == 1


@given(COUNTS, COUNTS)
def test_turned_round_losses_are_gains(a: list[int], b: list[int]) -> None:
    n = min(len(a), len(b))
    there, back = (compared(run(x[:n], k=3), run(y[:n], k=3)) for x, y in ((a, b), (b, a)))
    assert (there.lost, there.gained) == (back.gained, back.lost)
    assert there.p == back.p == mcnemar(len(there.lost), len(there.gained))
    assert there.expected_flips == pytest.approx(back.expected_flips, abs=1e-4)
    assert len(there.lost) + len(there.gained) + there.both_passed + there.both_failed == there.common
    turned = {Judgement.REGRESSION: Judgement.IMPROVEMENT, Judgement.IMPROVEMENT: Judgement.REGRESSION}
    assert back.judgement is turned.get(there.judgement, there.judgement)


def test_a_loss_beyond_chance_is_a_regression_and_a_gain_an_improvement() -> None:
    good, bad = run([2] * 80), run([2] * 65 + [0] * 15)
    loss = compared(good, bad)
    assert loss.judgement is Judgement.REGRESSION
    assert loss.blame is None
    assert "15 pairs went from pass to fail and 0 from fail to pass" in loss.because[0]
    assert "the lost pairs' attempts in B: 30 fail" in loss.because
    assert compared(bad, good).judgement is Judgement.IMPROVEMENT


def test_few_pairs_can_show_no_loss() -> None:
    found = compared(run([2] * 8), run([2] * 6 + [0] * 2))
    assert found.judgement is Judgement.UNDERPOWERED
    assert found.smallest == 6
    assert "8 pairs are few: only a net loss of 6 (75%) or more would have shown" in found.because
    tiny = compared(run([2] * 4), run([2, 2, 2, 0]))
    assert tiny.judgement is Judgement.UNDERPOWERED
    assert "4 pairs can't show any loss: at least 6 would have to be lost" in tiny.because


def test_runs_without_a_common_pair_can_not_be_compared() -> None:
    a, b = [result(pair("a"), 1, True)], [result(pair("b"), 1, True)]
    found = compare(reported([(pair("a"), 1)], a), reported([(pair("b"), 1)], b), a, b)
    assert found.judgement is Judgement.UNDERPOWERED
    assert (found.common, found.p, found.smallest) == (0, 1.0, None)
    assert (found.only_a, found.only_b) == ([str(pair("a"))], [str(pair("b"))])
    assert found.because[0] == "no pair is decided in both runs"
    assert compare(reported([], []), reported([], []), [], []).judgement is Judgement.UNDERPOWERED


def test_flips_both_ways_beyond_noise_are_neither_noise_nor_a_direction() -> None:
    a, b = run([2, 0] * 50), run([0, 2] * 20 + [2, 0] * 30)
    found = compared(a, b)
    assert (len(found.lost), len(found.gained)) == (20, 20)
    assert found.expected_flips == 0
    assert found.judgement is Judgement.UNDERPOWERED
    assert "that is more than noise: something changed" in found.because


def test_one_attempt_a_pair_does_not_say_how_many_flips_are_noise() -> None:
    a, b = run([1] * 60 + [0] * 4, k=1), run([1] * 56 + [0] * 4 + [1] * 4, k=1)
    found = compared(a, b)
    assert found.expected_flips is None
    assert found.judgement is Judgement.NOISE
    assert found.smallest == 8  # of eight flips all: 7 to 1 is p = 0.07
    assert any("nothing says how many flips are noise" in line for line in found.because)


def test_undecided_pairs_are_left_out_and_listed() -> None:
    a = run([2] * 40)
    b = [r for r in run([2] * 40) if r.pair.sample != "3"]
    found = compared(a, b)
    assert found.common == 39
    assert found.undecided == [str(pair(3, task="t3"))]
    assert found.lost == []
    assert "left out, undecided in A or B: 1 pair" in found.because


@pytest.mark.parametrize("outcome", [o for o in Outcome if not o.produced])
def test_an_attempt_without_a_result_loses_no_pair(outcome: Outcome) -> None:
    a = run([1] * 40, k=1)
    b = [msgspec.structs.replace(r, outcome=outcome) for r in a]
    found = compared(a, b)
    assert found.lost == []
    assert len(found.undecided) == 40
    assert found.judgement is Judgement.UNDERPOWERED


def test_runs_of_unlike_length_are_compared_by_the_attempts_that_both_have() -> None:
    """Every pair passes at its second attempt only: the longer run is not better for that."""
    two = [result(pair(i), k, k == 2) for i in range(40) for k in (1, 2)]
    one = [r for r in two if r.attempt == 1]
    planned = [pair(i) for i in range(40)]
    a, b = reported([(p, 2) for p in planned], two), reported([(p, 1) for p in planned], one)
    found = compare(a, b, two, one)
    assert (found.both_failed, found.lost) == (40, [])
    assert found.judgement is Judgement.NOISE
    assert "compared by the first attempts that both runs planned, no more: 40 pairs" in found.because


def test_different_configurations_are_named() -> None:
    a, b = run([2] * 40, fingerprint="f"), run([2] * 40, fingerprint="g")
    assert compared(a, b).different
    assert not compared(a, a).different
    assert not compared(a, run([2] * 40)).different


def two_providers(n: int = 40, **openai: Any) -> list[Result]:
    return run([2] * n, model="anthropic/c") + run([2] * n, model="openai/m", **openai)


def test_refusals_that_only_cost_time_are_throttling_without_a_flip() -> None:
    found = compared(two_providers(), two_providers(duration=25, provider_retries={"429 RateLimitError": 6}))
    assert found.judgement is Judgement.THROTTLING
    assert found.blame == "openai"
    assert found.lost == []
    assert found.retries_b == {"openai": {"429 RateLimitError": 480}}
    assert found.because[0] == (
        "openai: refused or late calls an attempt 0 in A, 6 in B; "
        "attempts that met one 0 of 80 in A, 80 of 80 in B; "
        "B took 2.5 times as long (median of pairs)"
    )


def test_time_spent_waiting_counts_where_it_is_known() -> None:
    calm = two_providers(working=10.0)
    held = two_providers(working=7.0, provider_retries={"529 Overloaded": 1})
    assert compared(calm, held).judgement is Judgement.THROTTLING


def test_refusals_that_cost_nothing_are_noise_and_told() -> None:
    found = compared(two_providers(), two_providers(provider_retries={"529 Overloaded": 1}))
    assert found.judgement is Judgement.NOISE
    assert found.blame is None
    assert "openai: no harm can be seen from that" in found.because


def test_as_many_refusals_in_both_runs_are_no_throttling() -> None:
    a = two_providers(provider_retries={"429 RateLimitError": 4})
    b = two_providers(duration=30, provider_retries={"429 RateLimitError": 6})
    assert compared(a, b).judgement is Judgement.NOISE


def lose(results: Sequence[Result], of: range, provider: str, **fields: Any) -> list[Result]:
    """The run with other fields in some of a provider's pairs."""
    return [
        msgspec.structs.replace(r, **fields)
        if r.pair.model.startswith(provider) and int(r.pair.sample) in of
        else r
        for r in results
    ]


REFUSED = Failure("RateLimitError", "Error code: 429 - Too Many Requests")


def test_attempts_lost_to_refusals_are_throttling_and_no_fails() -> None:
    a = two_providers()
    b = lose(a, range(10), "openai", outcome=Outcome.INFRA_ERROR, error=REFUSED)
    found = compared(a, b)
    assert found.judgement is Judgement.THROTTLING
    assert found.blame == "openai"
    assert found.lost == []
    assert len(found.undecided) == 10
    assert (found.errors_a, found.errors_b) == ({}, {"openai": 20})
    assert "attempts lost to them 0 in A, 20 in B" in found.because[0]


def test_a_provider_that_refuses_everything_is_throttling_though_no_pair_is_left() -> None:
    a = run([2] * 5)
    b = [msgspec.structs.replace(r, outcome=Outcome.INFRA_ERROR, error=REFUSED) for r in a]
    found = compared(a, b)
    assert (found.common, found.judgement, found.blame) == (0, Judgement.THROTTLING, "openai")


def test_pairs_lost_where_calls_were_refused_are_throttling() -> None:
    a = two_providers()
    b = lose(a, range(12), "openai", outcome=Outcome.TIMEOUT, provider_retries={"429 x": 3})
    found = compared(a, b)
    assert len(found.lost) == 12
    assert found.judgement is Judgement.THROTTLING
    assert found.blame == "openai"
    assert "openai: 12 of its 12 lost pairs met such calls in B" in found.because
    assert "the lost pairs' attempts in B: 24 timeout" in found.because
    assert any("losses lie together: provider openai lost 12 of its 40" in line for line in found.because)


def test_pairs_lost_elsewhere_are_a_regression_though_a_provider_throttled() -> None:
    a = two_providers()
    slow = two_providers(duration=25, provider_retries={"429 x": 3})
    b = lose(slow, range(12), "anthropic", outcome=Outcome.FAIL)
    found = compared(a, b)
    assert found.judgement is Judgement.REGRESSION
    assert found.blame == "openai"
    assert "that does not explain the loss: pairs that met no such call were lost too" in found.because


def test_pairs_lost_that_met_no_refusal_are_not_blamed_on_those_that_did() -> None:
    a = two_providers()
    b = lose(a, range(12), "openai", outcome=Outcome.FAIL)
    b = lose(b, range(20, 40), "openai", provider_retries={"429 x": 1})
    found = compared(a, b)
    assert (found.judgement, found.blame) == (Judgement.REGRESSION, None)
    assert "openai: no harm can be seen from that" in found.because


def test_most_of_a_loss_must_have_met_refusals_for_throttling_to_explain_it() -> None:
    slow = two_providers(duration=25, provider_retries={"429 x": 3})

    def judged(refused: int, spared: int) -> Judgement:
        b = lose(slow, range(refused), "openai", outcome=Outcome.FAIL)
        return compared(two_providers(), lose(b, range(spared), "anthropic", outcome=Outcome.FAIL)).judgement

    assert judged(refused=5, spared=3) is Judgement.THROTTLING
    assert judged(refused=3, spared=5) is Judgement.REGRESSION


def test_a_gain_after_throttling_casts_doubt_on_the_first_run() -> None:
    b = two_providers()
    a = lose(b, range(12), "openai", outcome=Outcome.TIMEOUT, provider_retries={"429 x": 3})
    found = compared(a, b)
    assert found.judgement is Judgement.IMPROVEMENT
    assert any(line.startswith("A may have been worse for another reason") for line in found.because)


def test_when_several_providers_refuse_alike_none_is_blamed() -> None:
    held: dict[str, Any] = {"duration": 30, "provider_retries": {"503 Service Unavailable": 5}}
    b = run([2] * 40, model="anthropic/c", **held) + run([2] * 40, **held)
    found = compared(two_providers(), b)
    assert (found.judgement, found.blame) == (Judgement.THROTTLING, None)
    assert "several providers refused alike: look at what they share, the network or a proxy" in found.because


@pytest.mark.parametrize(
    ("lost", "fields"),
    [
        (1, {"error": REFUSED}),
        (1, {"error": Failure("APIStatusError", "529 overloaded_error")}),
        (1, {"error": Failure("APITimeoutError", "Request timed out.")}),
        (1, {"error": Failure("NothingDone", "none of 4 calls answered"), "provider_retries": {"429 x": 4}}),
        (0, {"error": Failure("NothingDone", "none of 4 calls answered")}),
        (0, {"error": Failure("RuntimeError", "boom"), "model_calls": 3, "provider_retries": {"429 x": 1}}),
        (0, {"error": Failure("TimeoutError", "Command timed out before completing")}),
        (0, {"error": Failure("SandboxError", "the container timed out")}),
        (0, {"error": Failure("APITimeoutError", "late"), "sandbox": SandboxRecord("bwrap", lost="killed")}),
        (0, {"error": Failure("RateLimitError", "429 of the image registry", phase="init")}),
        (0, {"error": Failure("BadRequestError", "no model 14290")}),
    ],
)
def test_which_errors_are_a_providers_refusal(lost: int, fields: dict[str, Any]) -> None:
    found = loads([result(pair(), 1, Outcome.INFRA_ERROR, **fields)])["openai"]
    assert (found.lost, found.attempts) == (lost, 1)


def test_retries_for_other_reasons_are_counted_but_are_no_refusal() -> None:
    found = compared(two_providers(), two_providers(duration=30, provider_retries={"500 ServerError": 9}))
    assert found.retries_b == {"openai": {"500 ServerError": 720}}
    assert found.judgement is Judgement.NOISE


def test_losses_of_one_quarter_of_the_time_are_seen() -> None:
    a = [result(pair(i), 1, True, start=i) for i in range(80)]
    b = [result(pair(i), 1, i < 60 or i % 2 == 0, start=1000 + i) for i in range(80)]
    rows = [row for row in compared(a, b).concentration if row.kind == "time"]
    assert [(row.name, row.lost, row.pairs) for row in rows] == [
        ("first quarter", 0, 20),
        ("second quarter", 0, 20),
        ("third quarter", 0, 20),
        ("last quarter", 10, 20),
    ]
    assert rows[3].p is not None
    assert rows[3].p < 0.001


def test_pairs_that_start_together_are_in_one_quarter() -> None:
    rows = compared(run([2] * 40), run([2] * 36 + [0] * 4)).concentration
    assert [row for row in rows if row.kind == "time"] == [Concentration("time", "last quarter", 4, 40, None)]
    assert [row for row in rows if row.kind == "provider"] == [
        Concentration("provider", "openai", 4, 40, None)
    ]


def test_the_order_of_reading_changes_nothing() -> None:
    a, b = published(SEQUENTIAL), published(PARALLEL)
    planned = list(dict.fromkeys(r.pair for r in a))
    once, again = compared(a, b, planned), compared(a[::-1], b[::-1], planned)
    assert msgspec.json.encode(once) == msgspec.json.encode(again)


def test_an_older_result_of_an_attempt_does_not_count() -> None:
    new = run([2] * 40, start=100)
    old = [msgspec.structs.replace(r, ended_at=at(0), provider_retries={"429 x": 50}) for r in new]
    assert compared(new, old + new).retries_b == {}
