"""What the other policies would have used, by what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from hawk.core.attempts.forecast import Imagined, play
from hawk.core.attempts.planning import alternatives
from hawk.core.attempts.policy import Rules
from hawk.core.attempts.report import PolicyUse
from hawk.core.attempts.results import Pair, Result, Usage


def replayed(
    planned: Sequence[tuple[Pair, int]],
    results: Iterable[Result],
    rules: Rules,
    *,
    slots: int,
    predicted: Mapping[Pair, float | None],
) -> list[PolicyUse]:
    """The policies beside the one that was used, replayed in imagined time: without overhead.

    An attempt that has no result of its own, as its policy or a person stopped it, is taken to be like the others of its
    pair: as long as their median, passing as most of them did. Pairs without any result are left out.

    Args:
        planned: Pairs in the plan's order, each with its number of attempts.
        slots: Attempts at once.
        predicted: Seconds that the plan expected of each pair.
    """
    measured: dict[Pair, dict[int, Result]] = {}
    for result in results:
        if result.outcome.produced and result.duration is not None:
            measured.setdefault(result.pair, {})[result.attempt] = result
    pairs = [
        _imagine(measured[pair], runs, predicted.get(pair)) for pair, runs in planned if pair in measured
    ]
    if not pairs:
        return []
    ways = alternatives(rules) if max(len(pair.seconds) for pair in pairs) > 1 else []
    return [play(way, pairs, slots) for way in ways]


def _imagine(known: Mapping[int, Result], runs: int, predicted: float | None) -> Imagined:
    seconds = median(result.duration or 0.0 for result in known.values())
    passes = 2 * sum(result.passed for result in known.values()) > len(known)
    costs = [result.cost for result in known.values() if result.cost is not None]
    tokens = sum(_tokens(usage) for result in known.values() for usage in result.usage.values())
    return Imagined(
        [(known[k].duration or 0.0) if k in known else seconds for k in range(1, runs + 1)],
        [known[k].passed if k in known else passes for k in range(1, runs + 1)],
        predicted,
        round(tokens / len(known)),
        sum(costs) / len(costs) if costs else None,
    )


def _tokens(usage: Usage) -> int:
    return usage.total or usage.input + usage.output
