"""Reads what a run directory holds for timelines: `spans/`, the journal's stalls, and who runs what.

Files may be huge and grow while they are read: lines are looked for by the attempt's uuid in a mapped file, and only
those are decoded. A torn last line, or one that is not ours, is passed over.
"""

from __future__ import annotations

import contextlib
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from hawk.bridge.tracesegments import read_beat
from hawk.core.recorder.trace import Beat
from hawk.core.timeline.records import Blocked, Request, WorkerNote
from hawk.store.locks import holder
from hawk.store.rundir import RunDir

T = TypeVar("T")

MOST_LINES = 50_000
"""Lines of one attempt that are read from one file, the newest: beyond that a timeline is unreadable anyway."""

_ENDS = frozenset({"relaunched", "failed", "complete"})
"""States of a job that none of its earlier workers lives to see."""

_PLAIN = re.compile(r"[\w-]+", re.ASCII)


class Noted(NamedTuple):
    """What others than Inspect noted of one attempt."""

    requests: list[Request]
    notes: list[WorkerNote]


class Worker(NamedTuple):
    """The worker of an attempt.

    Attributes:
        number: Its index in the run directory.
        pid: Of its process, if that lives.
        beat_by: The process of the last heartbeat; `last_seen`: ISO 8601, of that.
    """

    number: int
    pid: int | None
    beat_by: int | None
    last_seen: str | None


def noted_of(run: RunDir, uuid: str) -> Noted:
    """What is noted of one attempt."""
    if not _PLAIN.fullmatch(uuid):
        return Noted([], [])
    needle = uuid.encode()
    requests = [r for r in _found(_requests_file(run), needle, Request) if r.sample_uuid == uuid]
    notes = [
        n for file in _note_files(run) for n in _found(file, needle, WorkerNote) if n.sample_uuid == uuid
    ]
    return Noted(requests, notes)


def noted_by_uuid(run: RunDir) -> dict[str, Noted]:
    """What is noted of every attempt."""
    found: dict[str, Noted] = {}
    for request in _all(_requests_file(run), Request):
        found.setdefault(request.sample_uuid, Noted([], [])).requests.append(request)
    for file in _note_files(run):
        for note in _all(file, WorkerNote):
            found.setdefault(note.sample_uuid, Noted([], [])).notes.append(note)
    return found


def stalls(run: RunDir) -> dict[int, list[Blocked]]:
    """Times in which a worker's event loop was blocked, by worker; of one stall the last line counts."""
    found: dict[tuple[int, str], Blocked] = {}
    for line in _found(run.journal_file, b'"loop_blocked"', _JournalLine):
        stall = line.data
        if line.kind == "worker" and stall is not None and stall.stall == "loop_blocked" and stall.since:
            blocked = Blocked(stall.since, stall.until, stall.where or "", stall.attempt or "")
            found[stall.worker, stall.since] = blocked
    by_worker: dict[int, list[Blocked]] = {}
    for (worker, _), blocked in found.items():
        by_worker.setdefault(worker, []).append(blocked)
    return by_worker


def worker_of(run: RunDir, eval_id: str) -> Worker | None:
    """The worker that ran, or runs, an eval; the last one to start it. None where nobody noted that."""
    latest: tuple[str, int] | None = None
    for index in run.worker_indices():
        for task in _all(run.worker(index) / "tasks.jsonl", _TaskLine):
            if task.eval_id == eval_id:
                latest = max(latest or ("", 0), (task.at, index))
    if latest is None:
        return None
    home = run.worker(latest[1])
    beat = read_beat(home, Beat)
    pid, at = (beat.pid, beat.at) if beat is not None else (None, None)
    return Worker(latest[1], holder(home / "lock"), pid, at)


def lives(run: RunDir, pid: int) -> bool:
    """Whether a process is one of the job's workers now."""
    return any(holder(run.worker(index) / "lock") == pid for index in run.worker_indices())


def noticed(run: RunDir, worker: int | None, after: str) -> str | None:
    """When it was noticed that a worker had died which was alive at a time: both ISO 8601. None where nobody did."""
    found: list[str] = []
    for entry in run.journal():
        its = entry.kind == "worker" and worker in (
            None,
            -1 if not entry.subject.isdigit() else int(entry.subject),
        )
        its = its and "stall" not in entry.data
        if (its or (entry.kind == "job" and entry.state in _ENDS)) and entry.at > after:
            found.append(entry.at)
    return min(found, default=None)


class _Stall(msgspec.Struct):
    stall: str = ""
    worker: int = -1
    since: str | None = None
    until: str | None = None
    where: str | None = None
    attempt: str | None = None


class _JournalLine(msgspec.Struct):
    kind: str = ""
    data: _Stall | None = None


class _TaskLine(msgspec.Struct):
    at: str
    eval_id: str


def _requests_file(run: RunDir) -> Path:
    return run.path / "spans" / "middleman.jsonl"


def _note_files(run: RunDir) -> list[Path]:
    return sorted((run.path / "spans").glob("worker-*.jsonl"))


def _all(path: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    try:
        with path.open("rb") as f:
            for line in f:
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
    except OSError:
        return


def _found(path: Path, needle: bytes, kind: type[T]) -> list[T]:
    """The lines that hold the needle, oldest first: found from the end, so that the newest are there."""
    decoder = msgspec.json.Decoder(kind)
    found: list[T] = []
    try:
        with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as content:
            end = len(content)
            while len(found) < MOST_LINES and (at := content.rfind(needle, 0, end)) >= 0:
                begin = content.rfind(b"\n", 0, at) + 1
                stop = content.find(b"\n", at)
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                    found.append(decoder.decode(content[begin : stop if stop >= 0 else len(content)]))
                end = begin
    except (OSError, ValueError):  # missing; or empty, which can't be mapped
        pass
    return found[::-1]
