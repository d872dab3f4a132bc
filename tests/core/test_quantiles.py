"""Quantiles: one rule for what is learnt, what is judged, and what the middleman shows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hawk.core.diagnosis.evidence import Evidence, Model, Times
from hawk.core.diagnosis.learning import times
from hawk.core.diagnosis.view import View
from hawk.core.quantiles import quantile


@pytest.mark.parametrize(
    ("count", "median", "p95"), [(1, 1, 1), (2, 2, 2), (3, 2, 3), (4, 3, 4), (20, 11, 20), (100, 51, 96)]
)
def test_a_quantile_is_a_value_that_was_seen_and_of_two_the_larger(
    count: int, median: float, p95: float
) -> None:
    seen = [float(n) for n in range(1, count + 1)]
    assert (quantile(seen, 0.5), quantile(seen, 0.95)) == (median, p95)
    assert (quantile(seen, 0.0), quantile(seen, 1.0)) == (1.0, count)


def test_what_is_learnt_of_calls_is_what_they_are_judged_by() -> None:
    seconds = [4.0, 1.0, 3.0, 2.0]
    model = Model("openai", model="m", ok_seconds=seconds)
    view = View(Evidence("job", at="2026-01-01T00:00:00+00:00", models=[model]), datetime.now(UTC))
    assert view.model_times(model) == times(seconds) == Times(4, 3.0, 4.0, 4.0)
    assert times([]) is None
