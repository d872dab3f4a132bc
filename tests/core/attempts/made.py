"""Results as tests need them: short to write, in time, and with one provider a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hawk.core.attempts.aggregate import report
from hawk.core.attempts.report import Report
from hawk.core.attempts.results import Failure, Outcome, Pair, Result

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def pair(sample: object = 1, *, model: str = "openai/m", task: str = "t", agent: str | None = None) -> Pair:
    return Pair(task=task, sample=str(sample), model=model, agent=agent)


def result(
    of: Pair, attempt: int, outcome: Outcome | bool, *, start: float = 0, duration: float = 10, **fields: Any
) -> Result:
    if isinstance(outcome, bool):
        outcome = Outcome.PASS if outcome else Outcome.FAIL
    if outcome is Outcome.INFRA_ERROR:
        fields.setdefault("error", Failure("SandboxLost", "the sandbox is gone"))
    fields.setdefault("started_at", at(start))
    fields.setdefault("ended_at", at(start + duration))
    return Result(pair=of, attempt=attempt, outcome=outcome, duration=duration, **fields)


def reported(
    planned: Sequence[tuple[Pair, int]], results: Iterable[Result], job_id: str = "job", **fields: Any
) -> Report:
    given = {"policy": "parallel", "runs": max((k for _, k in planned), default=1), "cancels": False}
    return report(job_id, planned, results, **{**given, **fields})


P = pair()
"""The pair of tests that need no other."""


def row_of(*outcomes: Outcome | bool, planned: int | None = None, **fields: Any) -> Report:
    """The report of P alone, with these outcomes of its attempts."""
    results = [result(P, k, outcome) for k, outcome in enumerate(outcomes, 1)]
    return reported([(P, planned or len(outcomes))], results, **fields)
