"""The traces of a job's workers, read together: what is in flight, the last lines, what has come since, all of it.

Every worker has one (`hawk.bridge.tracesegments`); here they are one, in the order of their lines' times. Nothing is
read whole, and nothing is written. Works the same while a worker lives and after.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hawk.bridge.tracesegments import Pick, TraceFiles, read_beat
from hawk.core.recorder.about import About
from hawk.core.recorder.trace import (
    OUTERMOST,
    ActionRow,
    Beat,
    TraceActions,
    TraceLine,
    TraceWorker,
    pack_offsets,
    parse_line,
    unpack_offset,
)
from hawk.store.locks import holder
from hawk.store.rundir import RunDir

MOST = 8 << 20  # bytes of one answer that is not streamed
_BATCH = 1 << 18


class Part(NamedTuple):
    """Lines of all workers, and where to go on.

    Attributes:
        truncated: There are lines before them that were not asked for, or are gone.
    """

    lines: list[bytes]
    cursor: int
    truncated: bool


class _Worker(NamedTuple):
    number: int
    home: Path
    files: TraceFiles


class _Action(NamedTuple):
    """An action in flight; `until`: what its age refers to."""

    worker: int
    line: TraceLine
    until: datetime | None
    alive: bool


class Traces:
    """The traces of one job at one moment; close it after use.

    Args:
        run: The job.
        worker: Only that worker's.
        about: Only lines about one sample.
    """

    def __init__(self, run: RunDir, *, worker: int | None = None, about: About | None = None) -> None:
        self._stack = ExitStack()
        self._workers: list[_Worker] = []
        self._about = about
        self._pick = Pick() if about is None else Pick(about.trace_line, about.may_be_in)
        for index in run.worker_indices():
            if worker is not None and index != worker:
                continue
            home = run.worker(index)
            try:
                files = self._stack.enter_context(TraceFiles(home))
            except OSError:
                continue
            self._workers.append(_Worker(index, home, files))

    def __enter__(self) -> Traces:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    @property
    def names(self) -> list[str]:
        """Whose traces there are: `worker/<n>`."""
        return [f"worker/{index}" for index, _, _ in self._workers]

    @property
    def end(self) -> int:
        """Where to go on after all that there is."""
        return pack_offsets({index: files.end for index, _, files in self._workers})

    def tail(self, count: int, most: int = MOST) -> Part:
        """The last lines, at most `count` and about `most` bytes."""
        tails = [w.files.tail(count, self._pick, most) for w in self._workers]
        lines = [line for _, line in heapq.merge(*(_timed(iter(tail.lines)) for tail in tails), key=_time)]
        shown = lines[len(lines) - min(count, len(lines)) :]
        truncated = len(shown) < len(lines) or any(tail.truncated for tail in tails)
        return Part(shown, self.end, truncated)

    def since(self, cursor: int, most: int = MOST) -> Part:
        """What has been written since an earlier cursor, about `most` bytes of it: ask again from the new one.

        A cursor from before what is kept, or of another trace, gives all that is kept.
        """
        found, offsets, truncated = [], {}, False
        share = max(1 << 16, most // max(1, len(self._workers)))
        for index, _, files in self._workers:
            start = unpack_offset(cursor, index)
            if not files.begin <= start <= files.end:
                truncated = truncated or start != 0
                start = files.begin
            lines, offsets[index] = self._some(files, start, share)
            found.append(_timed(iter(lines)))
        return Part([line for _, line in heapq.merge(*found, key=_time)], pack_offsets(offsets), truncated)

    def everything(self) -> Iterator[bytes]:
        """All lines that are kept, in parts.

        First come the `enter` lines of actions that are still in flight and whose own line is gone with an old
        piece: without them a reader would take the action for ended.
        """
        first = [line for w in self._workers for line in self._lost_enters(w.files)]
        if first:
            yield b"".join(first)
        if len(self._workers) == 1 and self._about is None:
            [only] = self._workers
            yield from only.files.blocks(only.files.begin)
            return
        streams = [_timed(self._wanted(w.files.lines(w.files.begin))) for w in self._workers]
        pending: list[bytes] = []
        size = 0
        for _, line in heapq.merge(*streams, key=_time):
            pending.append(line)
            size += len(line)
            if size >= _BATCH:
                yield b"".join(pending)
                pending, size = [], 0
        yield b"".join(pending)

    def actions(self, *, most: int, lines: int, now: datetime) -> TraceActions:
        """What is in flight, and the last lines.

        Args:
            most: At most so many actions.
            lines: At most so many lines.
            now: What ages refer to, where the worker lives.
        """
        workers: list[TraceWorker] = []
        found: list[_Action] = []
        for worker in self._workers:
            enters = worker.files.in_flight().actions
            shown = _state(worker)
            workers.append(shown)
            until = now if shown.alive else _parsed(shown.last_seen)
            found += [
                _Action(worker.number, line, until, shown.alive) for line in enters if self._concerns(line)
            ]
        found.sort(key=_urgency)
        tail = self.tail(lines)
        return TraceActions(
            as_of=now.isoformat(),
            workers=workers,
            in_flight=[_row(action) for action in found[:most]],
            in_flight_total=len(found),
            lines=[_as_json(line) for line in tail.lines],
            truncated=tail.truncated,
            cursor=str(tail.cursor),
        )

    def _wanted(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        return lines if self._pick.wanted is None else filter(self._pick.wanted, lines)

    def _some(self, files: TraceFiles, start: int, most: int) -> tuple[list[bytes], int]:
        """Wanted lines from an offset on, and the offset after what was looked at."""
        found, taken, position = [], 0, start
        for line in files.lines(start):
            if taken and taken + len(line) > most:
                break
            position += len(line)
            if self._pick.wanted is None or self._pick.wanted(line):
                found.append(line)
                taken += len(line)
        return found, position

    def _concerns(self, line: TraceLine) -> bool:
        return self._about is None or self._about.fields(
            line.sample_uuid, line.task, line.sample_id, line.epoch
        )

    def _lost_enters(self, files: TraceFiles) -> list[bytes]:
        if files.begin == 0:
            return []
        first = next((found for line in files.lines(files.begin) if (found := parse_line(line))), None)
        kept_from = _parsed(first.timestamp if first else None)
        state = files.in_flight()
        return [
            raw + b"\n"
            for line, raw in zip(state.actions, map(bytes.rstrip, state.raw), strict=True)
            if kept_from is not None
            and (at := _parsed(line.timestamp)) is not None
            and at < kept_from
            and self._concerns(line)
        ]


def _state(worker: _Worker) -> TraceWorker:
    """Whether the process that wrote the end of the trace lives, and its last sign of life."""
    sidecar = worker.files.sidecar
    held = holder(worker.home / "lock")
    pid = sidecar.pid if sidecar is not None else held
    last = datetime.fromtimestamp(worker.files.modified or 0, UTC)
    beat = read_beat(worker.home, Beat)
    if beat is not None and pid in (None, beat.pid):
        last = max(last, _parsed(beat.at) or last)
    return TraceWorker(
        index=worker.number,
        alive=held is not None and held == pid,
        pid=pid,
        last_seen=last.isoformat(),
        dropped=sidecar.dropped if sidecar is not None else 0,
    )


def _urgency(action: _Action) -> tuple[bool, float]:
    """The longest first, those that only contain others after them."""
    age = (
        action.until.timestamp() - action.line.start_time if action.until and action.line.start_time else 0.0
    )
    return action.line.action == OUTERMOST, -age


def _row(action: _Action) -> ActionRow:
    line, until = action.line, action.until
    started = datetime.fromtimestamp(line.start_time, UTC) if line.start_time else _parsed(line.timestamp)
    return ActionRow(
        worker=action.worker,
        action=line.action or "",
        detail=line.detail or line.message,
        task=line.task,
        sample_id=None if line.sample_id is None else str(line.sample_id),
        epoch=line.epoch,
        sample_uuid=line.sample_uuid,
        started_at=started.isoformat() if started else None,
        age_s=round(max(0.0, (until - started).total_seconds()), 3) if started and until else None,
        trace_id=line.trace_id or "",
        alive=action.alive,
    )


def _as_json(line: bytes) -> Any:
    try:
        return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(line)))
    except (ValueError, RecursionError):
        return line.decode("utf-8", "replace").rstrip("\n")


def _timed(lines: Iterator[bytes]) -> Iterator[tuple[float, bytes]]:
    """Each line with its time; one without has that of the line before it."""
    last = 0.0
    for line in lines:
        last = max(last, _time_of(line, last))
        yield last, line


def _time_of(line: bytes, otherwise: float) -> float:
    mark = b'"timestamp": "' if line.startswith(b'{"timestamp": "') else b'"timestamp":"'
    start = line.find(mark, 0, 200) + len(mark)
    if start < len(mark):
        return otherwise
    moment = _parsed(line[start : line.find(b'"', start)].decode("ascii", "replace"))
    return moment.timestamp() if moment else otherwise


def _time(pair: tuple[float, bytes]) -> float:
    return pair[0]


def _parsed(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
