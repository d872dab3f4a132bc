"""Statistics against what they are short for: counting all cases."""

from __future__ import annotations

import csv
import math
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hawk.core.attempts.betabinomial import BetaBinomial, fit, flips
from hawk.core.attempts.intervals import clustered, student, wilson
from hawk.core.attempts.statistics import fisher, mcnemar, pass_at_k, pass_pow_k, smallest_loss

REPLAY = Path(__file__).parents[3] / "benchmarks" / "data" / "replay.csv"

PUBLISHED = [(2, 2)] * 185 + [(2, 1)] * 22 + [(2, 0)] * 30
"""(attempts, passes) of the published 237 pairs."""


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_and_pass_pow_k_are_the_share_of_all_choices_of_k_attempts(
    counts: tuple[int, int, int],
) -> None:
    n, c, k = counts
    choices = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    assert pass_pow_k(n, c, k) == pytest.approx(sum(map(all, choices)) / len(choices))


@pytest.mark.parametrize("counts", [(2, 1, 3), (2, 3, 1), (2, -1, 1), (2, 1, 0), (0, 0, 1)])
def test_more_attempts_than_there_are_is_an_error(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="k <= n"):
        pass_at_k(*counts)
    with pytest.raises(ValueError, match="k <= n"):
        pass_pow_k(*counts)


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_share_of_coin_flips_that_are_as_uneven(lost: int, gained: int) -> None:
    n = lost + gained
    uneven = sum(math.comb(n, i) for i in range(n + 1) if abs(2 * i - n) >= abs(lost - gained))
    assert mcnemar(lost, gained) == pytest.approx(float(Fraction(uneven, 2**n)))
    assert mcnemar(lost, gained) == mcnemar(gained, lost)


@pytest.mark.parametrize(
    ("lost", "gained", "p"),
    [(10, 6, 0.4545), (10, 2, 0.0386), (15, 5, 0.0414), (21, 9, 0.0428), (5100, 4900, 0.0466), (0, 0, 1.0)],
)
def test_mcnemar_of_known_cases(lost: int, gained: int, p: float) -> None:
    assert mcnemar(lost, gained) == pytest.approx(p, abs=5e-5)


def test_mcnemar_of_a_certain_loss_is_no_overflow() -> None:
    assert mcnemar(10_000, 0) == 0.0


TABLES = st.tuples(st.integers(0, 30), st.integers(0, 30)).flatmap(
    lambda sizes: st.tuples(
        st.integers(0, sizes[0]), st.just(sizes[0]), st.integers(0, sizes[1]), st.just(sizes[1])
    )
)


@given(TABLES)
def test_fisher_is_the_share_of_deals_with_as_many_hits_here(table: tuple[int, int, int, int]) -> None:
    hits, size, other_hits, other_size = table
    drawn = hits + other_hits
    ways = sum(
        math.comb(size, x) * math.comb(other_size, drawn - x) for x in range(hits, min(size, drawn) + 1)
    )
    assert fisher(*table) == pytest.approx(ways / math.comb(size + other_size, drawn), rel=1e-9)


def test_fisher_of_large_tables() -> None:
    assert fisher(60, 1000, 40, 9000) < 1e-30
    assert fisher(10, 1000, 90, 9000) == pytest.approx(0.55, abs=0.05)
    with pytest.raises(ValueError, match="hits"):
        fisher(3, 2, 0, 1)


