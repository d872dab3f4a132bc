"""One pair, from its attempts: passed, failed, or not certain yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from hawk.core.attempts.report import AttemptRow, PairRow
from hawk.core.attempts.results import Check, Outcome, Pair, Result, Usage, as_number
from hawk.core.attempts.spans import moment, seconds

Key = tuple[Pair, int]
"""A pair and the number of an attempt at it."""

_SHORT = 300  # characters of an explanation in the report; all of it is in result.json
_LINE = 120


def newest(results: Iterable[Result]) -> tuple[dict[Key, Result], set[Key]]:
    """One result for each attempt: where there are two, the one that ended later.

    Returns:
        The results, and the attempts that had more than one.
    """
    kept: dict[Key, Result] = {}
    twice = set()
    for result in results:
        key = (result.pair, result.attempt)
        if key in kept:
            twice.add(key)
            result = max(kept[key], result, key=_age)
        kept[key] = result
    return kept, twice


def _age(result: Result) -> tuple[float, int, bytes]:
    ended = moment(result.ended_at)
    # The bytes: which of two that ended together is read first must not matter.
    return (ended if ended is not None else float("-inf"), result.generation, msgspec.json.encode(result))


def pair_order(pair: Pair) -> tuple[str, str, str, str]:
    """What pairs are sorted by where no plan orders them: agents may be None, which no text compares with."""
    return pair.task, pair.agent or "", pair.model, pair.sample


def began(result: Result) -> bool:
    """Whether the attempt started to run."""
    return result.started_at is not None or result.outcome.produced


def tokens(usage: Usage) -> int:
    """All tokens of one model."""
    return usage.total or usage.input + usage.output


def first_line(text: str) -> str:
    """The first line that says something, cut to 120 characters."""
    return text.strip().partition("\n")[0].strip()[:_LINE]


def pair_row(pair: Pair, planned: int, results: Mapping[int, Result], *, cancels: bool) -> PairRow:
    """What a pair's attempts amount to.

    A pair has passed when any attempt has. It has failed when all planned attempts have an outcome, at least
    one of them produced a result and none passed. Else it is undecided.

    Args:
        planned: Its attempts, numbered from 1. Results of others are left out.
        results: By number of attempt.
        cancels: The policy starts no further attempt once one has passed; those are then not missing.
    """
    known = [results[k] for k in sorted(results) if 1 <= k <= planned]
    produced = [result for result in known if result.outcome.produced]
    winners = [result for result in produced if result.passed]
    ended = sum(result.outcome is not Outcome.MISSING for result in known)
    final = bool(winners) or ended == planned
    best = next(iter(winners or produced), None)
    checks, explanation = _word(best) if best else ((), None)
    attempts = [_attempt(result) for result in known]
    if not (winners and cancels) and len(known) < planned:
        there = {result.attempt for result in known}
        attempts += [AttemptRow(k, Outcome.MISSING) for k in range(1, planned + 1) if k not in there]
        attempts.sort(key=lambda row: row.attempt)
    return PairRow(
        pair=pair,
        passed=True if winners else False if produced and final else None,
        final=final,
        planned=planned,
        run=sum(map(began, known)),
        produced=len(produced),
        passes=len(winners),
        canceled=sum(result.outcome is Outcome.CANCELED for result in known),
        attempts=attempts,
        representative=best.attempt if best else None,
        checks=checks,
        explanation=explanation,
        error=None if produced else _no_result(pair, planned, known),
        directory=pair.directory,
    )


def without_result(planned: int, known: Iterable[Outcome]) -> str:
    """How many planned attempts have which outcome but a result, as in "1 infra_error, 2 missing"."""
    outcomes = list(known)
    counts = Counter(outcome.value for outcome in outcomes if not outcome.produced)
    counts[Outcome.MISSING.value] += planned - len(outcomes)
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()) if number)


def _no_result(pair: Pair, planned: int, known: list[Result]) -> str:
    if planned < 1:
        return f"{pair}: no attempt is planned"
    outcomes = without_result(planned, (result.outcome for result in known))
    text = f"{pair}: none of {planned} planned attempts has a result: {outcomes}"
    reasons = [reason for result in known if (reason := _reason(result))]
    return f"{text}; the last: {reasons[-1]}" if reasons else text


def _reason(result: Result) -> str | None:
    if result.reason:
        return result.reason
    return f"{result.error.kind}: {first_line(result.error.message)}" if result.error else None


def _attempt(result: Result) -> AttemptRow:
    return AttemptRow(
        attempt=result.attempt,
        outcome=result.outcome,
        duration=seconds(result.duration),
        tokens=sum(map(tokens, result.usage.values())),
        cost=result.cost,
        reason=_reason(result),
        started_at=result.started_at,
        workspace=result.workspace is not None,
        uuid=result.uuid,
    )


def _word(result: Result) -> tuple[tuple[Check, ...], str | None]:
    """Checks and explanation of the scorer that decided: whose value is the score, else the first."""
    words = list(result.scores.values())
    if not words:
        return (), None
    word = next(
        (w for w in words if result.score is not None and as_number(w.value) == result.score), words[0]
    )
    text = word.explanation
    return word.checks, text if text is None or len(text) <= _SHORT else text[: _SHORT - 1] + "…"
