"""The breaker opens when everything fails and only then; the ledger adds up and says which bound is reached."""

from __future__ import annotations

import pytest

from hawk.core.traffic.breaker import Breaker, BreakerSettings
from hawk.core.traffic.ledger import Budget, Ledger, Spend
from hawk.core.traffic.usage import Usage


def opened() -> Breaker:
    breaker = Breaker(BreakerSettings(failures=3, over=5.0, seconds=30.0, most_seconds=100.0))
    for now in (0.0, 3.0, 6.0):
        assert breaker.allow(now)
        breaker.failure(now, f"connection refused at {now}")
    return breaker


def test_opens_after_failures_in_a_row_over_some_seconds() -> None:
    breaker = opened()
    assert not breaker.allow(6.0)
    state = breaker.state(7.0)
    assert (state.open, state.since, state.retry_at, state.said) == (
        True,
        6.0,
        36.0,
        "connection refused at 6.0",
    )


def test_a_burst_of_failures_is_not_enough_and_neither_are_failures_between_good_answers() -> None:
    breaker = Breaker(BreakerSettings(failures=3, over=5.0))
    for _ in range(50):
        breaker.failure(1.0, "reset")
    assert breaker.allow(1.0)
    for now in range(100):
        breaker.failure(float(now), "500")
        if now % 2:
            breaker.success(float(now))
    assert breaker.allow(100.0)


def test_refused_keys_are_a_row_of_their_own() -> None:
    breaker = Breaker(BreakerSettings(failures=3, over=0.0))
    for now, kind in enumerate(["fault", "fault", "refused", "refused", "fault"]):
        breaker.failure(float(now), kind, kind=kind)
    assert not breaker.state(5.0).open
    breaker.failure(5.0, "500")
    breaker.failure(6.0, "500")
    assert breaker.state(6.0).open


def test_one_probe_at_a_time_and_each_failed_one_waits_longer() -> None:
    breaker = opened()
    assert breaker.allow(36.0)
    assert not breaker.allow(36.0)
    breaker.failure(37.0, "still")
    assert breaker.state(37.0).retry_at == 97.0
    assert not breaker.allow(96.9)
    assert breaker.allow(97.0)
    breaker.withdrawn(98.0)
    assert breaker.allow(98.0)
    breaker.failure(99.0, "still")
    assert breaker.state(99.0).retry_at == 199.0
    assert breaker.allow(199.0)
    breaker.success(200.0)
    assert breaker.allow(200.0)
    assert breaker.allow(200.0)
    assert not breaker.state(200.0).open


def test_a_probe_that_never_reports_back_does_not_keep_it_open() -> None:
    breaker = opened()
    assert breaker.allow(36.0)
    assert not breaker.allow(100.0)
    assert breaker.allow(136.0)


def test_spend_adds_up() -> None:
    ledger = Ledger()
    assert ledger.spend("j") == Spend()
    ledger.add("j", Usage(input=10, output=5, cache_read=100, cache_write=3, reasoning=2), 0.25)
    ledger.add("j", Usage(input=1), None)
    ledger.add("other", Usage(input=1), 9.0)
    assert ledger.spend("j") == Spend(usd=0.25, tokens=119, requests=2, unpriced=1)
    again = Ledger()
    again.restore("j", ledger.spend("j"))
    again.add("j", Usage(output=1), 0.5)
    assert again.spend("j") == Spend(usd=0.75, tokens=120, requests=3, unpriced=1)
    again.forget("j")
    assert again.jobs() == []


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Budget(), None),
        (Budget(usd=2.0, tokens=2000), None),
        (Budget(usd=1.5), "$1.50 of $1.50 are spent"),
        (Budget(tokens=1200), "1,200 of 1,200 tokens are used"),
        (Budget(usd=0.0), "$1.50 of $0.00 are spent"),
    ],
)
def test_which_bound_is_reached(budget: Budget, said: str | None) -> None:
    ledger = Ledger()
    ledger.restore("j", Spend(usd=1.5, tokens=1200))
    assert ledger.exhausted("j", budget) == said


def test_a_budget_of_nothing_is_reached_at_once() -> None:
    assert Ledger().exhausted("j", Budget(tokens=0)) == "0 of 0 tokens are used"
