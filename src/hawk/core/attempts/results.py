"""What one attempt came to: the file `attempts/<pair>/<k>/result.json`, and the rule that calls it passed."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec


class Outcome(StrEnum):
    """How one attempt ended."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    LIMIT = "limit"  # a limit ended it, and what it had done did not pass
    TIMEOUT = "timeout"  # the same for a limit of time
    INFRA_ERROR = "infra_error"  # sandbox, provider, agent code: never a wrong answer
    SCORER_ERROR = "scorer_error"  # the scorer failed, not the agent
    CANCELED = "canceled"  # stopped by a person, or because a sibling passed
    MISSING = "missing"  # planned, and without a result

    @property
    def produced(self) -> bool:
        """Whether the attempt produced a result: it is counted."""
        return self in _PRODUCED


_PRODUCED = frozenset({Outcome.PASS, Outcome.FAIL, Outcome.LIMIT, Outcome.TIMEOUT})


class Pair(msgspec.Struct, frozen=True):
    """One sample under one (task, agent, model): what is attempted."""

    task: str
    sample: str
    model: str
    agent: str | None = None

    @property
    def directory(self) -> str:
        """Name of its directory: legible, and unlike any other's."""
        return _directory(self)

    def __str__(self) -> str:
        return " · ".join(part for part in (self.task, self.agent, self.model, self.sample) if part)


@lru_cache(maxsize=1 << 15)
def _directory(pair: Pair) -> str:
    parts = (pair.task, pair.agent or "", pair.model, pair.sample)
    words = "-".join(_ODD.sub("-", part).strip("-.") for part in parts if part)
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{words[:120].strip('-.') or 'pair'}-{digest}"


_ODD = re.compile(r"[^A-Za-z0-9.]+")


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one model."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    total: int = 0


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of several things that a scorer looked at."""

    name: str
    passed: bool
    notes: str = ""


class Scored(msgspec.Struct, frozen=True, omit_defaults=True):
    """One scorer's word.

    Attributes:
        value: As the scorer gave it: text, number, list or mapping.
        answer, explanation: As the scorer gave them, cut to a few thousand characters.
        checks: The scorer's own list, where its metadata has one.
    """

    value: Any = None
    answer: str | None = None
    explanation: str | None = None
    checks: tuple[Check, ...] = ()


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why there is no result: `kind` is the exception's class, `phase` one of init, agent, scoring."""

    kind: str
    message: str
    phase: str = "agent"


class SandboxRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The attempt's sandbox: provider type, its label, the limits that were hit and how often, why it was lost."""

    type: str
    label: str | None = None
    troubles: dict[str, int] = {}
    lost: str | None = None


class Workspace(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `workspace.tar.zst` holds: files, bytes of their content, bytes of the packed file, what is not in it."""

    files: int
    bytes: int
    size: int
    skipped: tuple[str, ...] = ()
    truncated: bool = False


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt at a pair, final.

    Attributes:
        attempt: k, from 1.
        score: The number that `PassRule` looked at; None where there was none.
        started_at, ended_at: ISO 8601 in UTC; `started_at` is None for one that never began.
        duration: Seconds from its start, sandbox and scoring included, to its end.
        working: Of these, seconds in which it did not wait for others.
        usage: Tokens by model; `cost` in dollars where prices are known.
        error: Set for infra_error and scorer_error.
        reason: One line: which limit, whose pass canceled it.
        limit: Inspect's name of the limit that ended it.
        retries: Times it was begun again after an error, in its worker.
        model_calls, tool_calls: That came to an end.
        provider_retries: HTTP calls to a model that were made again, by what they met ("429 RateLimitError": 3).
        workspace: None when none was kept; `workspace_error` says why one that should be there is not.
        fingerprint: Of everything in the eval set that may change an outcome: equal means comparable.
        uuid, eval_id, log: Where Inspect keeps the transcript.
        rescored_from: Id of the job whose attempt was scored again, without an agent. Then scores and outcome are new,
            and what the attempt took (start, end, time, tokens, money, calls, sandbox, limit) is as it was there.
    """

    pair: Pair
    attempt: int
    outcome: Outcome
    scores: dict[str, Scored] = {}
    score: float | None = None
    started_at: str | None = None
    ended_at: str | None = None
    duration: float | None = None
    working: float | None = None
    usage: dict[str, Usage] = {}
    cost: float | None = None
    error: Failure | None = None
    reason: str | None = None
    limit: str | None = None
    retries: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    provider_retries: dict[str, int] = {}
    sandbox: SandboxRecord | None = None
    workspace: Workspace | None = None
    workspace_error: str | None = None
    worker: int | None = None
    fingerprint: str = ""
    generation: int = 1
    uuid: str | None = None
    eval_id: str | None = None
    log: str | None = None
    version: int = 1
    rescored_from: str | None = None

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASS


class PassRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When an attempt has passed.

    Attributes:
        scorer: Name of the scorer that decides; None: the first.
        threshold: The least number that passes.
    """

    scorer: str | None = None
    threshold: float = 1.0

    def number(self, values: dict[str, Any]) -> float | None:
        """The number that decides, among the scorers' values by name; None where there is none."""
        if not values:
            return None
        if self.scorer is None:
            return as_number(next(iter(values.values())))
        return as_number(values.get(self.scorer))

    def passes(self, number: float | None) -> bool:
        return number is not None and number >= self.threshold


_WORDS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def as_number(value: Any) -> float | None:
    """A score's value as a number, by Inspect's rules (`value_to_float`); of a mapping or list the mean.

    NaN, which Inspect gives to an attempt that was not scored, is no number.
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        numbers = [as_number(item) for item in value]
        known = [number for number in numbers if number is not None]
        return sum(known) / len(known) if known and len(known) == len(numbers) else None
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        word = _WORDS.get(value, _WORDS.get(value.lower()))
        if word is not None:
            return word
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, int | float):
        return None if value != value else float(value)
    return None
