"""A lane finds limits that nobody configured, uses them up, and is refused rarely. Against simulated providers."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hawk.core.traffic.lane import Lane, Limits
from tests.core.traffic.simulated import (
    Bucket,
    Fixed,
    Provider,
    Rate,
    Simulation,
    Sliding,
    Unlimited,
    between,
    ceiling,
    queueing,
    simulate,
)

SEEDS = range(2)
LATENCIES = {
    "0.5 to 4 s": between(0.5, 4.0),
    "0.5 s": between(0.5, 0.5),
    "1 s": between(0.9, 1.1),
    "2 s": between(1.8, 2.2),
}
RATES: dict[str, Callable[[float], Rate]] = {
    "bucket of 10": lambda phase: Bucket(300, 10),
    "bucket of 60": lambda phase: Bucket(300, 60),
    "sliding minute": lambda phase: Sliding(300),
    "fixed minute": lambda phase: Fixed(300, phase),
    "no rate": lambda phase: Unlimited(),
}


@pytest.mark.parametrize("tells", [False, True], ids=["silent", "retry-after"])
@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("rate", RATES)
def test_a_provider_of_20_in_flight_and_300_a_minute_is_used_up_with_few_refusals(
    rate: str, latency: str, tells: bool
) -> None:
    passed = possible = refused = 0
    for seed in SEEDS:
        phase = random.Random(seed).uniform(0, 60) if rate == "fixed minute" else 0.0
        # Whole minutes of the provider's clock: else the last, begun minute is all there for who knows it.
        until = 300.0 + (60.0 - phase if phase else 0.0)
        run, most, _ = simulate(
            lambda phase=phase: Provider(RATES[rate](phase), seconds=LATENCIES[latency], tells=tells),  # type: ignore[misc]
            seed,
            until,
        )
        passed, possible, refused = passed + run.passed, possible + most, refused + run.refused
        assert run.passed >= 0.93 * most
        assert run.refused_share() <= 0.025
    assert passed >= 0.95 * possible
    assert refused <= 0.02 * (passed + refused)


@pytest.mark.parametrize("tells", [False, True], ids=["silent", "retry-after"])
@pytest.mark.parametrize("rate", RATES)
def test_where_both_limits_are_reached_at_once_ten_minutes_are_used_up(rate: str, tells: bool) -> None:
    run, most, _ = simulate(
        lambda: Provider(RATES[rate](0.0), seconds=between(3.8, 4.2), tells=tells), seed=1, until=600.0
    )
    assert run.passed >= 0.95 * most
    assert run.refused_share() <= 0.02


@pytest.mark.parametrize("burst", [10, 60, 300])
def test_with_headers_a_rate_is_hardly_ever_met(burst: int) -> None:
    run, most, _ = simulate(lambda: Provider(Bucket(300, burst), headers=True), seed=2)
    assert run.passed >= 0.98 * most
    assert run.refused_share() <= 0.01


@pytest.mark.parametrize("seed", SEEDS)
def test_all_jobs_get_their_part_of_what_a_provider_allows(seed: int) -> None:
    run, _, _ = simulate(lambda: Provider(Bucket(300, 10)), seed, jobs={"many": 400, "few": 4, "some": 40})
    # Four workers keep at most four in flight: with each a request every 2.3 s, and no wait, that is 520 in 300 s.
    assert run.by_job["few"] >= 0.8 * 500
    assert abs(run.by_job["many"] - run.by_job["some"]) <= 0.1 * run.by_job["many"]


@pytest.mark.parametrize("servers", [4, 16, 64])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_limit_settles_near_the_knee_of_a_provider_that_queues(servers: int, seed: int) -> None:
    lane = Lane(Limits(most=256), 0.0)
    provider = Provider(Unlimited(), most=10**6, seconds=queueing(servers, 1.0, 0.6))
    run = Simulation(provider, lane, seed, {"a": 300, "b": 20}).run(500.0)
    settled = [limit for when, limit in run.limits if when > 200]
    assert max(0.6 * servers, 2) <= sum(settled) / len(settled) <= max(2.2 * servers, 20)


def test_latency_that_grows_for_other_reasons_does_not_hold_the_limit_down() -> None:
    slower = 1.0

    def growing(rng: random.Random, in_flight: int) -> tuple[float, float]:
        first = slower * rng.lognormvariate(0.0, 0.6)
        return first, 2 * first

    lane = Lane(Limits(most=64), 0.0)
    simulation = Simulation(Provider(Unlimited(), most=10**6, seconds=growing), lane, 3, {"a": 200})
    for minute in range(15):
        slower = 1.15**minute
        run = simulation.run(60.0 * (minute + 1))
    late = [limit for when, limit in run.limits if when > 300]
    assert sum(late) / len(late) >= 0.75 * 64


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lower_limit_is_found_and_left_again(seed: int) -> None:
    provider = Provider(Unlimited(), most=40)
    simulation = Simulation(provider, Lane(Limits(), 0.0), seed, {"a": 200})
    simulation.run(120.0)
    provider.most = 10
    run = simulation.run(300.0)
    low = [when for when in run.passed_at if 180 < when < 300]
    assert len(low) >= 0.85 * 120 * 10 / 2.27
    assert len([when for when in run.refused_at if 180 < when < 300]) <= 0.02 * len(low)
    provider.most = 40
    run = simulation.run(480.0)
    assert len([when for when in run.passed_at if when > 440]) >= 0.85 * 40 * 40 / 2.27


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lower_rate_is_found_and_left_again(seed: int) -> None:
    bucket = Bucket(300, 10)
    simulation = Simulation(Provider(bucket, most=40), Lane(Limits(), 0.0), seed, {"a": 200})
    simulation.run(120.0)
    bucket.rate = 100 / 60
    run = simulation.run(300.0)
    assert len([when for when in run.passed_at if 180 < when < 300]) >= 0.93 * 200
    bucket.rate = 400 / 60
    run = simulation.run(720.0)
    assert len([when for when in run.passed_at if when > 600]) >= 0.9 * 800
    assert run.refused_share() <= 0.03


def test_an_overloaded_provider_is_not_pressed() -> None:
    run, _, _ = simulate(lambda: Provider(Unlimited(), most=40, status=529), seed=1)
    assert run.refused <= 20
    assert run.passed >= 0.75 * ceiling(Provider(Unlimited(), most=40), 5, 300.0)


def test_what_refuses_for_good_is_asked_rarely() -> None:
    lane = Lane(Limits(), 0.0)
    run = Simulation(Provider(Unlimited(), most=0), lane, 1, {"a": 50}).run(3600.0)
    assert run.passed == 0
    assert run.refused <= 120
    assert lane.wake_at(3600.0) is not None