@given(st.integers(0, 150))
def test_among_as_many_flips_as_noise_makes_the_smallest_loss_is_significant_and_no_smaller_one(
    each_way: int,
) -> None:
    flips = 2 * each_way
    losses = [
        lost - gained
        for total in (flips, max(flips, 6))
        for gained in range(total // 2 + 1)
        if mcnemar(lost := total - gained, gained) < 0.05
    ]
    assert smallest_loss(flips) == min(losses)


def test_the_published_pairs_show_a_loss_from_about_ten_on() -> None:
    assert smallest_loss(14.2) == 10
    assert smallest_loss(0) == 6
    assert smallest_loss(600) == 50


@given(st.floats(0, 1), st.integers(1, 1000))
def test_wilsons_interval_holds_the_share_and_is_never_empty(share: float, n: int) -> None:
    low, high = wilson(share, n)
    assert 0 <= low <= share <= high <= 1
    assert high > low


def test_wilsons_interval_of_a_known_case() -> None:
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


@pytest.mark.parametrize("freedom", [1, 2, 3, 9, 10, 11, 30, 100, 1001])
def test_students_quantile_leaves_five_percent_outside(freedom: int) -> None:
    assert inside(student(freedom), freedom) == pytest.approx(0.95, abs=2e-6)


def inside(t: float, freedom: int) -> float:
    """P(|T| < t), by the finite sums of Abramowitz & Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cos, total, term = math.cos(angle), 0.0, 1.0
    if freedom % 2:
        term = cos
        for i in range(3, freedom + 1, 2):
            total += term
            term *= (i - 1) / i * cos * cos
        return 2 / math.pi * (angle + math.sin(angle) * total)
    for i in range(2, freedom + 1, 2):
        total += term
        term *= (i - 1) / i * cos * cos
    return math.sin(angle) * total


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), min_size=1, max_size=40))
def test_an_interval_holds_its_estimate_and_is_never_empty(values: list[tuple[int, float]]) -> None:
    found = clustered(values)
    assert found is not None
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low
    assert found.n == len(values)
    assert found.value == pytest.approx(sum(value for _, value in values) / len(values))


def test_an_interval_without_values_is_none() -> None:
    assert clustered([]) is None


def test_the_interval_of_independent_values_is_students() -> None:
    values = [0.4, 0.5, 0.5, 0.6]
    found = clustered(enumerate(values))
    assert found is not None
    mean = sum(values) / 4
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / 3 / 4)
    assert found.high - found.value == pytest.approx(3.182446 * error)


def test_copies_of_a_sample_make_an_interval_no_narrower() -> None:
    once = [(i, float(i % 3 > 0)) for i in range(30)]
    assert clustered(once * 10) is not None
    one, ten, loose = clustered(once), clustered(once * 10), clustered(enumerate(v for _, v in once * 10))
    assert one is not None
    assert ten is not None
    assert loose is not None
    assert (ten.low, ten.high) == pytest.approx((one.low, one.high))
    assert loose.high - loose.low < 0.4 * (one.high - one.low)


def test_samples_that_all_passed_leave_room_for_some_that_would_not() -> None:
    ten, two = clustered([(i // 2, 1.0) for i in range(20)]), clustered([(i // 10, 1.0) for i in range(20)])
    assert ten is not None
    assert two is not None
    assert (ten.low, ten.high) == pytest.approx(wilson(1.0, 10))
    assert two.low < ten.low < ten.high == 1


def test_the_published_tally_gives_the_published_fit_and_flips() -> None:
    model = fit(PUBLISHED)
    assert model is not None
    assert (model.alpha, model.beta) == pytest.approx((0.40, 0.083), abs=0.004)
    shares = [1 - model.none_of(2), 1 - model.none_of(3), 1 - model.none_of(4)]
    assert shares == pytest.approx([207 / 237, 0.894, 0.906], abs=1e-3)
    expected, sd = flips(model, [(2, 2)] * 220)
    assert expected == pytest.approx(14.2, abs=0.1)
    assert sd == pytest.approx(3.7, abs=0.1)


def test_the_replayed_pairs_are_the_published_ones() -> None:
    passes: dict[str, int] = {}
    for row in csv.DictReader(REPLAY.open()):
        passes[row["pair"]] = passes.get(row["pair"], 0) + int(row["passed"])
    assert fit((2, c) for c in passes.values()) == fit(PUBLISHED)


PAIRS = st.lists(
    st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1, max_size=12
)


def log_likelihood(pairs: list[tuple[int, int]], alpha: float, beta: float) -> float:
    def log_beta(a: float, b: float) -> float:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    return sum(log_beta(alpha + c, beta + n - c) - log_beta(alpha, beta) for n, c in pairs)


@given(PAIRS)
def test_no_other_distribution_is_likelier_than_the_fit(pairs: list[tuple[int, int]]) -> None:
    model = fit(pairs)
    if model is None:
        assert all(n == 1 for n, _ in pairs)
        return
    mean = min(1 - 1e-6, max(1e-6, model.mean))
    strength = (1 - model.rho) / model.rho if model.rho > 1e-6 else 1e6
    strength = max(1e-6, strength)
    best = log_likelihood(pairs, mean * strength, (1 - mean) * strength)
    for other in (0.02, 0.1, 0.3, 0.5, 0.8, 0.95):
        for size in (0.05, 0.5, 2.0, 10.0, 100.0):
            assert log_likelihood(pairs, other * size, (1 - other) * size) <= best + 1e-3


@given(PAIRS, st.integers(1, 5), st.integers(1, 5))
def test_expected_flips_are_between_none_and_all(pairs: list[tuple[int, int]], a: int, b: int) -> None:
    model = fit(pairs)
    assume(model is not None)
    assert model is not None
    expected, sd = flips(model, [(a, b)] * 10)
    assert 0 <= expected <= 10
    assert sd >= 0


def test_flips_of_certain_pairs_are_none_and_of_alike_pairs_those_of_a_coin() -> None:
    assert flips(BetaBinomial(mean=0.5, rho=1.0), [(2, 2)] * 9) == (0.0, 0.0)
    assert flips(BetaBinomial(mean=0.5, rho=0.0), [(1, 1)] * 8)[0] == pytest.approx(4.0)
    assert BetaBinomial(mean=0.5, rho=0.0).alpha == math.inf


def test_runs_that_stop_at_the_first_pass_give_the_same_fit_as_whole_ones() -> None:
    """Of a thousand pairs tried up to three times, drawn without error from alpha 0.6 and beta 0.4."""
    truth = BetaBinomial(mean=0.6, rho=0.5)
    none = [round(1000 * truth.none_of(k)) for k in range(4)]
    stopped = [(3, 0)] * none[3]
    for k in (1, 2, 3):
        stopped += [(k, 1)] * (none[k - 1] - none[k])
    model = fit(stopped)
    assert model is not None
    assert (model.mean, model.rho) == pytest.approx((0.6, 0.5), abs=0.01)
