"""Who gets how much of one limit, when several replicas send to the same provider: pure arithmetic.

Jobs are equal, wherever their requests came in: the limit is divided by jobs first (max-min fairness, by filling all
evenly until each has what it asks for), then each job's part by where its requests are. With one job that is in
proportion to demand. What nobody asks for goes to those who use the lane, and each replica keeps a least part, so that
the first request of an idle one need not wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

Demand = Mapping[str, Mapping[str, float]]
"""Requests in flight and waiting, by replica and job. Every replica that lives is in it, also one without requests."""

LEAST_OF_A_RATE = 0.02
"""Part of a rate that each replica keeps."""

_BAND = 0.1
"""A share that falls by less than this part stays: handing over costs a moment in which nobody uses it."""
_FALL = 0.2
_FALL_TO_NONE = 0.5
_A_TURN = 0.2
"""Demand falls by these parts a fifth of a second: what comes in waves is one demand."""


def portions(ceiling: float, demand: Demand) -> dict[str, float]:
    """The part of each replica: at least 1 where the ceiling has so many, and the ceiling in all.

    Args:
        ceiling: What there is to divide, not negative.
        demand: Not empty.
    """
    jobs: dict[str, float] = {}
    for asked in demand.values():
        for job, count in asked.items():
            jobs[job] = jobs.get(job, 0.0) + count
    level = _water_level(ceiling, list(jobs.values()))
    given = {
        replica: sum(
            count * min(level / jobs[job], 1.0) for job, count in sorted(asked.items()) if jobs[job] > 0
        )
        for replica, asked in sorted(demand.items())
    }
    used = sum(given.values())
    spare = max(ceiling - used, 0.0)
    count = len(given)
    for replica, part in given.items():
        given[replica] = part + spare * (part / used if used > 0 else 1.0 / count)
    return _with_least(given, min(1.0, ceiling / count), ceiling)


def places(ceiling: int, demand: Demand, turn: int) -> dict[str, int]:
    """The same in whole places, `ceiling` of them in all.

    Args:
        turn: A number that grows with time and is the same for everyone: when there are fewer places than replicas
            that ask for one, they go round.
    """
    if ceiling < len(demand):
        return _in_turn(ceiling, demand, turn)
    exact = portions(float(ceiling), demand)
    whole = {replica: max(math.floor(part + 1e-9), 1) for replica, part in exact.items()}
    left = ceiling - sum(whole.values())
    by_need = sorted(exact, key=lambda replica: (whole[replica] - exact[replica], replica))
    for replica in by_need[: max(left, 0)]:
        whole[replica] += 1
    return whole


def fractions(demand: Demand, ceiling: float, least: float = LEAST_OF_A_RATE) -> dict[str, float]:
    """Parts of a rate, 1 in all; none is below `least`, or an equal part where that is less."""
    exact = portions(max(ceiling, 1.0), demand)
    total = sum(exact.values())
    return _with_least({r: part / total for r, part in exact.items()}, min(least, 1.0 / len(exact)), 1.0)


def of_window(limit: float, used: Mapping[str, float], fraction: Mapping[str, float], replica: str) -> float:
    """What a replica may have used in any minute: what it did use, and its fraction of what nobody has used."""
    free = max(limit - sum(used.get(name, 0.0) for name in fraction), 0.0)
    return used.get(replica, 0.0) + free * fraction[replica]


def steady(now: int, target: int, most: int) -> int:
    """The share to ask for: grows at once, falls when that is worth it or must be.

    Args:
        now: The share that it has.
        most: What leaves the others their least.
    """
    kept = now if target < now and now - target <= int(_BAND * now) else target
    return max(min(kept, most), min(target, most))


class Waves:
    """What each job asks for of late: rises at once, falls slowly."""

    def __init__(self) -> None:
        self._of: dict[str, float] = {}
        self._at = -math.inf

    def add(self, asked: Mapping[str, int], now: float) -> dict[str, float]:
        """The demand now; seconds of any clock that does not go back."""
        turns = min((now - self._at) / _A_TURN, 100.0)
        self._at = now
        merged: dict[str, float] = {}
        for job in {**self._of, **asked}:
            count = asked.get(job, 0)
            fall = _FALL if count else _FALL_TO_NONE
            value = max(float(count), self._of.get(job, 0.0) * (1.0 - fall) ** turns)
            if count or value >= 0.5:
                merged[job] = round(value, 2)
        self._of = merged
        return dict(merged)


def _water_level(ceiling: float, demands: list[float]) -> float:
    """The level up to which all are filled, so that no more than the ceiling is given."""
    left, count = ceiling, len(demands)
    for demand in sorted(demands):
        if demand * count >= left:
            return left / count
        left -= demand
        count -= 1
    return math.inf


def _with_least(given: dict[str, float], least: float, total: float) -> dict[str, float]:
    """Raise those below the least to it, at the cost of those above it."""
    poor = {replica for replica, part in given.items() if part < least}
    rich = sum(part - least for replica, part in given.items() if replica not in poor)
    if not poor or rich <= 0:
        return given
    scale = (total - least * len(given)) / rich
    return {
        replica: least if replica in poor else least + (part - least) * scale
        for replica, part in given.items()
    }


def _in_turn(ceiling: int, demand: Demand, turn: int) -> dict[str, int]:
    asking = sorted(replica for replica, asked in demand.items() if any(asked.values()))
    idle = sorted(set(demand) - set(asking))
    first = turn * ceiling % len(asking) if asking else 0
    order = [*asking[first:], *asking[:first], *idle]
    return {replica: int(order.index(replica) < ceiling) for replica in demand}
