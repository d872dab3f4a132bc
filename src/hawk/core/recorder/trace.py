"""Trace lines: what Inspect writes as each action begins and ends, and what follows from that. Pure.

An action (a model call, a tool call, a command in a sandbox) has a line `enter` and later one of `exit`, `cancel`,
`error` or `timeout` with the same `trace_id`. One without its end is in flight: that is what an attempt waits for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

ENTER = "enter"
ENDS = ("exit", "cancel", "error", "timeout")
OUTERMOST = "Run Task"
"""The action that every other one of a task is within: it says least about what is waited for."""

DIED = "WorkerDied"
"""`error_type` of the line that ends an action whose process ended before it."""

_OFFSET_BITS = 48


class TraceLine(msgspec.Struct, omit_defaults=True):
    """One line as its readers need it; fields that Inspect did not write are None.

    Attributes:
        timestamp: ISO 8601, with a zone.
        event: enter, exit, cancel, error, timeout; None for a line that is no action's.
        start_time: Seconds since the epoch; only on `enter`.
        duration: Seconds; only on an end.
        epoch: The attempt.
        sample_uuid: Written by Hawk beside Inspect's fields.
    """

    timestamp: str = ""
    level: str = ""
    message: str = ""
    action: str | None = None
    detail: str | None = None
    event: str | None = None
    trace_id: str | None = None
    start_time: float | None = None
    duration: float | None = None
    error: str | None = None
    error_type: str | None = None
    task: str | None = None
    sample_id: str | int | None = None
    epoch: int | None = None
    sample_uuid: str | None = None


class Sidecar(msgspec.Struct):
    """`trace.open.json`: what was in flight at one point of the trace, so that only the rest need be read.

    Attributes:
        pid: The process that wrote it.
        began: Logical offset at which this process began to write.
        base: Logical offset of the first byte of `trace.jsonl`.
        at: Logical offset up to which it is true.
        time: When it was written, ISO 8601.
        actions: The `enter` lines of the actions in flight.
        dropped: Lines that could not be written.
    """

    pid: int
    began: int
    base: int
    at: int
    time: str
    actions: list[msgspec.Raw] = []
    dropped: int = 0


class Beat(msgspec.Struct):
    """A worker at one moment, as far as every reader needs it of its `heartbeat.json`."""

    at: str
    pid: int


class TraceWorker(msgspec.Struct):
    """A worker, as its trace shows it.

    Attributes:
        alive: Its process lives, and is the one that wrote the end of the trace.
        last_seen: Its last sign of life, ISO 8601.
        dropped: Lines of this process that could not be written (a full disk).
    """

    index: int
    alive: bool
    pid: int | None = None
    last_seen: str | None = None
    dropped: int = 0


class ActionRow(msgspec.Struct):
    """An action in flight, or one that was when its worker died.

    Attributes:
        age_s: Seconds since it began, up to now or to the worker's last sign of life.
        alive: Its worker lives.
    """

    worker: int
    action: str
    detail: str
    task: str | None
    sample_id: str | None
    epoch: int | None
    sample_uuid: str | None
    started_at: str | None
    age_s: float | None
    trace_id: str
    alive: bool


class TraceActions(msgspec.Struct):
    """The body of `GET /monitoring/jobs/{id}/trace/actions`.

    Attributes:
        in_flight: Longest first; whole tasks (`Run Task`) come last. At most as many as were asked for.
        in_flight_total: How many there are.
        lines: The last lines as they were written; one that is no JSON is a string.
        truncated: There are earlier lines.
        cursor: Where to go on (`since_bytes` of `GET /monitoring/jobs/{id}/trace`).
    """

    as_of: str
    workers: list[TraceWorker]
    in_flight: list[ActionRow]
    in_flight_total: int
    lines: list[Any]
    truncated: bool
    cursor: str


_decoder = msgspec.json.Decoder(TraceLine)


def parse_line(line: bytes) -> TraceLine | None:
    """A line's fields; None for one that is torn or not a trace line."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    if not line.startswith(b"{"):
        return None
    try:  # Inspect's JSON may hold what the standard does not know: NaN, halves of surrogate pairs
        found = json.loads(line)
        return msgspec.convert(found, TraceLine, strict=False) if isinstance(found, dict) else None
    except (ValueError, RecursionError):
        return None


class InFlight:
    """Folds trace lines, in their order, into the actions that are in flight after them.

    Args:
        enters: The `enter` lines of what was in flight before.
    """

    def __init__(self, enters: Iterable[bytes] = ()) -> None:
        self._open: dict[str, tuple[TraceLine, bytes]] = {}
        for line in enters:
            self.feed(line)

    def feed(self, line: bytes) -> TraceLine | None:
        """Take in the next line; returns it where it ends an action."""
        if b'"trace_id"' not in line:
            return None
        found = parse_line(line)
        if found is None or found.trace_id is None:
            return None
        if found.event == ENTER:
            self._open[found.trace_id] = (found, line)
        elif found.event in ENDS:
            self._open.pop(found.trace_id, None)
            return found
        return None

    @property
    def actions(self) -> list[TraceLine]:
        """The `enter` lines of what is in flight, in the order in which it began."""
        return [line for line, _ in self._open.values()]

    @property
    def raw(self) -> list[bytes]:
        """The same, as they were written."""
        return [raw for _, raw in self._open.values()]


def ended_by_death(enter: bytes, died: int | None, now: datetime, last_seen: float | None) -> bytes | None:
    """The line that ends an action whose process died.

    Args:
        enter: The line with which it began.
        died: The pid of that process.
        now: When this is written.
        last_seen: The process's last sign of life, seconds since the epoch.

    Returns:
        A line with its line end; None when `enter` is none.
    """
    try:
        fields = msgspec.json.decode(enter, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    start = fields.pop("start_time", None)
    action, detail = fields.get("action"), fields.get("detail")
    fields.update(timestamp=now.isoformat(), message=f"{action}: {detail} (error)", event="error")
    if isinstance(start, (int, float)) and last_seen is not None:
        fields["duration"] = max(0.0, round(last_seen - start, 3))
    fields["error"] = f"the worker process {died} died" if died else "the worker process died"
    fields["error_type"] = DIED
    return json.dumps(fields).encode() + b"\n"


def pack_offsets(offsets: Mapping[int, int]) -> int:
    """Logical offsets of several workers as one number, which grows whenever one of them does."""
    return sum(offset << (_OFFSET_BITS * index) for index, offset in offsets.items())


def unpack_offset(packed: int, index: int) -> int:
    """The logical offset of one worker."""
    return (packed >> (_OFFSET_BITS * index)) & ((1 << _OFFSET_BITS) - 1)
