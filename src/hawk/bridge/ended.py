"""What Inspect says of an attempt that is over, as plain data."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hawk.bridge.modelerror import without_request
from hawk.core.attempts.outcome import Verdict, idle, judge
from hawk.core.attempts.results import Check, Failure, PassRule, Scored, Usage

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample

    from hawk.bridge.loggedsample import LoggedSample

_TEXT = 4000
_CHECKS = 200
_PHASES = {"solvers": "agent", "scorers": "scoring"}
"""Inspect's spans of an attempt to our words."""
_REPR = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.DOTALL)
_LAST_LINE = re.compile(r"^ .*\n([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
"""Of a traceback: what stands to the left below the last line of code."""


class Ended(msgspec.Struct, frozen=True):
    """An attempt that is over.

    Attributes:
        canceled: It was interrupted, by a person or because it was not needed any more.
        model_tries: Calls of a model, whatever came of them; `model_calls` those that were answered.
        digest: Of what the sample was made from, where its metadata says so, as folder evals do.
        sandbox_calls: Commands and files of the agent's in the sandbox: not what Inspect and scorers do there.
    """

    sample_id: str
    epoch: int
    uuid: str | None
    scores: dict[str, Scored]
    values: dict[str, Any]
    error: Failure | None
    canceled: bool
    limit: str | None
    limit_reason: str | None
    started_at: str | None
    ended_at: str | None
    total_time: float | None
    working_time: float | None
    usage: dict[str, Usage]
    cost: float | None
    retries: int
    model_tries: int
    model_calls: int
    tool_calls: int
    sandbox_calls: int
    provider_retries: dict[str, int]
    digest: str | None = None


def ended(sample: EvalSample | LoggedSample, provider_retries: dict[str, int]) -> Ended:
    """From Inspect's record of one attempt, in its process or from its log."""
    scores = sample.scores or {}
    canceled = sample.error is not None and sample.error.message.startswith("CancelledError")
    events: Sequence[Any] = sample.events
    models = [event for event in events if event.event == "model"]
    costs = [usage.total_cost for usage in sample.model_usage.values() if usage.total_cost is not None]
    return Ended(
        sample_id=str(sample.id),
        epoch=sample.epoch,
        uuid=sample.uuid,
        scores={
            name: Scored(
                value=score.value,
                answer=_cut(score.answer),
                explanation=_cut(score.explanation),
                checks=_checks(score.metadata),
            )
            for name, score in scores.items()
        },
        values={name: score.value for name, score in scores.items()},
        error=None if canceled else _failure(sample),
        canceled=canceled,
        limit=sample.limit.type if sample.limit else None,
        limit_reason=sample.limit.reason if sample.limit else None,
        started_at=sample.started_at,
        ended_at=sample.completed_at,
        total_time=sample.total_time,
        working_time=sample.working_time,
        usage={name: _usage(usage) for name, usage in sample.model_usage.items()},
        cost=sum(costs) if costs else None,
        retries=len(sample.error_retries or ()),
        model_tries=len(models),
        model_calls=sum(event.error is None and event.pending is not True for event in models),
        tool_calls=sum(event.event == "tool" and event.pending is not True for event in events),
        sandbox_calls=_agents_sandbox_calls(events),
        provider_retries=provider_retries,
        digest=str(digest) if (digest := (sample.metadata or {}).get("digest")) else None,
    )


def verdict_on(end: Ended, rule: PassRule) -> Verdict:
    """What an attempt came to."""
    return judge(
        rule,
        values=end.values,
        error=end.error,
        canceled=end.canceled,
        limit=end.limit,
        limit_reason=end.limit_reason,
        idle=idle(
            model_tries=end.model_tries,
            model_calls=end.model_calls,
            tool_calls=end.tool_calls,
            sandbox_calls=end.sandbox_calls,
            usage=bool(end.usage),
        ),
        unscored=why_unscored(end, rule),
    )


def why_unscored(end: Ended, rule: PassRule) -> str | None:
    """What the scorer that decides says of its score."""
    decides = end.scores.get(rule.scorer or next(iter(end.scores), ""))
    return None if decides is None else decides.explanation


def _agents_sandbox_calls(events: Sequence[Any]) -> int:
    calls, agent = 0, False
    for event in events:
        if event.event == "span_begin" and event.name in _PHASES:
            agent = event.name == "solvers"
        calls += agent and event.event == "sandbox"
    return calls


def _failure(sample: EvalSample | LoggedSample) -> Failure | None:
    if sample.error is None:
        return None
    kind, text = _taken_apart(without_request(sample.error.message), sample.error.traceback)
    return Failure(kind, _cut(text) or kind, _phase(sample.events))


def _taken_apart(message: str, traceback: str) -> tuple[str, str]:
    """The class of an exception and its text. Inspect keeps its `message`, where it has one, else its repr."""
    shown = _REPR.fullmatch(message)
    if shown is None:
        lines = _LAST_LINE.findall(traceback)
        return lines[-1].rpartition(".")[2] if lines else "Error", message
    kind, inside = shown.groups()
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        value = ast.literal_eval(inside)
        if isinstance(value, str):
            return kind, value
    return kind, inside


def _phase(events: Sequence[Any]) -> str:
    """Where the last error was: `init`, `agent` or `scoring`. An error is recorded once the span it was in has ended."""
    phase, found = "init", None
    for event in events:
        if event.event == "span_begin" and event.name in _PHASES:
            phase = _PHASES[event.name]
        elif event.event == "error":
            found = phase
    return found or phase


def _usage(usage: Any) -> Usage:
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.input_tokens_cache_read or 0,
        cache_write=usage.input_tokens_cache_write or 0,
        reasoning=usage.reasoning_tokens or 0,
        total=usage.total_tokens,
    )


def _checks(metadata: dict[str, Any] | None) -> tuple[Check, ...]:
    """A scorer's own list, where its metadata has one: `checks: [{name, passed, notes}]`."""
    rows = (metadata or {}).get("checks")
    if not isinstance(rows, list):
        return ()
    return tuple(
        Check(str(row["name"])[:200], bool(row["passed"]), str(row.get("notes") or "")[:_TEXT])
        for row in rows[:_CHECKS]
        if isinstance(row, dict) and "name" in row and "passed" in row
    )


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _TEXT else f"{text[:_TEXT]} …"
