"""What attempts in flight have been doing, from the realtime buffer: calls that repeat, scorers, results about the network.

Reads only what was added since, and keeps digests, not transcripts. Imports no Inspect.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from hawk.bridge.buffer import Key, as_text, rows
from hawk.bridge.logformat import loads
from hawk.core.text import one_line

_BATCH = 500
_CATCH_UP = 20_000  # rows looked back at the first read
_LOOK_UPS = 100  # of long results that are kept elsewhere, in one read
_RESULTS = 20
_HEAD = 800  # bytes in which the type of an event stands

_TYPE = re.compile(rb'"event": ?"(tool|sandbox|span_begin|span_end|score)"')

_UNREACHED = re.compile(
    r"Could not resolve host[^\n]{0,80}|Temporary failure in name resolution|Temporary failure resolving[^\n]{0,80}"
    r"|Name or service not known|No address associated with hostname|getaddrinfo (?:EAI_AGAIN|ENOTFOUND)[^\n]{0,80}"
    r"|Network is unreachable|network is unreachable|No route to host|nodename nor servname provided"
    r"|unable to resolve host address[^\n]{0,80}|Could not connect to [^\n]{0,80}:\d+|bad address '[^\n']{0,80}'"
    r"|dial tcp[^\n]{0,80}(?:no such host|network is unreachable|connect: connection refused)"
)
"""How programs say that there is no network: curl, glibc, apt, Node, busybox, macOS, Go."""


class Run(msgspec.Struct):
    """The same call of a tool, one after the other.

    Attributes:
        digest: Of function and arguments; `result`: of the answer.
        count: So many calls; `same`: so many of them, the last ones, with the same answer.
        since: When the first of those ended, ISO 8601.
    """

    tool: str
    arguments: str
    digest: bytes
    result: bytes
    count: int = 1
    same: int = 1
    since: str | None = None


class Conduct:
    """One attempt's.

    Attributes:
        run: Its last calls, while they are the same.
        scorer: Which scorer runs, since when.
        said: Of its last results of tools and commands what they say of the network; empty for those that don't.
        unreached_at: When the first and the last of those came that speak of it, ISO 8601.
    """

    __slots__ = ("begun", "run", "said", "scorer", "scorer_span", "seen", "unreached_at")

    def __init__(self) -> None:
        self.run: Run | None = None
        self.scorer: tuple[str, str | None] | None = None
        self.scorer_span = ""
        self.said: deque[str] = deque(maxlen=_RESULTS)
        self.unreached_at: tuple[str | None, str | None] = (None, None)
        self.seen: deque[str] = deque(maxlen=64)
        self.begun: str | None = None


class ConductReader:
    """Follows one buffer. For one thread.

    Args:
        scored: Told the name of a scorer that has ended, and how many seconds it took.
        started: Told how many seconds an attempt took until its agent began.
    """

    def __init__(
        self, db: Path, scored: Callable[[str, float], None], started: Callable[[float], None]
    ) -> None:
        self._db, self._scored, self._started = db, scored, started
        self._last: int | None = None
        self._conduct: dict[Key, Conduct] = {}
        self._look_ups = 0

    def read(self) -> None:
        """Take in what was added since the last call; nothing while the database is locked or gone."""
        if self._last is None:
            newest = rows(self._db, "SELECT max(id) FROM events")
            if not newest or newest[0][0] is None:
                return
            self._last = max(0, newest[0][0] - _CATCH_UP)
        self._look_ups = _LOOK_UPS
        query = (
            "SELECT id, event_id, sample_id, sample_epoch, data FROM events WHERE id > ? ORDER BY id LIMIT ?"
        )
        while found := rows(self._db, query, self._last, _BATCH):
            for row_id, event_id, sample_id, epoch, data in found:
                self._last = row_id
                if _TYPE.search(data, 0, _HEAD):
                    self._take((as_text(sample_id), int(epoch)), as_text(event_id), data)
            if len(found) < _BATCH:
                break

    def of(self, sample_id: str, epoch: int) -> Conduct | None:
        """What is known of an attempt."""
        return self._conduct.get((sample_id, epoch))

    def keep(self, present: set[Key]) -> None:
        """Drop what is held of attempts that are not in flight any more."""
        for key in self._conduct.keys() - present:
            del self._conduct[key]

    def _take(self, key: Key, event_id: str, data: bytes) -> None:
        try:
            row = loads(data, _Row)
        except ValueError:
            return
        conduct = self._conduct.get(key)
        if conduct is None:
            conduct = self._conduct[key] = Conduct()
        if row.pending or event_id in conduct.seen:
            return
        if row.event == "tool":
            conduct.seen.append(event_id)
            self._called(key, conduct, row)
        elif row.event == "sandbox":
            if row.result not in (0, None):
                self._said(conduct, self._text(key, row.output), row.completed or row.timestamp)
        else:
            self._span(key, conduct, row)

    def _called(self, key: Key, conduct: Conduct, row: _Row) -> None:
        digest, result = _digest([row.function, row.arguments]), _digest([row.result, row.error])
        ended = row.completed or row.timestamp
        run = conduct.run
        if run is None or run.digest != digest:
            shown = one_line(json.dumps(row.arguments, ensure_ascii=False, default=str)[:2000], 200)
            conduct.run = Run(one_line(row.function or "tool", 60), shown, digest, result, since=ended)
        else:
            run.count += 1
            run.same = run.same + 1 if run.result == result else 1
            run.result = result
        text = row.error if row.error else row.result
        self._said(conduct, self._text(key, text), ended)

    def _said(self, conduct: Conduct, text: str, at: str | None) -> None:
        found = _UNREACHED.search(text)
        conduct.said.append(one_line(found[0], 160) if found else "")
        if found:
            first = conduct.unreached_at[0] if any(list(conduct.said)[:-1]) else None
            conduct.unreached_at = (first or at, at)

    def _span(self, key: Key, conduct: Conduct, row: _Row) -> None:
        if row.event == "span_end":
            if conduct.scorer is not None and row.id == conduct.scorer_span:
                name, since = conduct.scorer
                if (seconds := _between(since, row.timestamp)) is not None:
                    self._scored(name, seconds)
                conduct.scorer = None
        elif row.event == "span_begin":
            if row.name == "init" and row.type == "init":
                self._conduct[key] = fresh = Conduct()  # a new try begins
                fresh.begun = row.timestamp
            elif row.name == "solvers" and conduct.begun is not None:
                if (seconds := _between(conduct.begun, row.timestamp)) is not None:
                    self._started(seconds)
                conduct.begun = None
            elif row.type == "scorer":
                conduct.scorer, conduct.scorer_span = (
                    (one_line(row.name or "scorer", 60), row.timestamp),
                    row.id or "",
                )

    def _text(self, key: Key, value: Any) -> str:
        """The beginning of a result; a long one is kept elsewhere, and looked up a few times in one read."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        if "attachment://" not in text[:2000] or self._look_ups <= 0:
            return text[:20_000]
        found = re.search(r"attachment://([0-9a-f]{32})", text)
        if found is None:
            return text[:20_000]
        self._look_ups -= 1
        query = "SELECT substr(content, 1, 20000) FROM attachments WHERE sample_id = ? AND sample_epoch = ? AND hash = ?"
        kept = rows(self._db, query, key[0], key[1], found[1])
        return as_text(kept[0][0]) if kept else text[:20_000]


class _Row(msgspec.Struct):
    event: str
    timestamp: str | None = None
    completed: str | None = None
    pending: bool | None = None
    function: str | None = None
    arguments: Any = None
    result: Any = None
    error: Any = None
    output: Any = None
    id: str | None = None
    name: str | None = None
    type: str | None = None


def _digest(value: Any) -> bytes:
    data = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str).encode()
    return hashlib.blake2b(data, digest_size=12).digest()


def _between(then: str | None, now: str | None) -> float | None:
    try:
        seconds = (datetime.fromisoformat(now or "") - datetime.fromisoformat(then or "")).total_seconds()
    except (ValueError, TypeError):
        return None
    return seconds if seconds >= 0 else None
