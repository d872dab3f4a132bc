"""`hawk_trace`, `hawk_stacktrace` and `hawk_logs`: what a job's processes have in flight, wait in, and wrote."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from hawk.cli import trace_text
from hawk.cli.context import App
from hawk.cli.jobs import hours_ago
from hawk.cli.logs import EVER
from hawk.cli.mcp_base import Expendable, JobArgs, Result, Tool, Untrusted
from hawk.cli.mcp_text import plain, short
from hawk.cli.text import duration, plural
from hawk.core.recorder.trace import ActionRow, TraceWorker

LINE = 300
"""Characters of one line of a log or a trace. More would be the content of calls, which is a transcript's business."""

_SAMPLE = Field(default=None, description="Only this sample: its uuid, its id, or ID/ATTEMPT.")
_WORKER = Field(default=None, ge=0, description="Only this worker, by number.")


class Action(BaseModel):
    """A call that has begun and not ended."""

    action: str
    age_seconds: float | None
    detail: Untrusted | None
    task: str | None
    sample: Untrusted | None
    attempt: int | None
    uuid: str | None
    worker: int
    alive: bool = Field(description="False: its worker has died, and this was in flight then.")

    @classmethod
    def of(cls, row: ActionRow) -> Action:
        return cls(
            action=short(row.action),
            age_seconds=row.age_s,
            detail=Untrusted.of(row.detail, 160),
            task=short(row.task) or None,
            sample=Untrusted.of(row.sample_id, 80),
            attempt=row.epoch,
            uuid=short(row.sample_uuid) or None,
            worker=row.worker,
            alive=row.alive,
        )

    def __str__(self) -> str:
        whose = f" of {self.task or '?'} {self.sample} #{self.attempt} ({self.uuid})" if self.sample else ""
        died = "" if self.alive else " [its worker died]"
        return f"{duration(self.age_seconds):>8}  {self.action}{whose}{died}" + (
            f": {self.detail}" if self.detail else ""
        )


class TracedWorker(BaseModel):
    index: int
    alive: bool
    pid: int | None
    last_seen: str | None

    @classmethod
    def of(cls, worker: TraceWorker) -> TracedWorker:
        return cls(
            index=worker.index, alive=worker.alive, pid=worker.pid, last_seen=short(worker.last_seen) or None
        )


class Trace(Result):
    expendable: ClassVar = (
        Expendable("lines", "fewer with 'lines' or 'sample'; hawk trace ID --full prints all", last=True),
        Expendable("in_flight", "hawk trace ID --all"),
        Expendable("workers", "hawk trace ID --json"),
    )
    job_id: str
    as_of: str
    workers: list[TracedWorker]
    in_flight: list[Action] = Field(description="Longest first: what attempts wait for.")
    in_flight_total: int
    lines: list[Untrusted] = Field(description="The last lines of the trace, newest last.")

    def head(self) -> str:
        if not self.workers:
            return f"{self.job_id} has no trace: no worker of it has begun to run attempts. hawk_watch says what it waits for."
        alive = sum(worker.alive for worker in self.workers)
        lines = [
            f"{self.job_id}: {self.in_flight_total:,} in flight, {alive} of {plural(len(self.workers), 'worker')} alive"
        ]
        return "\n".join([*lines, *(f"  {row}" for row in self.in_flight)])

    def block(self) -> tuple[str, str] | None:
        return (
            ("\n".join(line.untrusted for line in self.lines), "The last lines of the trace")
            if self.lines
            else None
        )


class TraceArgs(JobArgs):
    sample: str | None = _SAMPLE
    worker: int | None = _WORKER
    lines: int = Field(default=20, ge=0, le=500, description="So many of the trace's last lines.")


def _trace(app: App, args: TraceArgs) -> Trace:
    job_id = app.job(args.id)
    with app.connect() as client:
        found = client.trace_actions(
            job_id, lines=args.lines, most=trace_text.FEW, sample=args.sample, worker=args.worker
        )
    lines = [Untrusted.of(trace_text.line(line), LINE) for line in found.lines]
    return Trace(
        job_id=short(job_id),
        as_of=short(found.as_of),
        workers=[TracedWorker.of(worker) for worker in found.workers],
        in_flight=[Action.of(row) for row in found.in_flight],
        in_flight_total=found.in_flight_total,
        lines=[line for line in lines if line is not None],
    )


