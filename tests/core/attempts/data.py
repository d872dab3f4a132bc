"""The published pairs, as in `benchmarks/data`."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from hawk.core.attempts.forecast import Imagined
from hawk.core.attempts.history import Guess, History, Past
from hawk.core.attempts.results import Pair

DATA = Path(__file__).parents[3] / "benchmarks" / "data"


@cache
def history() -> History:
    """What a scheduler may know beforehand: one earlier attempt of each pair."""
    with (DATA / "history.csv").open(newline="") as f:
        return History(
            Past(Pair(row["experiment"], row["eval"], "m"), float(row["duration_s"]), row["passed"] == "1")
            for row in csv.DictReader(f)
        )


@cache
def replay() -> list[tuple[Pair, tuple[float, ...], tuple[bool, ...]]]:
    """Pairs in file order, with the seconds and passes of their attempts."""
    pairs: dict[Pair, list[tuple[float, bool]]] = {}
    with (DATA / "replay.csv").open(newline="") as f:
        for row in csv.DictReader(f):
            pair = Pair(row["experiment"], row["eval"], "m")
            pairs.setdefault(pair, []).append((float(row["duration_s"]), row["passed"] == "1"))
    return [(pair, tuple(s for s, _ in rows), tuple(p for _, p in rows)) for pair, rows in pairs.items()]


def guesses() -> list[Guess | None]:
    return [history().guess(pair) for pair, _, _ in replay()]


def course(*, known: bool) -> list[Imagined]:
    """What really happens; `known`: the plan has predictions from history."""
    return [
        Imagined(seconds, passes, guess.seconds if known and guess else None)
        for (_, seconds, passes), guess in zip(replay(), guesses(), strict=True)
    ]


def slowest() -> float:
    """Seconds of the longest attempt."""
    return max(max(seconds) for _, seconds, _ in replay())
