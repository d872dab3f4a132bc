"""What policies take: by the published pairs, whose figures follow from the data alone."""

from __future__ import annotations

import pytest

from hawk.core.attempts.forecast import Forecaster, draw, play
from hawk.core.attempts.policy import Policy, Rules
from tests.core.attempts.data import course, guesses, replay, slowest

PARALLEL = Rules(Policy.PARALLEL)


@pytest.mark.parametrize(
    ("rules", "slots", "known", "wall", "hours", "attempts"),
    [
        (Rules(Policy.SEQUENTIAL), 250, False, 1603.7, 24.24, 284),
        (PARALLEL, 474, False, 823.9, 39.69, 474),
        (PARALLEL, 250, True, 823.9, 39.69, 474),
        (Rules(Policy.PARALLEL, cancel_siblings=True), 474, False, 823.9, 36.20, 474),
    ],
)
def test_a_replay_gives_what_the_data_says(
    rules: Rules, slots: int, known: bool, wall: float, hours: float, attempts: int
) -> None:
    use = play(rules, course(known=known), slots)
    assert use.wall == pytest.approx(wall, abs=0.1)
    assert use.seconds / 3600 == pytest.approx(hours, abs=0.01)
    assert use.attempts == attempts
    assert use.slots <= slots


def test_longest_first_needs_the_history() -> None:
    without = play(PARALLEL, course(known=False), 250)
    assert without.wall > 1.3 * slowest()


def test_the_threshold_from_history_keeps_the_end_and_saves_a_fifth() -> None:
    runs = [2] * len(replay())
    rules = Rules(Policy.SELECTIVE, cancel_siblings=True)
    threshold = Forecaster(guesses(), runs, 250).threshold(rules, slower=0.02)
    use = play(Rules(Policy.SELECTIVE, cancel_siblings=True, threshold=threshold), course(known=True), 250)
    assert use.wall <= 1.02 * slowest()
    assert use.seconds <= 0.82 * play(PARALLEL, course(known=True), 474).seconds


def test_a_forecast_is_near_what_happens_and_the_same_each_time() -> None:
    runs = [2] * len(replay())
    forecaster = Forecaster(guesses(), runs, 250)
    for rules in (PARALLEL, Rules(Policy.SEQUENTIAL)):
        predicted, real = forecaster.use(rules), play(rules, course(known=True), 250)
        assert predicted == Forecaster(guesses(), runs, 250).use(rules)
        assert predicted.wall == pytest.approx(real.wall, rel=0.12)
        assert predicted.seconds == pytest.approx(real.seconds, rel=0.06)
        assert predicted.attempts == pytest.approx(real.attempts, rel=0.06)


def test_pairs_that_nobody_knows_are_drawn_from_the_others() -> None:
    known = guesses()[0]
    [first, second] = draw([known, None], [1, 3], seed=1)
    assert first.predicted == known.seconds if known else False
    assert second.predicted is None
    assert len(second.seconds) == len(second.passes) == 3


def test_waves_and_slots() -> None:
    use = play(PARALLEL, course(known=True), 100)
    assert (use.waves, use.slots) == (5, 100)
    assert play(PARALLEL, course(known=True), 1000).waves == 1