class Stacks(Result):
    expendable: ClassVar = (
        Expendable("stacks", "narrow it with 'sample' or 'worker'; hawk stacktrace ID prints all of it"),
    )
    job_id: str
    stacks: Untrusted | None = Field(
        description="Await chains and threads, by attempt; what most attempts wait in comes first."
    )

    def head(self) -> str:
        return f"Stacks of {self.job_id}" + ("" if self.stacks else ": none")

    def block(self) -> tuple[str, str] | None:
        return (self.stacks.untrusted, "What its attempts wait in") if self.stacks else None


class StackArgs(JobArgs):
    sample: str | None = _SAMPLE
    worker: int | None = _WORKER
    before: bool = Field(default=False, description="What a process did last whose worker was started again.")
    native: bool = Field(default=False, description="Frames of C code too. Holds the workers for a moment.")


def _stacktrace(app: App, args: StackArgs) -> Stacks:
    job_id = app.job(args.id)
    flags = {"native": "true" if args.native else None, "before": "true" if args.before else None}
    with app.connect() as client:
        body = client.stacktrace(job_id, format="text", sample=args.sample, worker=args.worker, **flags)
    text = plain(body.decode("utf-8", "replace"), lines=True).strip("\n")
    return Stacks(job_id=short(job_id), stacks=Untrusted(untrusted=text) if text else None)


class LogLine(BaseModel):
    at: str
    level: str
    service: str
    message: Untrusted | None


class Logs(Result):
    expendable: ClassVar = (
        Expendable(
            "lines", "narrow it with 'level', 'worker' or 'sample'; hawk logs ID -n N prints more", last=True
        ),
    )
    job_id: str
    lines: list[LogLine] = Field(description="Newest last.")

    def head(self) -> str:
        return f"{self.job_id}: {plural(len(self.lines), 'line')} of its log"

    def block(self) -> tuple[str, str] | None:
        rows = [
            f"{e.at} [{e.level}] {e.service} {e.message.untrusted if e.message else ''}" for e in self.lines
        ]
        return ("\n".join(rows), "The log") if rows else None


class LogArgs(JobArgs):
    lines: int = Field(default=50, ge=1, le=1000, description="So many of the last lines.")
    level: Literal["debug", "info", "warning", "error"] | None = Field(
        default=None, description="This level and above."
    )
    worker: str | None = Field(
        default=None,
        pattern=r"^(\d{1,6}|supervisor|journal|cluster|enumerate|environment)$",
        description="Only of this worker (a number), or supervisor, journal, cluster (what Kubernetes says of its pods), "
        "enumerate (loads tasks), environment (installs).",
    )
    sample: str | None = Field(
        default=None, description="Only lines that name this sample: uuid, id, or ID/ATTEMPT."
    )
    hours: float | None = Field(default=None, gt=0, description="How far back. Left out: everything.")


def _logs(app: App, args: LogArgs) -> Logs:
    job_id = app.job(args.id)
    since = hours_ago(EVER if args.hours is None else args.hours)
    with app.connect() as client:
        page = client.log_page(
            job_id,
            since=since,
            limit=args.lines,
            sort="desc",
            level=args.level,
            worker=args.worker,
            sample=args.sample,
        )
    lines = [
        LogLine(
            at=short(entry.timestamp),
            level=short(entry.level).upper(),
            service=short(entry.service),
            message=Untrusted.of(entry.message, LINE),
        )
        for entry in page.entries[::-1]
    ]
    return Logs(job_id=short(job_id), lines=lines)


TRACE = Tool(
    "hawk_trace",
    "What a job has in flight",
    "The model calls, tool calls and commands that have begun and not ended, longest first, then the last lines of the trace. "
    "Use it when attempts run but nothing finishes: what is in flight for too long is nearly always the answer. Works after "
    "the worker has died: then it is what was in flight.",
    TraceArgs,
    Trace,
    _trace,
)
STACKTRACE = Tool(
    "hawk_stacktrace",
    "Where the code waits",
    "Await chains and threads of a job's workers, by attempt: the line of code in which each one waits, or that blocks the "
    "event loop. Use it when hawk_trace shows nothing in flight for an attempt that does not go on, or when a worker does not "
    "answer.",
    StackArgs,
    Stacks,
    _stacktrace,
)
LOGS = Tool(
    "hawk_logs",
    "Output of the runner",
    "What supervisor and workers printed, and the journal. Use it when a job failed, does not start (packages, tasks that "
    "don't load), or for the text of an error; begin with level=warning.",
    LogArgs,
    Logs,
    _logs,
)
