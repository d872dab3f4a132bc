"""Confidence intervals of rates: Wilson's, and one for attempts that go together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable

from hawk.core.attempts.report import Estimate

NORMAL = 1.959963984540054
"""The normal distribution's 97.5 % quantile."""

_STUDENT = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)
"""Student's t, 97.5 %, for 1 to 9 degrees of freedom: too few for the series below."""

_NOTHING = 1e-9
"""A standard error below this is rounding."""


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t with `freedom` degrees of freedom, from 1.

    From 10 on by the series in 1/freedom of Abramowitz & Stegun, 26.7.5, right to four decimals.
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z, v = NORMAL, float(freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / v + second / v**2 + third / v**3 + fourth / v**4


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share among n independent things (Wilson 1927): never of width 0."""
    if n <= 0:
        return 0.0, 1.0
    square = NORMAL * NORMAL
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = NORMAL / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def clustered(values: Iterable[tuple[Hashable, float]]) -> Estimate | None:
    """The mean of values in 0 to 1 with its 95 % interval, where values of one cluster go together.

    The standard error is cluster-robust: Miller 2024, "Adding Error Bars to Evals", equation 4, times
    sqrt(G / (G - 1)) for G clusters, with Student's t of G - 1 degrees of freedom, both for the case of few
    clusters. Where it says nothing (one cluster, or all clusters alike: everything passed), Wilson's interval
    over the clusters stands in: G samples that all passed leave room for some that would not.

    Args:
        values: Each with its cluster: attempts at the same sample succeed and fail together, whatever the
            model.

    Returns:
        None without values. `n` of the estimate is the number of values.
    """
    sums: dict[Hashable, list[float]] = defaultdict(list)
    for cluster, value in values:
        sums[cluster].append(value)
    n = sum(map(len, sums.values()))
    if n == 0:
        return None
    mean = min(1.0, max(0.0, math.fsum(value for members in sums.values() for value in members) / n))
    deviations = (math.fsum(members) - len(members) * mean for members in sums.values())
    error = math.sqrt(math.fsum(d * d for d in deviations)) / n
    clusters = len(sums)
    if clusters < 2 or error < _NOTHING:
        low, high = wilson(mean, clusters)
    else:
        half = student(clusters - 1) * error * math.sqrt(clusters / (clusters - 1))
        low, high = max(0.0, mean - half), min(1.0, mean + half)
    return Estimate(value=mean, low=low, high=high, n=n)
