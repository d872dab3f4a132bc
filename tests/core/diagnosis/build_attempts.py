"""Evidence about attempts, their commands and their ends, made in a few words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hawk.core.diagnosis.causes import Cause
from hawk.core.diagnosis.evidence import (
    Attempt,
    Call,
    ErrorGroup,
    Evidence,
    Process,
    Repeat,
    TaskCount,
    Try,
    Wait,
)
from hawk.core.diagnosis.rule import Finding, Rule
from hawk.core.diagnosis.rules import attempt, awaits, sandbox
from hawk.core.diagnosis.view import View
from hawk.core.snapshot import Progress
from hawk.core.states import ActivityType, SamplePhase

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULES: tuple[Rule, ...] = (*awaits.RULES, *sandbox.RULES, *attempt.RULES)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def in_flight(name: str = "s1", waited: float = 120.0, **fields: Any) -> Attempt:
    """An attempt whose agent waits for a tool, unless told otherwise."""
    fields = {
        "activity": ActivityType.TOOL,
        "phase": SamplePhase.RUNNING,
        "detail": "bash",
        "since": ago(waited),
        "idle": waited,
        "uuid": f"u-{name}",
        "worker": 0,
        **fields,
    }
    return Attempt("task-1", name, 1, name=f"t/{name}/1", **fields)


def process(command: str, quiet: float, waits: str = "", **fields: Any) -> Process:
    return Process(command, "S", waits, age=fields.pop("age", quiet + 1), quiet=quiet, **fields)


def call(detail: str, age: float, action: str = "Tool Call", timeout: float | None = None) -> Call:
    return Call(action, detail, ago(age), timeout)


def wait(kind: str, place: str = "mine/agent.py:12 think", since: float = 100.0, **fields: Any) -> Wait:
    fields = {"looks": 8, "own": True, "frames": [place.rpartition(" ")[2]], **fields}
    return Wait(place, f"asyncio/x.py:1 {kind}", at=ago(2), kind=kind, since=ago(since), **fields)


def ended(message: str, count: int = 3, **fields: Any) -> ErrorGroup:
    fields = {"phase": "sandbox", "first_at": ago(90), "last_at": ago(5), "attempts": count, **fields}
    return ErrorGroup("RuntimeError", message, count, "task-1", **fields)


def evidence(*attempts: Attempt, ends: Sequence[ErrorGroup] = (), **progress: int) -> Evidence:
    task = TaskCount("task-1", "t", progress=Progress(total=10, **progress))
    return Evidence("job", NOW.isoformat(), tasks=[task], attempts=list(attempts), ended=list(ends))


def found(evidence: Evidence, cause: Cause, later: float = 0.0) -> list[Finding]:
    """What the rule of a cause finds, after a trip through JSON, as if it were read after death."""
    read = msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence)
    view = View(read, NOW + timedelta(seconds=later))
    return [finding for rule in RULES if rule.cause is cause for finding in rule.look(view)]


def only(evidence: Evidence, cause: Cause) -> Finding:
    (finding,) = found(evidence, cause)
    return finding


__all__ = ["Cause", "Repeat", "Try"]
