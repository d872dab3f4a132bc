"""What became of the requests of the last minutes, read off the files of spans as they grow.

`spans/middleman.jsonl` has a line for every request that went through the middleman; `spans/worker-<n>.jsonl` the pauses
between tries, which are all that is known of requests that did not.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from hawk.core.diagnosis.calls import Kind, kind_of, of_error
from hawk.core.timeline.records import WorkerNote
from hawk.store.tails import Tail

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
        self._requests = Tail(directory / "middleman.jsonl", most=FIRST)
        self._notes: dict[Path, Tail] = {}
        self._span = msgspec.json.Decoder(SpanLine)
        self._note = msgspec.json.Decoder(WorkerNote)
        self.by_model: dict[tuple[str, str, str], deque[Ended]] = {}
        self.last: dict[str, Last] = {}
        self.chains: dict[str, Chain] = {}
        self.seen = False

    def read(self, now: float) -> None:
        """Take what is new."""
        with contextlib.suppress(OSError):
            for span in self._requests.read(self._span):
                self.seen = True
                self._take(span)
        for path in self._directory.glob("worker-*.jsonl"):
            with contextlib.suppress(OSError):
                for note in self._notes.setdefault(path, Tail(path, most=FIRST)).read(self._note):
                    if note.kind == "retry_wait" and note.sample_uuid:
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
        if uuid and (before is None or at >= before.at):  # lines of several middlemen may come out of order
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


def _epoch(at: str) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        return None
