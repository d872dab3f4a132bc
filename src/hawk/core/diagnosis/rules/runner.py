"""Rules of the runner while it works: its workers' event loops, CPU, memory and control sockets."""

from __future__ import annotations

from collections.abc import Iterator

from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.evidence import Stalled, Worker
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.saying import counted
from hawk.core.diagnosis.verdict import Fix, FixKind
from hawk.core.diagnosis.view import View
from hawk.core.recorder.stalls import BLOCKED, NEAR, SILENT, Stall
from hawk.core.text import duration

STAYS = 15.0
"""Seconds from which on a blocked loop is not taken for one long computation any more."""

LATE, OF_BEATS, SHARE = 1.0, 6, 0.5
"""A worker is starved when half of its last heartbeats, of at least six, were late by a second: one that computes
now and then is late now and then."""

UNHEARD = 12.0
"""Seconds for which a worker whose loop turns answers nobody within a second: each callback waits for all others."""

BUSY, CROWDED, PRESSED = 0.8, 1.5, 0.4
"""Share of a core that it uses; load by core; share of time in which something waited for a CPU: without one of these
it is late for another reason."""

FRESH = 5.0
"""Seconds within which a heartbeat proves that the process works."""

LOST = 15.0
"""Seconds for which nobody listens at a control socket before that is more than a worker that is about to end."""

_WAITS = (
    Cause.BLACK_HOLE, Cause.STREAM_STALLED, Cause.SLOW_GENERATION, Cause.CLIENT_TIMEOUT_TOO_SHORT, Cause.QUEUE_WAIT,
    Cause.TOOL_HUNG, Cause.LIMITER_STARVED, Cause.START_TIMEOUT, Cause.AWAIT_NEVER_RESOLVED, Cause.SCORER_HUNG,
    Cause.AGENT_LOOPING, Cause.CPU_STARVED, Cause.CONTROL_SOCKET_LOST, Cause.PROGRESSING, Cause.LONG_TAIL,
)  # fmt: skip
"""What attempts seem to wait for whose worker does not get to them."""


def loop_blocked(view: View) -> Iterator[Finding]:
    """The loop runs one thing: as the journal's stall says, or the last heartbeat."""
    if not view.job.alive and view.job.phase == "ended":
        return
    for worker in view.workers:
        stall = _holding(worker)
        lag = view.ago(stall.since) if stall is not None else _lag(worker)
        if lag is None or worker.state != "running":
            continue
        where = stall.where if stall is not None else ""
        said = f" in {where}" if where else ""
        facts = [
            fact(Source.RECORDER, f"the event loop of worker {worker.index} has not answered for {lag:.0f} s")
        ]
        if stall is not None:
            facts.append(fact(Source.JOURNAL, stall.reason or stall.stall.replace("_", " "), stall.since))
            if stall.attempt:
                facts.append(fact(Source.RECORDER, f"it runs code of attempt {stall.attempt}"))
            if stall.innermost and stall.innermost != where:
                facts.append(fact(Source.RECORDER, f"innermost: {stall.innermost}"))
        held = view.of_worker(worker)
        yield Finding(
            Severity.STUCK if lag >= STAYS else Severity.WARNING,
            f"worker {worker.index}'s event loop is blocked for {duration(lag)}{said}: "
            f"{counted(len(held))} {'stands' if len(held) == 1 else 'stand'} still",
            facts,
            held=held,
            subject=f"worker {worker.index}",
            since=stall.since if stall is not None else view.before(lag),
            fix=Fix(FixKind.RESTART_WORKER, subject=str(worker.index)),
        )


def _holding(worker: Worker) -> Stalled | None:
    kinds = (Stall.LOOP_BLOCKED, Stall.SILENT)
    found = [s for s in worker.stalled if s.stall in kinds and "can't be written" not in s.reason]
    return found[-1] if found else None


def _lag(worker: Worker) -> float | None:
    """For how long the loop has not answered, where that is long."""
    if worker.beat is None:
        return None
    lag = worker.lag + worker.beat if worker.lag > BLOCKED else worker.beat if worker.beat > SILENT else 0.0
    return lag if lag > BLOCKED else None


