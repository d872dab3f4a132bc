"""Rules of the runner about how its processes ended: memory, faults of its own, signals from outside."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.evidence import Exit, Worker
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.rules import cluster
from hawk.core.diagnosis.verdict import Fix, FixKind
from hawk.core.diagnosis.view import View
from hawk.core.job import ON_REQUEST
from hawk.core.text import one_line

RECENT = 300.0
"""Seconds after which the end of a process that was followed by another is history."""

ASKED = 120.0
"""Seconds within which an end follows from what was asked: a stop takes a minute and a half at most."""

AGAIN = 2
"""Ends of one worker within that time from which on the next one is to be expected."""

_MEMORY = re.compile(r"out of memory|OOMKilled|MemoryError|Cannot allocate memory", re.IGNORECASE)
_FAULTS = re.compile(r"SIG(SEGV|BUS|ILL|FPE|ABRT|TRAP|SYS)")
_SIGNAL = re.compile(r"killed by (SIG\w+|signal \d+)")

Kind = Callable[[str], bool]


def of_memory(reason: str) -> bool:
    return bool(_MEMORY.search(reason))


def of_a_signal(reason: str) -> bool:
    """It was ended from outside: a fault is a signal too, but the process's own doing."""
    return bool(_SIGNAL.search(reason)) and not _FAULTS.search(reason) and not of_memory(reason)


def of_its_own(reason: str) -> bool:
    return bool(reason) and not of_memory(reason) and not of_a_signal(reason) and not _STOPS.search(reason)


_STOPS = re.compile(r"nobody saw|died while no supervisor|interrupted|KeyboardInterrupt", re.IGNORECASE)


def _rule(cause: Cause, kind: Kind, word: str) -> Callable[[View], Iterator[Finding]]:
    def look(view: View) -> Iterator[Finding]:
        for worker in view.workers:
            ends = [
                end
                for end in worker.exits
                if kind(end.reason) and (view.ago(end.at) or 0.0) < RECENT and not _asked_for(view, end)
            ]
            if ends:
                yield _of_worker(view, worker, ends, word)
        yield from _of_supervisor(view, cause, kind)
        yield from cluster.runner_ended(view, cause)

    return look


def _asked_for(view: View, end: Exit) -> bool:
    """Whether somebody wanted it: a stop that took too long, or a remedy that starts the worker again."""
    if end.reason.startswith(ON_REQUEST):
        return True
    at = view.ago(end.at) or 0.0
    return any(
        c.kind == "stop" and 0.0 <= (view.ago(c.at) or 0.0) - at < ASKED for c in view.evidence.journal
    )


def _of_worker(view: View, worker: Worker, ends: list[Exit], word: str) -> Finding:
    last = ends[-1]
    over = worker.state == "exited"
    failed = over and view.job.status != "complete"
    severity = Severity.INFO  # it was started again, and goes on with what it has
    if failed:
        severity = Severity.FATAL
    elif len(ends) >= AGAIN and not over:
        severity = Severity.WARNING if _goes_on(view, worker, last) else Severity.STUCK
    times = f" {len(ends)} times" if len(ends) > 1 else ""
    then = "and is not started again" if failed else "and was started again"
    lost = view.evidence.progress.errored if failed else 0
    return Finding(
        severity,
        f"worker {worker.index} {word}{times}, {then}: {one_line(last.reason, 200)}",
        [
            fact(Source.JOURNAL, f"worker {worker.index} ended: {one_line(end.reason, 300)}", end.at)
            for end in ends[-3:]
        ],
        held=view.of_worker(worker) if severity.blocks else [],
        ended=lost,
        subject=f"worker {worker.index}",
        since=ends[0].at,
        cost=0.0,
        next="hawk eval-set resume {job}" if failed else None,
    )


def _goes_on(view: View, worker: Worker, last: Exit) -> bool:
    """Whether attempts of a worker that was started again do something."""
    since = view.ago(last.at) or 0.0
    return since > 20.0 and any((view.attempts[i].idle or 0.0) < 30.0 for i in view.of_worker(worker))


def _of_supervisor(view: View, cause: Cause, kind: Kind) -> Iterator[Finding]:
    """The supervisor itself is gone and was not started again."""
    job = view.job
    if job.alive or job.ended_how is None:
        return
    unknown = not (
        of_memory(job.ended_how) or of_a_signal(job.ended_how) or "exited with code" in job.ended_how
    )
    mine = cause is Cause.KILLED if unknown else kind(job.ended_how)
    if mine:
        yield Finding(
            Severity.FATAL,
            f"the runner is gone: {one_line(job.ended_how, 200)}",
            [fact(Source.ENGINE, one_line(job.ended_how, 300))],
            whole=True,
            subject="supervisor",
            since=view.evidence.at,
            cost=0.0,
            next="hawk eval-set resume {job}",
            fix=Fix(FixKind.RESUME_JOB),
        )


_FOLLOWS = (
    Cause.MEMORY_NEAR_LIMIT,
    Cause.RETRY_LOOP,
    Cause.CONTROL_SOCKET_LOST,
    Cause.PROGRESSING,
    Cause.LONG_TAIL,
)
"""What is seen after an end that comes again, and goes away with it."""

RULES: tuple[Rule, ...] = (
    rule(
        Cause.RUNNER_OOM_KILLED,
        _rule(Cause.RUNNER_OOM_KILLED, of_memory, "ran out of memory"),
        needs=[Source.JOURNAL],
        rules_out=(*_FOLLOWS, Cause.CRASHED, Cause.KILLED),
    ),
    rule(
        Cause.CRASHED, _rule(Cause.CRASHED, of_its_own, "crashed"), needs=[Source.JOURNAL], rules_out=_FOLLOWS
    ),
    rule(
        Cause.KILLED,
        _rule(Cause.KILLED, of_a_signal, "was killed"),
        needs=[Source.JOURNAL],
        rules_out=_FOLLOWS,
    ),
)
