"""What earlier attempts say about the next ones: how long they will take, and how likely they pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

import msgspec

from hawk.core.attempts.results import Pair


class Past(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt of an earlier job; `cost` in dollars."""

    pair: Pair
    seconds: float
    passed: bool
    tokens: int = 0
    cost: float | None = None


class Guess(NamedTuple):
    """What an attempt at a pair is expected to be.

    Attributes:
        seconds: That it takes.
        chance: That it passes.
        source: What that is known from: pair, sample or task.
        tokens, cost: That it uses; 0 and None where nobody knows.
    """

    seconds: float
    chance: float
    source: str
    tokens: int = 0
    cost: float | None = None


PRIOR_WEIGHT = 0.5
"""How many attempts the overall pass rate is worth against a pair's own.

Pairs are mostly sure of themselves: fitted to 237 published pairs, a beta distribution of their pass rates has
alpha + beta = 0.48.
"""


class History:
    """Earlier attempts, ready to be asked.

    Args:
        past: In any order.
    """

    def __init__(self, past: Iterable[Past]) -> None:
        self._by: dict[str, dict[tuple[str, ...], list[Past]]] = {
            name: defaultdict(list) for name in ("pair", "sample", "task")
        }
        self._total = self._passed = 0
        for row in past:
            for name, key in _keys(row.pair):
                self._by[name][key].append(row)
            self._total += 1
            self._passed += row.passed

    def __len__(self) -> int:
        return self._total

    def guess(self, pair: Pair) -> Guess | None:
        """By the pair's own attempts, else by its sample's under others, else by its task's; else nothing.

        Times are medians: one attempt that hung must not put its pair first for ever.
        """
        for name, key in _keys(pair):
            rows = self._by[name].get(key)
            if rows:
                costs = [row.cost for row in rows if row.cost is not None]
                return Guess(
                    median(row.seconds for row in rows),
                    self._chance(rows),
                    name,
                    round(sum(row.tokens for row in rows) / len(rows)),
                    sum(costs) / len(costs) if costs else None,
                )
        return None

    def _chance(self, rows: list[Past]) -> float:
        overall = (self._passed + 1) / (self._total + 2)
        passed = sum(row.passed for row in rows)
        return (passed + PRIOR_WEIGHT * overall) / (len(rows) + PRIOR_WEIGHT)


def _keys(pair: Pair) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("pair", (pair.task, pair.sample, pair.model, pair.agent or "")),
        ("sample", (pair.task, pair.sample)),
        ("task", (pair.task,)),
    )
