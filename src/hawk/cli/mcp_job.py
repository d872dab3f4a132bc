"""`hawk_watch` and `hawk_diagnose`: how a job is doing, and why it is not doing better."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from hawk.cli import watch_model as model
from hawk.cli.context import App
from hawk.cli.mcp_base import Expendable, JobArgs, Result, Tool, Untrusted
from hawk.cli.mcp_text import short
from hawk.cli.text import duration
from hawk.cli.watch_concerns import concerns, waits
from hawk.cli.watch_troubles import troubles
from hawk.core.diagnosis.verdict import Verdict as NamedCause
from hawk.core.snapshot import Progress, Snapshot

VERDICTS = 3
"""Verdicts in a snapshot: the whole diagnosis is a tool of its own."""
EVIDENCE = 6
HELD = 5


class Counts(BaseModel):
    """Attempts. The six others add up to `total`, which comes from the plan."""

    total: int
    completed: int
    running: int
    errored: int
    canceled: int
    limit: int = Field(description="Ended by a limit: not a bug.")
    waiting: int

    @classmethod
    def of(cls, progress: Progress) -> Counts:
        return cls(**{name: getattr(progress, name) for name in Progress.__struct_fields__})


class TaskState(BaseModel):
    name: str
    progress: Counts
    http_retries: int
    eta_seconds: float | None
    note: Untrusted | None


class Attention(BaseModel):
    """An attempt worth a look."""

    task: str
    sample: Untrusted | None
    attempt: int
    uuid: str | None
    phase: str
    what: Untrusted | None = Field(description="What it waits for and for how long, or how it ended.")


class Brief(BaseModel):
    """A verdict, short."""

    cause: str
    severity: str
    what: Untrusted | None

    def __str__(self) -> str:
        return f"{self.severity}: {self.cause}" + (f" {self.what}" if self.what else "")


class Watch(Result):
    expendable: ClassVar = (
        Expendable("tasks", "hawk watch ID --json"),
        Expendable("attention", "hawk watch ID --json, or hawk_list samples"),
        Expendable("troubles", "hawk watch ID --json"),
    )
    job_id: str
    status: str = Field(
        description="pending, running, waiting_for_capacity, importing, stuck, complete, failed, deleted"
    )
    label: str
    ended: bool
    operation: str | None = Field(description="stopping or paused, beside the status")
    reason: Untrusted | None = Field(description="Why the status is what it is.")
    remedy: str | None
    elapsed_seconds: float | None
    attempts_per_minute: float | None
    eta_seconds: float | None = Field(description="Until the last attempt ends, if it goes on like this.")
    progress: Counts
    http_retries: int
    models: str | None = Field(description="What was spent on models.")
    tasks: list[TaskState]
    attention: list[Attention] = Field(description="The attempts that most need attention, worst first.")
    attention_total: int
    troubles: list[Untrusted]
    verdicts: list[Brief] = Field(
        description="The first of the diagnosis; hawk_diagnose has all, with evidence."
    )

    def head(self) -> str:
        return "\n".join([*self._state(), *self._tasks(), *self._attention()])

    def _state(self) -> list[str]:
        took = (
            f" {'in' if self.ended else 'for'} {duration(self.elapsed_seconds)}"
            if self.elapsed_seconds
            else ""
        )
        lines = [f"{self.job_id}: {self.label}{took}"]
        lines += [f"  why: {self.reason}"] if self.reason else []
        lines += [f"  remedy: {self.remedy}"] if self.remedy else []
        lines.append(f"  {_counts(self.progress)}")
        if not self.ended:
            rate = "–" if self.attempts_per_minute is None else f"{self.attempts_per_minute:.1f}"
            lines.append(f"  {rate} attempts/min, ETA {duration(self.eta_seconds)}")
        lines += [f"  {self.http_retries:,} HTTP retries"] if self.http_retries else []
        lines += [f"  {self.models}"] if self.models else []
        lines += [f"  trouble: {text}" for text in self.troubles]
        return lines + [f"  verdict: {verdict}" for verdict in self.verdicts]

    def _tasks(self) -> list[str]:
        rows = [f"  {t.name}: {_counts(t.progress)}" + (f" {t.note}" if t.note else "") for t in self.tasks]
        return ["Tasks:", *rows] if rows else []

    def _attention(self) -> list[str]:
        rows = [
            f"  {a.task} {a.sample or ''} #{a.attempt} ({a.uuid or 'no uuid yet'}) {a.phase}: {a.what or ''}"
            for a in self.attention
        ]
        return [f"Attempts to look at ({self.attention_total:,}):", *rows] if rows else []


class WatchArgs(JobArgs):
    attention: int = Field(
        default=12, ge=0, le=100, description="So many of the attempts that most need attention."
    )


def _watch(app: App, args: WatchArgs) -> Watch:
    with app.connect() as client:
        snapshot = client.status(app.job(args.id)).data
    now = model.server_now(snapshot, 0, datetime.now(UTC))
    totals = model.totals(snapshot, now)
    found, more = concerns(snapshot, now, args.attention)
    return Watch(
        job_id=short(snapshot.job_id),
        status=snapshot.status.value,
        label=short(totals.label),
        ended=snapshot.status.terminal,
        operation=snapshot.operation,
        reason=Untrusted.of(snapshot.reason, 300),
        remedy=short(snapshot.remedy, 300) or None,
        elapsed_seconds=totals.elapsed,
        attempts_per_minute=totals.pace.per_minute,
        eta_seconds=totals.pace.eta_seconds,
        progress=Counts.of(snapshot.progress),
        http_retries=totals.http_retries,
        models=short(model.models_text(snapshot), 200) or None,
        tasks=_task_states(snapshot, now),
        attention=[
            Attention(
                task=short(c.task),
                sample=Untrusted.of(c.sample, 80),
                attempt=c.epoch,
                uuid=short(c.uuid) or None,
                phase=c.phase,
                what=Untrusted.of(c.text),
            )
            for c in found
        ],
        attention_total=len(found) + more,
        troubles=_texts([*waits(snapshot), *troubles(snapshot, now)]),
        verdicts=[_brief(verdict) for verdict in snapshot.diagnosis[:VERDICTS]],
    )


def _task_states(snapshot: Snapshot, now: datetime) -> list[TaskState]:
    return [
        TaskState(
            name=short(row.name, 160),
            progress=Counts.of(row.progress),
            http_retries=row.http_retries,
            eta_seconds=row.pace.eta_seconds,
            note=Untrusted.of(row.note),
        )
        for row in model.task_rows(snapshot, now)
    ]


def _texts(lines: list[str]) -> list[Untrusted]:
    return [text for line in lines if (text := Untrusted.of(line)) is not None]


def _brief(verdict: Mapping[str, Any]) -> Brief:
    return Brief(
        cause=short(verdict.get("cause")),
        severity=short(verdict.get("severity")),
        what=Untrusted.of(verdict.get("what")),
    )


def _counts(counts: Counts) -> str:
    return model.counts_text(Progress(**counts.model_dump()))


class Fact(BaseModel):
    source: str
    fact: Untrusted | None
    at: str | None


class Verdict(BaseModel):
    """A named cause, and what it is concluded from."""

    number: int = Field(
        description="What hawk_fix and 'hawk fix' call it, now: ranks change as the job goes on."
    )
    cause: str
    layer: str
    scope: str
    severity: str = Field(
        description="info: it progresses. warning: slowed. stuck: won't go on by itself. fatal: over."
    )
    what: Untrusted | None
    subject: Untrusted | None = Field(description="Which model, worker, tool, task or setting.")
    since: str | None
    clears: str | None = Field(description="When it ends by itself, if it does.")
    who: str | None = Field(description="Who can act: wait, operator, author, provider.")
    attempts: int | None = Field(description="So many attempts it holds.")
    pairs: int | None
    held: list[Untrusted] = Field(description="Names of some of them.")
    cost_hours: float | None = Field(description="Hours it has cost so far.")
    evidence: list[Fact]
    weakened: list[str] = Field(description="Sources that it could not be checked against.")
    remedy: str | None
    fixable: bool = Field(description="Hawk can carry out the remedy itself: hawk_fix, where it is offered.")
    next: str | None = Field(description="The command that comes next.")

    def lines(self) -> list[str]:
        held = "" if not self.attempts else f", holds {self.attempts:,} attempts"
        cost = "" if not self.cost_hours else f", {self.cost_hours:.1f} h lost"
        since = f", since {self.since}" if self.since else ""
        clears = f", clears {self.clears}" if self.clears else ""
        lines = [
            f"{self.number}. {self.severity}: {self.layer}/{self.cause} ({self.scope}){since}{held}{cost}{clears}"
        ]
        lines += [f"   what: {self.what}"] if self.what else []
        lines += [f"   evidence, {e.source}{f' at {e.at}' if e.at else ''}: {e.fact}" for e in self.evidence]
        lines += [f"   remedy ({self.who}): {self.remedy}"] if self.remedy else []
        lines += [f"   held, some: {', '.join(map(str, self.held))}"] if self.held else []
        lines += [f"   hawk_fix can carry it out: n={self.number}"] if self.fixable else []
        lines += [f"   not checked against: {', '.join(self.weakened)}"] if self.weakened else []
        return lines + ([f"   next: {self.next}"] if self.next else [])


class Missing(BaseModel):
    source: str
    why: Untrusted | None


class Diagnosis(Result):
    expendable: ClassVar = (
        Expendable("healthy", "hawk diagnose ID --json"),
        Expendable("verdicts", "hawk diagnose ID --json"),
    )
    job_id: str
    at: str | None
    status: str | None
    verdicts: list[Verdict] = Field(description="What blocks most attempts, for good, first.")
    healthy: list[Untrusted]
    missing: list[Missing] = Field(
        description="Sources that could not be read: what depends on them is not judged."
    )

    def head(self) -> str:
        status = f", {self.status}" if self.status else ""
        lines = [
            f"{self.job_id}{status}: {len(self.verdicts) or 'no'} verdicts"
            + (f" at {self.at}" if self.at else "")
        ]
        for verdict in self.verdicts:
            lines += verdict.lines()
        lines += [f"healthy: {text}" for text in self.healthy]
        return "\n".join([*lines, *(f"not known: {m.source}: {m.why}" for m in self.missing)])


def _diagnose(app: App, args: JobArgs) -> Diagnosis:
    job_id = app.job(args.id)
    with app.connect() as client:
        found = client.diagnosis(job_id)
    return Diagnosis(
        job_id=short(found.job_id),
        at=short(found.at) or None,
        status=short(found.status) or None,
        verdicts=[_verdict(verdict) for verdict in found.verdicts],
        healthy=_texts(found.healthy),
        missing=[Missing(source=short(name), why=Untrusted.of(why)) for name, why in found.missing.items()],
    )


def _verdict(found: NamedCause) -> Verdict:
    return Verdict(
        number=found.n,
        cause=short(found.cause),
        subject=Untrusted.of(found.subject, 80),
        fixable=found.fix is not None,
        held=_texts(found.held[:HELD]),
        weakened=[short(source) for source in found.weakened],
        layer=found.layer,
        scope=found.scope,
        severity=found.severity,
        since=short(found.since) or None,
        clears=short(found.clears) or None,
        who=found.who,
        attempts=found.attempts,
        pairs=found.pairs,
        cost_hours=found.cost_hours,
        what=Untrusted.of(found.what, 300),
        evidence=[
            Fact(source=e.source, fact=Untrusted.of(e.fact), at=short(e.at) or None)
            for e in found.evidence[:EVIDENCE]
        ],
        remedy=short(found.remedy, 300) or None,
        next=short(found.next, 300) or None,
    )


WATCH = Tool(
    "hawk_watch",
    "One snapshot of a job",
    "How a job is doing now: status and why, counts, pace, tasks, the attempts that most need attention and what each waits "
    "for. Use it first, and again to see whether something moves: ask at most every 30 seconds.",
    WatchArgs,
    Watch,
    _watch,
)
DIAGNOSE = Tool(
    "hawk_diagnose",
    "Why a job is stuck or slow",
    "The causes, by name and ranked, each with its evidence, since when, what it holds, whether it clears by itself, who can "
    "act, the remedy and the next command. Use it when hawk_watch shows no progress, or a status of stuck or failed.",
    JobArgs,
    Diagnosis,
    _diagnose,
)
