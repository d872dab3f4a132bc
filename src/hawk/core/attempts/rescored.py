"""Scoring again what the attempts of an earlier job left: which of them, and what the new results keep of theirs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from hawk.core.attempts.policy import NOT_NEEDED
from hawk.core.attempts.results import Outcome, Pair, Result

Key = tuple[Pair, int]
"""A pair and the number of an attempt at it."""

SHOWN = 5
"""Attempts that a line of a plan's journal names."""


def scorable(result: Result) -> bool:
    """Whether there is something to score: the agent was done, whatever the scorer made of it."""
    return result.outcome.produced or result.outcome is Outcome.SCORER_ERROR


def nothing_to_score(source: str) -> str:
    """The reason of an attempt that is not scored again.

    Args:
        source: Id of the job whose attempts are.
    """
    return f"{NOT_NEEDED}: it has no result in {source}"


def carried(new: Result, old: Result, source: str) -> Result:
    """New scores for what an attempt was.

    Outcome, scores, error and reason are new; also where the transcript of the scoring is, by whom and under which config
    it was done. All that says what the attempt took (start, end, time, tokens, money, calls, retries, its sandbox, the
    limit that ended it) is the old result's: nothing of it was spent again, and reports stay comparable.

    Args:
        new: As its worker found it, workspace included.
        old: The result in the job `source`.
    """
    return msgspec.structs.replace(
        new,
        started_at=old.started_at,
        ended_at=old.ended_at,
        duration=old.duration,
        working=old.working,
        usage=old.usage,
        cost=old.cost,
        limit=old.limit,
        retries=old.retries,
        model_calls=old.model_calls,
        tool_calls=old.tool_calls,
        provider_retries=old.provider_retries,
        sandbox=old.sandbox,
        rescored_from=source,
    )


def left_as_it_was(pair: Pair, attempt: int, old: Result | None, source: str, *, generation: int) -> Result:
    """The result of an attempt that is not scored again.

    What came of it stays what it was, an infrastructure error say; where nothing did, it is canceled. Its workspace and
    transcript stay in the job `source`.
    """
    if old is None:
        return Result(
            pair=pair,
            attempt=attempt,
            outcome=Outcome.CANCELED,
            reason=nothing_to_score(source),
            generation=generation,
            rescored_from=source,
        )
    return msgspec.structs.replace(
        old,
        workspace=None,
        workspace_error=f"it is not scored again: what was kept is in {source}",
        worker=None,
        uuid=None,
        eval_id=None,
        log=None,
        generation=generation,
        rescored_from=source,
    )


def differences(planned: Collection[Key], kept: Collection[Key], source: str) -> list[str]:
    """What a plan and the job `source` do not have in common, a line for each way.

    Args:
        planned: Attempts of the plan.
        kept: Attempts of the source that can be scored.
    """
    lines = []
    if lacking := [key for key in planned if key not in kept]:
        lines.append(f"not scored again, for {source} has no result of them: {_named(lacking)}")
    if unwanted := [key for key in kept if key not in planned]:
        lines.append(f"in {source} and not in this eval set, so not scored again: {_named(unwanted)}")
    return lines


def _named(keys: Collection[Key]) -> str:
    names = [f"{pair}, attempt {attempt}" for pair, attempt in keys]
    more = f"; … {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} attempt{'s' if len(names) > 1 else ''}: {'; '.join(names[:SHOWN])}{more}"


def outcomes_left_out(results: Iterable[Result]) -> str:
    """Attempts that can't be scored again by outcome, as in "2 canceled, 1 infra_error"; empty for none."""
    counts: dict[str, int] = {}
    for result in results:
        if not scorable(result):
            counts[result.outcome.value] = counts.get(result.outcome.value, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