def cpu_starved(view: View) -> Iterator[Finding]:
    """Heartbeats are late again and again, and the process or the machine is busy."""
    for worker in view.workers:
        late = [lag for lag in worker.lags if lag >= LATE]
        silent = view.ago(worker.control_since) or 0.0 if worker.control == "busy" else 0.0
        beats = len(worker.lags) >= OF_BEATS and len(late) >= SHARE * len(worker.lags)
        if worker.state != "running" or not (beats or silent > UNHEARD):
            continue
        if not _short_of_cpu(view, worker) or _blocked_lately(view, worker):
            continue
        facts = []
        if beats:
            said = f"{len(late)} of the last {len(worker.lags)} heartbeats of worker {worker.index} were late, by up to"
            facts.append(fact(Source.RECORDER, f"{said} {max(late):.1f} s"))
        if silent > UNHEARD:
            text = f"worker {worker.index} has answered nobody within a second for {silent:.0f} s"
            facts.append(fact(Source.CONTROL, text, worker.control_since))
        if worker.cpu is not None:
            facts.append(fact(Source.RECORDER, f"it uses {worker.cpu:.0%} of a core"))
        host = view.evidence.host
        if host is not None:
            facts.append(fact(Source.HOST, f"load {host.load:.1f} on {host.cores} cores"))
        yield Finding(
            Severity.WARNING,
            f"worker {worker.index} does not get enough CPU: it is late again and again",
            facts,
            held=view.of_worker(worker),
            subject=f"worker {worker.index}",
            since=worker.control_since if silent > UNHEARD else None,
            cost=max(silent, sum(late)) * len(view.of_worker(worker)),
        )


def _short_of_cpu(view: View, worker: Worker) -> bool:
    host = view.evidence.host
    if worker.cpu is not None and worker.cpu >= BUSY:
        return True
    return host is not None and (
        (host.pressure or 0.0) >= PRESSED or host.load >= CROWDED * max(1, host.cores)
    )


def _blocked_lately(view: View, worker: Worker) -> bool:
    """Its loop was held by one call just now: then that is why it is late."""
    return any(
        c.subject == str(worker.index)
        and c.data.get("stall") == Stall.LOOP_BLOCKED
        and (view.ago(c.at) or 0.0) < 60
        for c in view.changes("worker", "stalled", "still stalled", "goes on")
    )


def memory_near_limit(view: View) -> Iterator[Finding]:
    for worker in view.workers:
        if worker.memory_limit and worker.memory > NEAR * worker.memory_limit and worker.state == "running":
            used, limit = worker.memory / 2**20, worker.memory_limit / 2**20
            yield Finding(
                Severity.WARNING,
                f"worker {worker.index} uses {used:,.0f} of {limit:,.0f} MiB: the next allocation may end it",
                [fact(Source.RECORDER, f"{used:,.0f} of {limit:,.0f} MiB in use ({worker.memory_by})")],
                held=view.of_worker(worker),
                subject=f"worker {worker.index}",
                cost=0.0,
            )


def control_socket_lost(view: View) -> Iterator[Finding]:
    """A worker that works can't be asked; one that has just started, or is about to end, may not be there yet or any more."""
    for worker in view.workers:
        gone = view.ago(worker.control_since)
        works = worker.beat is not None and worker.beat < FRESH and worker.lag < FRESH
        if worker.control != "gone" or not works or gone is None or worker.state != "running":
            continue
        held = view.of_worker(worker)
        if gone < LOST or not (worker.answered or held):
            continue
        yield Finding(
            Severity.WARNING,
            f"worker {worker.index} works, but nobody listens at its control socket for {duration(gone)}",
            [
                fact(Source.CONTROL, worker.control_error or "nobody listens", worker.control_since),
                fact(Source.RECORDER, f"its last heartbeat is {worker.beat:.0f} s old"),
            ],
            held=held,
            subject=f"worker {worker.index}",
            since=worker.control_since,
            cost=0.0,
        )


RULES: tuple[Rule, ...] = (
    rule(Cause.LOOP_BLOCKED, loop_blocked, needs=[Source.RECORDER], helps=[Source.JOURNAL], rules_out=_WAITS),
    rule(Cause.CPU_STARVED, cpu_starved, needs=[Source.RECORDER], helps=[Source.HOST]),
    rule(Cause.MEMORY_NEAR_LIMIT, memory_near_limit, needs=[Source.RECORDER]),
    rule(Cause.CONTROL_SOCKET_LOST, control_socket_lost, needs=[Source.RECORDER]),
)
