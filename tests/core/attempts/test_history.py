"""What earlier attempts say of the next ones."""

from __future__ import annotations

import pytest

from hawk.core.attempts.history import History, Past
from hawk.core.attempts.results import Pair

PAIR = Pair("t", "s", "m", "a")


def past(pair: Pair, seconds: float, passed: bool = True, tokens: int = 0) -> Past:
    return Past(pair, seconds, passed, tokens)


def test_the_pair_itself_then_its_sample_then_its_task() -> None:
    rows = [
        past(PAIR, 10),
        past(Pair("t", "s", "other", "a"), 20),
        past(Pair("t", "else", "m", "a"), 30),
        past(Pair("u", "s", "m", "a"), 99),
    ]
    found = [History(rows[i:]).guess(PAIR) for i in range(4)]
    assert [(guess.seconds, guess.source) if guess else None for guess in found] == [
        (10, "pair"),
        (20, "sample"),
        (30, "task"),
        None,
    ]


def test_one_attempt_that_hung_does_not_decide() -> None:
    history = History([past(PAIR, s) for s in (10, 11, 12, 5000)])
    guess = history.guess(PAIR)
    assert guess is not None
    assert guess.seconds == 11.5


def test_chances_lean_on_the_whole_where_a_pair_has_little() -> None:
    others = [past(Pair("t", f"s{i}", "m", "a"), 1, passed=i % 2 == 0) for i in range(100)]
    failed_once = History([*others, past(PAIR, 1, passed=False)]).guess(PAIR)
    failed_often = History([*others, *(past(PAIR, 1, passed=False) for _ in range(20))]).guess(PAIR)
    assert failed_once is not None
    assert failed_often is not None
    assert 0 < failed_often.chance < failed_once.chance < 0.5


def test_money_is_known_only_where_it_was() -> None:
    guess = History([past(PAIR, 1, tokens=10), Past(PAIR, 1, True, 30, 0.5)]).guess(PAIR)
    assert guess is not None
    assert (guess.tokens, guess.cost) == (20, 0.5)
    assert History([]).guess(PAIR) is None
    assert not History([])
    assert History([past(PAIR, 1)]).guess(PAIR).cost is None  # type: ignore[union-attr]


def test_published_pairs_are_all_known() -> None:
    from tests.core.attempts.data import guesses

    assert all(guess is not None and guess.source == "pair" for guess in guesses())
    assert sum(guess.chance for guess in guesses() if guess) / 237 == pytest.approx(0.83, abs=0.03)
