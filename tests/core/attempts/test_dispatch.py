"""Who starts next: for any policy, any pairs and any order of events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.core.attempts.dispatch import Cancel, Dispatcher, Order, Skip, Start
from hawk.core.attempts.policy import Policy, Rules

RULES = [
    Rules(Policy.SEQUENTIAL),
    Rules(Policy.PARALLEL),
    Rules(Policy.PARALLEL, cancel_siblings=True),
    Rules(Policy.SELECTIVE, threshold=50.0),
    Rules(Policy.SELECTIVE, cancel_siblings=True, threshold=50.0),
    Rules(Policy.SELECTIVE),
]


class World:
    """Carries out orders and keeps what happened."""

    def __init__(self, rules: Rules, slots: int, ramp: int | None = None) -> None:
        self.dispatcher: Dispatcher[int] = Dispatcher(rules, slots, ramp)
        self.running: list[tuple[int, int]] = []
        self.started: list[tuple[int, int]] = []
        self.skipped: set[tuple[int, int]] = set()
        self.ended: set[tuple[int, int]] = set()
        self.passed: set[tuple[int, int]] = set()

    def take(self, orders: list[Order[int]]) -> None:
        for order in orders:
            key = (order.pair, order.attempt)
            assert key not in self.ended | self.skipped
            if isinstance(order, Start):
                assert key not in self.started
                self.started.append(key)
                self.running.append(key)
            elif isinstance(order, Skip):
                assert key not in self.started
                self.skipped.add(key)
            else:
                assert key in self.running
                assert any(pair == order.pair for pair, _ in self.passed)
                self.end(key, passed=False)

    def end(self, key: tuple[int, int], *, passed: bool) -> None:
        self.running.remove(key)
        self.ended.add(key)
        if passed:
            self.passed.add(key)
        self.take(self.dispatcher.ended(*key, passed=passed))


pairs_of = st.lists(
    st.tuples(
        st.integers(1, 4),  # runs
        st.one_of(st.none(), st.floats(1, 100)),  # predicted
    ),
    min_size=1,
    max_size=8,
)


@given(
    st.sampled_from(RULES),
    pairs_of,
    st.integers(1, 6),
    st.one_of(st.none(), st.integers(1, 3)),
    st.randoms(use_true_random=False),
)
@settings(max_examples=300, deadline=None)
def test_everything_ends_within_the_slots_and_the_policy_holds(
    rules: Rules,
    pairs: list[tuple[int, float | None]],
    slots: int,
    ramp: int | None,
    random: Callable[[], float],
) -> None:
    world = World(rules, slots, ramp)
    for pair, (runs, predicted) in enumerate(pairs):
        world.dispatcher.expect(pair, runs, predicted)
    wanted = [(pair, k) for pair, (runs, _) in enumerate(pairs) for k in range(1, runs + 1)]
    random.shuffle(wanted)  # type: ignore[attr-defined]
    for pair, attempt in wanted:
        world.take(world.dispatcher.want(pair, [attempt]))
    while world.running:
        assert len(world.running) <= slots
        assert world.dispatcher.in_use == len(world.running)
        if ramp is not None and random.random() < 0.5:  # type: ignore[attr-defined]
            key = random.choice(world.running)  # type: ignore[attr-defined]
            world.take(world.dispatcher.begun(*key))
        pair, attempt = random.choice(world.running)  # type: ignore[attr-defined]
        runs, predicted = pairs[pair]
        if rules.one_by_one(predicted):
            assert [key for key in world.running if key[0] == pair] == [(pair, attempt)]
            assert all((pair, k) in world.ended for k in range(1, attempt))
        world.end((pair, attempt), passed=random.random() < 0.4)  # type: ignore[attr-defined]
    assert world.ended | world.skipped == set(wanted)
    for pair, _ in world.skipped:
        assert rules.cancels(pairs[pair][1])
        assert any(key[0] == pair for key in world.passed)
    if not rules.stops_early:
        assert world.ended == set(wanted)


def test_the_longest_predicted_starts_first_and_a_chain_counts_whole() -> None:
    world = World(Rules(Policy.SELECTIVE, threshold=60.0), slots=1)
    world.dispatcher.slots = 0
    for pair, predicted in enumerate([50.0, 80.0, 10.0]):
        world.dispatcher.expect(pair, 2, predicted)
        world.take(world.dispatcher.want(pair, [1, 2]))
    world.dispatcher.slots = 1
    world.take(world.dispatcher.fill())
    while world.running:
        world.end(world.running[0], passed=False)
    assert world.started == [(0, 1), (1, 1), (1, 2), (0, 2), (2, 1), (2, 2)]


def test_pairs_that_nobody_knows_come_first_and_first_attempts_before_second_ones() -> None:
    world = World(Rules(Policy.PARALLEL), slots=1)
    world.dispatcher.slots = 0
    for pair, predicted in enumerate([None, 100.0, None]):
        world.dispatcher.expect(pair, 2, predicted)
        world.take(world.dispatcher.want(pair, [1, 2]))
    world.dispatcher.slots = 1
    world.take(world.dispatcher.fill())
    while world.running:
        world.end(world.running[0], passed=False)
    assert [key for key in world.started if key[0] != 1] == [(0, 1), (2, 1), (0, 2), (2, 2)]
    assert world.started[-2:] == [(1, 1), (1, 2)]


def test_a_pass_that_is_known_before_its_slot_is_free_stops_the_others_at_once() -> None:
    dispatcher: Dispatcher[str] = Dispatcher(Rules(Policy.PARALLEL, cancel_siblings=True), 2)
    dispatcher.expect("a", 3)
    assert dispatcher.want("a", [1, 2, 3]) == [Start("a", 1), Start("a", 2)]
    orders = dispatcher.passed("a", 1)
    assert orders == [Cancel("a", 2, "not needed: attempt 1 passed")]
    assert dispatcher.passed("a", 1) == []  # once
    assert dispatcher.ended("a", 1, passed=True) == [Skip("a", 3, "not needed: attempt 1 passed")]
    assert dispatcher.in_use == 1
    assert dispatcher.ended("a", 2) == []
    assert dispatcher.in_use == 0


def test_a_cancelled_attempt_that_passes_all_the_same_has_passed() -> None:
    dispatcher: Dispatcher[str] = Dispatcher(Rules(Policy.PARALLEL, cancel_siblings=True), 2)
    dispatcher.expect("a", 2)
    dispatcher.want("a", [1, 2])
    dispatcher.passed("a", 1)
    assert dispatcher.passed("a", 2) == []  # nobody is left to be stopped by it


def test_what_passed_earlier_makes_the_rest_unnecessary() -> None:
    dispatcher: Dispatcher[str] = Dispatcher(Rules(Policy.SEQUENTIAL), 4)
    dispatcher.expect("a", 3)
    assert dispatcher.known("a", 2, passed=True) == []
    assert dispatcher.want("a", [1]) == [Skip("a", 1, "not needed: attempt 2 passed")]
    assert dispatcher.want("a", [3]) == [Skip("a", 3, "not needed: attempt 2 passed")]


def test_held_attempts_take_no_slot() -> None:
    dispatcher: Dispatcher[str] = Dispatcher(Rules(Policy.SEQUENTIAL), 2)
    dispatcher.expect("a", 2)
    dispatcher.expect("b", 2)
    assert dispatcher.want("a", [1, 2]) == [Start("a", 1)]
    assert dispatcher.want("b", [1, 2]) == [Start("b", 1)]
    assert dispatcher.ended("a", 1) == [Start("a", 2)]


def test_few_start_at_once_until_they_have_begun() -> None:
    dispatcher: Dispatcher[int] = Dispatcher(Rules(Policy.PARALLEL), 100, ramp=2)
    for pair in range(5):
        dispatcher.expect(pair, 1)
    started = [order for pair in range(5) for order in dispatcher.want(pair, [1])]
    assert [order.pair for order in started] == [0, 1]
    assert [order.pair for order in dispatcher.begun(0, 1)] == [2]
    assert dispatcher.begun(0, 1) == []
    assert [order.pair for order in dispatcher.ended(1, 1)] == [3]


@pytest.mark.parametrize("rules", RULES)
def test_an_attempt_that_gives_up_waiting_frees_nothing_and_blocks_nobody(rules: Rules) -> None:
    dispatcher: Dispatcher[str] = Dispatcher(rules, 1)
    for pair in "ab":
        dispatcher.expect(pair, 1, 10.0)
    assert dispatcher.want("a", [1]) == [Start("a", 1)]
    assert dispatcher.want("b", [1]) == []
    assert dispatcher.ended("b", 1) == []
    assert dispatcher.in_use == 1
    assert dispatcher.ended("a", 1) == []
    assert dispatcher.in_use == 0
