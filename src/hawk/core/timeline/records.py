"""What timelines are made from: rows of files, decoded as far as a timeline needs them.

Rows are lenient: what is not of the expected type is left out, as other versions and foreign programs wrote some of them.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

EMPTY = msgspec.Raw(b"")
"""A field that is not there."""


class Usage(msgspec.Struct):
    """Tokens of one model call."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


class Output(msgspec.Struct):
    """What a model answered, as far as it is of interest here."""

    usage: Usage | None = None


class EventRow(msgspec.Struct, gc=False):
    """One event of Inspect's. `id` is of the span that begins or ends, or of the call of a tool; `output` is a model's
    document or a command's text."""

    event: str
    uuid: str | None = None
    span_id: str | None = None
    timestamp: datetime | None = None
    completed: datetime | None = None
    working_time: float | None = None
    pending: bool | None = None
    id: str | None = None
    parent_id: str | None = None
    type: str | None = None
    name: str | None = None
    model: str | None = None
    retries: int | None = None
    cache: str | None = None
    function: str | None = None
    failed: bool | None = None
    action: str | None = None
    cmd: str | None = None
    file: str | None = None
    scorer: str | None = None
    approver: str | None = None
    decision: str | None = None
    arguments: msgspec.Raw = EMPTY
    error: msgspec.Raw = EMPTY
    result: msgspec.Raw = EMPTY
    message: msgspec.Raw = EMPTY
    call: msgspec.Raw = EMPTY
    output: Output | str | None = None


class EarlierTry(msgspec.Struct):
    """What a log keeps of a try that errored: the events since its last call of a model."""

    message: str = ""
    events: list[EventRow] = []


class SampleRecord(msgspec.Struct):
    """An attempt, as its log or the realtime buffer has it. Times are ISO 8601.

    Attributes:
        texts: Long texts that events refer to, as JSON.
        has_sandbox: Its eval has one.
        problem: Why events are missing.
    """

    uuid: str
    started_at: str | None
    completed_at: str | None
    events: list[EventRow]
    earlier: list[EarlierTry] = []
    texts: dict[str, msgspec.Raw] = {}
    has_sandbox: bool = False
    problem: str | None = None


class Request(msgspec.Struct):
    """One request, as the middleman notes it in `spans/middleman.jsonl`. Durations in seconds."""

    id: str
    at: str
    provider: str = ""
    model: str | None = None
    path: str = ""
    status: int = 0
    seconds: float = 0.0
    sample_uuid: str = ""
    account: str = ""
    upstream_status: int | None = None
    queued: float = 0.0
    first_byte: float | None = None
    retry: int = 0
    input: int = 0
    output: int = 0
    usd: float | None = None
    error: str | None = None
    client_gone: bool = False
    replayed: bool = False
    span_id: str = ""
    parent_id: str | None = None


class WorkerNote(msgspec.Struct, omit_defaults=True):
    """A line of `spans/worker-<n>.jsonl`: what a worker notes that no event tells.

    Attributes:
        kind: `retry_wait`: a model call failed and is made again after `seconds`. `try`: an attempt errored after so
            many seconds and is run again.
        at: ISO 8601; when it began.
        attempt: Of the call, or of the try, from 1.
        error: Type of what went wrong.
        status: HTTP status, if any.
    """

    kind: str
    at: str
    seconds: float
    sample_uuid: str = ""
    sample_id: str = ""
    epoch: int = 0
    task: str = ""
    model: str = ""
    attempt: int = 0
    error: str = ""
    status: int | None = None


class Ongoing(msgspec.Struct):
    """What an attempt in flight waits for now: `approval`, `question`; `since` is ISO 8601."""

    kind: str
    since: str
    detail: str = ""


class Blocked(msgspec.Struct):
    """A time in which the worker's event loop ran nothing else. `until` is None while it lasts."""

    since: str
    until: str | None = None
    where: str = ""
    attempt: str = ""


def milliseconds(time: datetime | str | None) -> float | None:
    """A time, or one in ISO 8601, as milliseconds since 1970; None for nothing or nonsense."""
    if type(time) is datetime and time.tzinfo is not None:  # as nearly all are
        return time.timestamp() * 1000.0
    try:
        if isinstance(time, str):
            time = datetime.fromisoformat(time)
        if time is None:
            return None
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000.0
    except (ValueError, OverflowError):
        return None


def iso(ms: float) -> str:
    """Milliseconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(ms / 1000.0, UTC).isoformat(timespec="milliseconds")
