"""Rules of the runner about what it writes to: disks, the log store, databases."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.evidence import Disk
from hawk.core.diagnosis.rule import Finding, Rule, fact, rule
from hawk.core.diagnosis.verdict import Fact
from hawk.core.diagnosis.view import View
from hawk.core.recorder.stalls import Stall
from hawk.core.text import one_line

FULL = 1 << 20
"""Bytes below which a disk counts as full: one flush of a log may need as much."""

_SPACE = re.compile(r"no space left|disk is full|disk quota|ENOSPC|Errno 28", re.IGNORECASE)
_REFUSED = re.compile(
    r"read-only|permission denied|AccessDenied|Forbidden|ExpiredToken|Errno 30|Errno 13", re.IGNORECASE
)
_LOG = re.compile(r"\.eval\b|logs?/|log_dir|s3:|bucket|journal|snapshot|storage|mounted", re.IGNORECASE)
_LOCKED = re.compile(r"database (table )?is locked|SQLITE_BUSY", re.IGNORECASE)


_SQL = re.compile(r"database\.py|sqlite|sqlalchemy|aiosqlite", re.IGNORECASE)
"""Places in which one waits for a database."""


def disk_full(view: View) -> Iterator[Finding]:
    facts = _complaints(view, "no space left")
    full = [disk for disk in _disks(view) if disk.total and disk.free < FULL]
    facts += [
        fact(
            Source.HOST,
            f"{disk.what}: {disk.free // 1024:,} KiB free of {disk.total // 2**20:,} MiB ({disk.path})",
        )
        for disk in full
    ]
    no_files = [disk for disk in _disks(view) if disk.free_files == 0]
    facts += [
        fact(Source.HOST, f"{disk.what}: no file can be made any more ({disk.path})") for disk in no_files
    ]
    if (error := view.job.storage_error) and _SPACE.search(error):
        facts.append(fact(Source.JOURNAL, one_line(error, 300)))
    facts += _errors(view, _SPACE)
    if not facts:
        return
    where = (full or no_files)[0].path if full or no_files else ""
    now_full = bool(full or no_files)
    yield Finding(
        Severity.STUCK if now_full else Severity.WARNING,
        f"the disk is full{f' ({where})' if where else ''}: what ends can't be written",
        facts,
        held=view.everybody if now_full else [],
        whole=now_full,
        subject=where,
        cost=None if now_full else 0.0,
    )


def log_store_unwritable(view: View) -> Iterator[Finding]:
    facts = _complaints(view, "can't write")
    readonly = [disk for disk in _disks(view) if disk.what == "run directory" and not disk.writable]
    facts += [fact(Source.HOST, f"{disk.what} {disk.path}: {disk.why}") for disk in readonly]
    if (error := view.job.storage_error) and not _SPACE.search(error):
        facts.append(fact(Source.JOURNAL, one_line(error, 300)))
    facts += [f for f in _errors(view, _REFUSED) if _LOG.search(f.fact)]
    reason = view.job.reason or ""
    if _REFUSED.search(reason) and _LOG.search(reason):
        facts.append(fact(Source.JOURNAL, one_line(reason, 300)))
    if facts:
        yield Finding(
            Severity.STUCK,
            f"results can't be written: {one_line(facts[-1].fact, 200)}",
            facts,
            whole=True,
            subject=readonly[0].path if readonly else "",
        )


def database_locked(view: View) -> Iterator[Finding]:
    facts = _complaints(view, "database is locked")
    facts += _errors(view, _LOCKED)
    waits = [
        (w, s)
        for w in view.workers
        for s in w.stalled
        if s.stall == Stall.LOOP_BLOCKED and _SQL.search(s.innermost)
    ]
    if facts and waits:  # SQLite waits for the lock in the thread that asks: here the event loop's
        facts += [
            fact(Source.RECORDER, f"worker {w.index} waits in {s.innermost}", s.since) for w, s in waits
        ]
        held = sorted({i for worker, _ in waits for i in view.of_worker(worker)})
        yield Finding(
            Severity.STUCK,
            f"a database is locked by another process, and worker {waits[0][0].index} stands still: it waits in "
            f"{waits[0][1].innermost}",
            facts,
            held=held,
            since=waits[0][1].since,
        )
        return
    if view.job.reason and _LOCKED.search(view.job.reason):
        facts.append(fact(Source.JOURNAL, one_line(view.job.reason, 300)))
    if facts:
        ended = sum(group.count for group in view.evidence.ended if _LOCKED.search(group.message))
        yield Finding(
            Severity.STUCK if ended else Severity.WARNING,
            f"a database is locked by another process: {one_line(facts[0].fact, 160)}",
            facts,
            ended=ended,
            cost=0.0,
        )


def _complaints(view: View, name: str) -> list[Fact]:
    return [
        fact(
            Source.LOGS,
            f"worker {worker.index} said {name!r} {count} times in the last minutes",
            worker.complaint_at.get(name),
        )
        for worker in view.workers
        if (count := worker.complaints.get(name))
    ]


def _errors(view: View, pattern: re.Pattern[str]) -> list[Fact]:
    """Errors of attempts that say it; what happened inside a sandbox is that layer's."""
    return [
        fact(Source.LOGS, f"{group.count} attempts ended with {group.kind}: {group.message}", group.last_at)
        for group in view.evidence.ended
        if group.phase not in ("sandbox", "setup") and pattern.search(f"{group.kind} {group.message}")
    ]


def _disks(view: View) -> list[Disk]:
    return view.evidence.host.disks if view.evidence.host is not None else []


RULES: tuple[Rule, ...] = (
    rule(
        Cause.DISK_FULL,
        disk_full,
        helps=[Source.HOST],
        rules_out=[
            Cause.LOG_STORE_UNWRITABLE, Cause.CRASHED, Cause.DATABASE_LOCKED, Cause.RETRY_LOOP, Cause.CREATE_FAILED,
            Cause.CONTROL_SOCKET_LOST, Cause.LOOP_BLOCKED, Cause.PROGRESSING, Cause.LONG_TAIL,
        ],
    ),
    rule(Cause.LOG_STORE_UNWRITABLE, log_store_unwritable, helps=[Source.HOST], rules_out=[Cause.CRASHED, Cause.PROGRESSING]),
    rule(Cause.DATABASE_LOCKED, database_locked, helps=[Source.LOGS], rules_out=[Cause.CRASHED, Cause.RETRY_LOOP, Cause.LOOP_BLOCKED]),
)  # fmt: skip
