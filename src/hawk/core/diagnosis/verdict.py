"""What a diagnosis says: verdicts with their evidence, what is healthy, and why each rule did or did not speak."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from hawk.core.diagnosis.causes import Layer, Scope, Severity, Source, Who


class Fact(msgspec.Struct, omit_defaults=True):
    """One observation. `at` is when it was, ISO 8601, where that is not the moment of the evidence."""

    source: Source
    fact: str
    at: str | None = None


class FixKind(StrEnum):
    """Remedies that Hawk can carry out itself, on request: each is safe, and can be undone or loses no finished work."""

    CANCEL_TOOL_CALL = "cancel_tool_call"  # the agent is told that the call was canceled, and goes on
    REQUEUE = "requeue"  # the attempt is ended as an error and run again
    SCORE = "score"  # the attempt is ended and scored as it is
    RETUNE = "retune"  # retries or connections, live
    PAUSE_MODEL = "pause_model"  # no new request of this model until it is resumed
    RESUME_MODEL = "resume_model"
    RAISE_LIMIT = "raise_limit"  # for attempts that have not begun
    RESTART_WORKER = "restart_worker"  # what is in flight in it runs again; what has ended is kept
    RESUME_JOB = "resume_job"


class Fix(msgspec.Struct, omit_defaults=True):
    """A remedy with what it is applied to.

    Attributes:
        uuids: Attempts.
        subject: Model (`provider/model`), worker index or name of a limit or setting.
        value: What a setting is set to.
    """

    kind: FixKind
    uuids: list[str] = []
    subject: str = ""
    value: float | None = None


class Verdict(msgspec.Struct, omit_defaults=True):
    """A named cause.

    Attributes:
        n: Its number in this diagnosis, from 1: what `hawk fix` takes.
        cause: The contract's word.
        what: What is wrong, one line.
        subject: Which model, worker, tool, task or setting.
        since: When it began.
        clears: When it ends by itself, if it does.
        attempts, pairs: How many it holds.
        held: Names of attempts that it holds, at most 20.
        uuids: All of them, where they have one.
        cost_hours: Attempt-hours that it has cost so far: retries x wait, or attempts x time held.
        remedy: One line.
        next: A command that can be pasted.
        before_death: It was so when the runner ended, and would be met again.
        weakened: Sources that it could not be checked against.
        doc: Section of docs/why-is-my-eval-stuck.md.
    """

    n: int
    cause: str
    layer: Layer
    scope: Scope
    severity: Severity
    what: str
    who: Who
    remedy: str
    next: str
    since: str | None = None
    clears: str | None = None
    evidence: list[Fact] = []
    subject: str = ""
    attempts: int = 0
    pairs: int = 0
    held: list[str] = []
    uuids: list[str] = []
    cost_hours: float = 0.0
    before_death: bool = False
    weakened: list[str] = []
    fix: Fix | None = None
    doc: str = ""


class Judged(msgspec.Struct, omit_defaults=True):
    """What became of one rule.

    Attributes:
        outcome: `fired`, `ruled out` (fired, but another verdict explains it), `not judged` (its sources are missing),
            `not seen`.
        by: What ruled it out, or the sources that are missing.
    """

    cause: str
    layer: Layer
    outcome: str
    by: str = ""
    what: str = ""


class Diagnosis(msgspec.Struct, omit_defaults=True):
    """The whole answer: the body of `GET /monitoring/jobs/{id}/diagnosis`.

    Attributes:
        at: The moment that it speaks of.
        status: Of the job.
        healthy: What is well, a line each.
        missing: Sources that could not be read, and why.
        why: Every rule, and what became of it.
    """

    job_id: str
    at: str
    status: str = ""
    verdicts: list[Verdict] = []
    healthy: list[str] = []
    missing: dict[str, str] = {}
    why: list[Judged] = []


def builtins(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Verdicts as a snapshot carries them: without the list of all attempts."""
    brief = [msgspec.structs.replace(verdict, uuids=[]) for verdict in verdicts]
    found: list[dict[str, Any]] = msgspec.to_builtins(brief)
    return found
