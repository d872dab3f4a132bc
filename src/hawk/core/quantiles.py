"""Quantiles of what was seen, by one rule: always a value that was seen, and of two the larger."""

from __future__ import annotations

from collections.abc import Sequence


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies.

    Args:
        ordered: In rising order, at least one.
        share: From 0 to 1; 0.5 is the median.
    """
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
