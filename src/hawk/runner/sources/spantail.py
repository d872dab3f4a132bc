"""What became of the requests of the last minutes, read off the files of spans as they grow.

`spans/middleman.jsonl` has a line for every request that went through the middleman; `spans/worker-<n>.jsonl` the pauses
between tries, which are all that is known of requests that did not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from hawk.core.diagnosis.calls import Kind, kind_of, of_error
from hawk.core.timeline.records import WorkerNote

T = TypeVar("T")

WINDOW = 600.0
"""Seconds for which a request counts."""

KEPT = 3000
"""Requests that are kept of one model."""

FIRST = 4 << 20
"""Bytes of the end of a file that are read at first, or after a long pause."""

MODELS = 200
"""Models of a job that are followed."""

SAID = 300


class SpanLine(msgspec.Struct):
    """As much of `middleman.spans.Span` as is of use here."""

    at: str
    provider: str
    status: int
    seconds: float
    model: str | None = None
    path: str = ""
    sample_uuid: str = ""
    account: str = ""
    upstream_status: int | None = None
    queued: float = 0.0
    output: int = 0
    error: str | None = None
    said: str = ""
    note: str = ""
    client_gone: bool = False
    replayed: bool = False


@dataclass(slots=True)
class Ended:
    """One request that has ended. `at` is when it did, in seconds since the epoch; `seconds` without time in a queue,
    but for those that the client left."""

    at: float
    kind: Kind
    status: int
    upstream: int | None
    error: str
    said: str
    seconds: float
    output: int
    uuid: str
    again: bool


@dataclass(slots=True)
class Last:
    """How the last requests of one attempt ended: the kind of the newest, and failures in a row."""

    kind: Kind
    at: float
    failures: int = 0
    since: float = 0.0
    said: str = ""
    status: int = 0
    model: tuple[str, str, str] = ("", "", "")


@dataclass(slots=True)
class Chain:
    """Pauses of an attempt between tries of one call, one after the other without a success."""

    count: int
    waited: float
    since: float
    until: float
    status: int | None
    error: str
    model: str
    ages: list[float] = field(default_factory=list)


class Tail:
    """Whole lines of a file that are new. A file that became shorter is read again from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = -1

    def lines(self) -> Iterator[bytes]:
        try:
            file = self._path.open("rb")
        except OSError:
            return
        with file:
            size = file.seek(0, 2)
            if size < self._offset:
                self._offset = 0
            begin = max(0, size - FIRST)
            if self._offset < begin:
                self._offset = begin
                file.seek(begin)
                self._offset += len(file.readline()) if begin else 0
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield line


class Spans:
    """Requests of the last minutes by model, and how each attempt's last ones ended.

    Attributes:
        by_model: By (provider, account, model).
        last: By uuid of the attempt.
        chains: The same, of those that wait between tries, or did so last.
        seen: Whether there has been any line of the middleman's.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._requests = Tail(directory / "middleman.jsonl")
        self._notes: dict[Path, Tail] = {}
        self._span = msgspec.json.Decoder(SpanLine)
        self._note = msgspec.json.Decoder(WorkerNote)
        self.by_model: dict[tuple[str, str, str], deque[Ended]] = {}
        self.last: dict[str, Last] = {}
        self.chains: dict[str, Chain] = {}
        self.seen = False

    def read(self, now: float) -> None:
        """Take what is new."""
        for line in self._requests.lines():
            span = _decoded(self._span, line)
            if span is not None:
                self.seen = True
                self._take(span)
        for path in self._directory.glob("worker-*.jsonl"):
            tail = self._notes.setdefault(path, Tail(path))
            for line in tail.lines():
                note = _decoded(self._note, line)
                if note is not None and note.kind == "retry_wait" and note.sample_uuid:
                    self._wait(note)
        for requests in self.by_model.values():
            while requests and requests[0].at < now - WINDOW:
                requests.popleft()

    def forget(self, living: frozenset[str]) -> None:
        """Attempts that are not in flight any more, once there are many."""
        if len(self.last) > 20_000:
            self.last = {uuid: last for uuid, last in self.last.items() if uuid in living}
        if len(self.chains) > 2000:
            self.chains = {uuid: chain for uuid, chain in self.chains.items() if uuid in living}

    def _take(self, span: SpanLine) -> None:
        begun = _epoch(span.at)
        if begun is None or ("/models" in span.path and ":" not in span.path and not span.error):
            return
        key = (span.provider, span.account, span.model or "")
        kind = kind_of(
            span.status,
            span.said,
            error=span.error,
            upstream=span.upstream_status,
            client_gone=span.client_gone,
            note=span.note,
        )
        at, uuid = begun + span.seconds, span.sample_uuid
        before = self.last.get(uuid)
        gone = kind is Kind.CLIENT_GONE
        ended = Ended(
            at=at,
            kind=kind,
            status=span.status,
            upstream=span.upstream_status,
            error=span.error or "",
            said=span.said[:SAID],
            seconds=span.seconds if gone else max(0.0, span.seconds - span.queued),
            output=span.output,
            uuid=uuid,
            again=before is not None and before.kind is kind,
        )
        if key not in self.by_model and len(self.by_model) >= MODELS:
            return
        self.by_model.setdefault(key, deque(maxlen=KEPT)).append(ended)
        if uuid:
            self._follow(ended, before, key)

    def _follow(self, ended: Ended, before: Last | None, key: tuple[str, str, str]) -> None:
        if ended.kind is Kind.OK:
            self.last[ended.uuid] = Last(Kind.OK, ended.at, model=key)
            self.chains.pop(ended.uuid, None)
            return
        row = before.failures if before is not None else 0
        self.last[ended.uuid] = Last(
            ended.kind,
            ended.at,
            row + 1,
            before.since if before is not None and row else ended.at,
            ended.said,
            ended.upstream or ended.status,
            key,
        )

    def _wait(self, note: WorkerNote) -> None:
        at = _epoch(note.at)
        if at is None:
            return
        before = self.chains.get(note.sample_uuid)
        if before is None or note.attempt <= 1:
            before = Chain(0, 0.0, at, at, None, "", note.model)
        # A try lasts from the end of a pause to the beginning of the next.
        age = at - before.until if before.count else 0.0
        self.chains[note.sample_uuid] = Chain(
            max(before.count + 1, note.attempt),
            before.waited + note.seconds,
            before.since,
            at + note.seconds,
            note.status,
            note.error,
            note.model or before.model,
            [*before.ages[-9:], age] if age > 0 else before.ages,
        )


def kind_of_chain(chain: Chain) -> Kind:
    """What a pause tells of the failure before it: a status, or the type of an error."""
    return of_error(chain.error, "", chain.status) or Kind.UNKNOWN


def _decoded(decoder: msgspec.json.Decoder[T], line: bytes) -> T | None:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _epoch(at: str) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        return None
