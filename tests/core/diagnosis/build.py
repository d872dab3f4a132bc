"""Evidence in a few words, for tests of rules. Times are given as seconds before `NOW`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hawk.core.diagnosis.causes import Severity
from hawk.core.diagnosis.diagnose import diagnose
from hawk.core.diagnosis.evidence import (
    Attempt,
    CallGroup,
    ErrorGroup,
    Evidence,
    Held,
    Lane,
    Model,
    OpenRequest,
    Probe,
    Retrying,
    TaskCount,
)
from hawk.core.diagnosis.verdict import Verdict
from hawk.core.snapshot import Progress
from hawk.core.states import ActivityType

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
NAME = "openai/gpt-4o"


def ago(seconds: float) -> str:
    """The time so many seconds before now; after it, for less than nothing."""
    return (NOW - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def attempt(number: int, activity: ActivityType | None = ActivityType.MODEL, **more: Any) -> Attempt:
    """An attempt of one task, with the uuid `u<number>`."""
    given = {
        "name": f"t/s{number}/1", "uuid": f"u{number}", "model": NAME, "activity": activity,
        "since": ago(60), "started_at": ago(120), **more,
    }  # fmt: skip
    return Attempt("t", f"s{number}", 1, **given)


def attempts(count: int, activity: ActivityType | None = ActivityType.MODEL, **more: Any) -> list[Attempt]:
    return [attempt(number, activity, **more) for number in range(count)]


def retrying(
    count: int,
    waited: float = 0.0,
    *,
    since: float = 60.0,
    next_in: float = 10.0,
    kind: str = "",
    **more: Any,
) -> Retrying:
    """An attempt's failures in a row, and its pauses."""
    model = more.pop("model", NAME)
    return Retrying(count, waited, ago(since), ago(-next_in), kind=kind, model=model, **more)


def group(
    kind: str, streak: int, *, again: int | None = None, since: float = 60.0, last: float = 1.0, **more: Any
) -> CallGroup:
    """Requests that ended in one way, `streak` of them since the last good answer."""
    count = more.pop("count", streak)
    again = max(0, streak - 1) if again is None else again
    return CallGroup(
        kind, count, streak=streak, again=again, first_at=ago(since), last_at=ago(last), **more
    )  # fmt: skip


def model(
    *calls: CallGroup, ok: float | None = None, name: str = NAME, since: float | None = None, **more: Any
) -> Model:
    """A model of which so many requests failed; `ok`: seconds since its last good answer."""
    provider, _, plain = name.partition("/")
    failures = sum(call.streak for call in calls if call.kind != "client_gone")
    first = since if since is not None else 60.0
    return Model(
        provider, "default", plain, name, calls=list(calls), last_ok=None if ok is None else ago(ok),
        failing=failures, failing_since=ago(first) if failures else None, **more,
    )  # fmt: skip


def request(number: int, quiet: float, *, phase: str = "sent", **more: Any) -> OpenRequest:
    """An open request of attempt `number`."""
    sent = None if phase == "waiting" else more.pop("upstream_age", quiet)
    given = {"uuid": f"u{number}", "name": f"t/s{number}/1", "age": quiet, "upstream_age": sent, **more}
    return OpenRequest(f"r{number}", phase=phase, quiet=0.0 if phase == "waiting" else quiet, **given)


def lane(**more: Any) -> Lane:
    given: dict[str, Any] = {
        "limit": 8,
        "most": 8,
        "in_flight": 8,
        "by_job": [Held("j", 8, 0, mine=True)],
        **more,
    }
    return Lane(**given)


def probe(*, answered: bool, before: float = 5.0) -> Probe:
    return Probe(
        ago(before), answered, 0.1, 200 if answered else None, "" if answered else "no answer within 5 s"
    )


def ended(kind: str, message: str, count: int = 1, **more: Any) -> ErrorGroup:
    """Attempts that ended with an error."""
    return ErrorGroup(kind, message, count, task="t", first_at=ago(60), last_at=ago(5), **more)


def evidence(
    in_flight: Sequence[Attempt] = (), models: Iterable[Model] = (), *, completed: int = 0, **more: Any
) -> Evidence:
    """A document of one task."""
    found = Evidence("j", NOW.isoformat(), attempts=list(in_flight), models=list(models), **more)
    found.tasks = found.tasks or [TaskCount("t", "t", NAME)]
    found.progress = Progress(total=100, running=len(in_flight), completed=completed)
    return found


def verdicts(found: Evidence) -> list[Verdict]:
    """What is said of it."""
    return diagnose(found, NOW)


def verdict(found: Evidence, cause: str) -> Verdict:
    """The one verdict of a cause."""
    said = [v for v in verdicts(found) if v.cause == cause]
    assert len(said) == 1, [(v.cause, v.severity, v.what) for v in verdicts(found)]
    return said[0]


def alarms(found: Evidence) -> list[tuple[str, str]]:
    """Cause and severity of all that is more than information."""
    return [(v.cause, v.severity) for v in verdicts(found) if v.severity is not Severity.INFO]
