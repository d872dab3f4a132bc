"""Joining what several runs have shown of how long things take. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from hawk.core.diagnosis.evidence import Learnt, Times
from hawk.core.quantiles import quantile


def merged(parts: Iterable[Learnt | None]) -> Learnt:
    """What several runs know together.

    Quantiles of the whole are not known from quantiles of the parts: medians are weighed by their counts, and of the
    95 % bounds the largest counts, so that a bound never gets tighter than what was seen.
    """
    found = Learnt()
    for part in parts:
        if part is None:
            continue
        for name in ("models", "tools", "scorers", "starts"):
            mine: dict[str, Times] = getattr(found, name)
            for key, times in getattr(part, name).items():
                mine[key] = joined(mine[key], times) if key in mine else times
        found.idle = max(found.idle, part.idle)
    return found


def joined(a: Times, b: Times) -> Times:
    """Two samples of the same kind of thing."""
    count = a.count + b.count
    if not count:
        return a
    p50 = (a.p50 * a.count + b.p50 * b.count) / count
    return Times(count, round(p50, 3), max(a.p95, b.p95), max(a.most, b.most))


def times(seconds: Iterable[float]) -> Times | None:
    """What durations show; None without any."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    return Times(len(ordered), quantile(ordered, 0.5), quantile(ordered, 0.95), ordered[-1])
