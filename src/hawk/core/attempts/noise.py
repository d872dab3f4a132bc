"""How many pairs flip between two runs although nothing changed, and which loss would still show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hawk.core.attempts.betabinomial import fit, flips
from hawk.core.attempts.report import PairRow
from hawk.core.attempts.results import Outcome
from hawk.core.attempts.statistics import smallest_loss

BIG = 0.2
"""A net loss of this share of the pairs is big: pairs that could not have shown even it are too few."""

Rows = Sequence[tuple[PairRow, PairRow]]
"""Pairs that are decided in both runs, as they are in either."""

_BROKEN = (Outcome.INFRA_ERROR, Outcome.SCORER_ERROR)


class Noise(NamedTuple):
    """What identical runs would show.

    Attributes:
        expected: Flips, and `sd` their standard deviation; None where the attempts don't say.
        limit: What flips hardly exceed, the doubt in `expected` itself included.
        smallest: The least net loss of pairs that would be significant among as many flips.
    """

    expected: float | None
    sd: float | None
    limit: float | None
    smallest: int

    def exceeded(self, flipped: int) -> bool:
        """Whether more pairs flipped than identical runs would show."""
        return self.limit is not None and flipped > self.limit


def noise(rows: Rows, lost: int, gained: int) -> Noise:
    """What two identical runs of these pairs would show, by how attempts at one pair differ within a run.

    Where no pair was attempted twice only `smallest` is known: flips that go both ways alike are taken for
    noise.
    """
    both = [row for pair in rows for row in pair]
    model = fit((row.produced, row.passes) for row in both)
    if model is None:
        return Noise(None, None, None, smallest_loss(2 * min(lost, gained)))
    expected, sd = flips(model, ((_tries(row), _tries(other)) for row, other in rows))
    # The expectation rests on the pairs that did both, pass and fail, and is only as well known as their
    # number: to one part in its root. Where none did, one might have.
    repeated = sum(row.produced > 1 for row in both)
    mixed = sum(0 < row.passes < row.produced for row in both)
    doubt = (expected + len(rows) / repeated) ** 2 / (mixed + 1)
    limit = expected + 2 * (sd * sd + doubt) ** 0.5
    return Noise(expected, sd, limit, smallest_loss(expected))


def _tries(row: PairRow) -> int:
    """Attempts that a pair had to pass in, those that its pass made unnecessary too."""
    if not row.passed:
        return row.produced
    return max(1, row.planned - sum(attempt.outcome in _BROKEN for attempt in row.attempts))
