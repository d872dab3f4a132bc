"""Where the time of a whole eval set went. What was read of a finished attempt is kept, so that it is read once."""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from hawk.bridge.evallog import LogUnreadable
from hawk.bridge.timeline import LogSamples
from hawk.core.timeline.build import Built, Sources, build
from hawk.core.timeline.model import (
    MOST_TOOL_CALLS,
    Category,
    CategoryTime,
    EvalSetTimeline,
    Span,
    TimelineSample,
    TimelineSamples,
    ToolCall,
)
from hawk.server.services import samples
from hawk.server.services.feeds import Feeds
from hawk.server.services.registry import Registry
from hawk.server.services.timeline_sources import Place, known_until, read
from hawk.store import spans
from hawk.store.database import Database
from hawk.store.items import SampleItem

BUDGET = 8.0
"""Seconds that one answer may take; what could not be read by then is read by the next."""

LISTED = 500
_KEPT = 10_000
"""Attempts whose totals are kept: mostly about 2 kB each."""

_PAGE = 5_000


class _Sums(msgspec.Struct):
    """What one attempt adds."""

    times: dict[Category, tuple[float, int]]
    tools: list[tuple[float, str, bool]]
    spans: int
    total: float
    unattributed: float


class EvalSetTimelines:
    """Totals of the eval sets under one root. Safe from any thread."""

    def __init__(self, registry: Registry, database: Database, feeds: Feeds) -> None:
        self._registry, self._database, self._feeds = registry, database, feeds
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Sums] = OrderedDict()

    def totals(self, eval_set_id: str) -> EvalSetTimeline:
        """Totals over all attempts that have begun."""
        deadline = time.monotonic() + BUDGET
        items = list(self._items(eval_set_id))
        noted: dict[str, spans.Noted] | None = None
        sums: dict[str, _Sums] = {}
        missing: dict[str, list[SampleItem]] = {}
        for item in items:
            kept = self._known(item.uuid)
            if kept is not None:
                sums[item.uuid] = kept
            else:
                missing.setdefault(item.filename, []).append(item)
        run = self._registry.run(eval_set_id)
        if missing:
            noted = spans.noted_by_uuid(run)
        truncated = False
        for name, of_log in missing.items():
            log = None
            with contextlib.suppress(LogUnreadable):  # not written yet: the realtime buffer has its attempts
                log = LogSamples(run.logs / name)
            try:
                for item in of_log:
                    if time.monotonic() > deadline:
                        truncated = True
                        break
                    sums[item.uuid] = self._read(item, log, (noted or {}).get(item.uuid))
            finally:
                if log is not None:
                    log.__exit__()
        return _added(eval_set_id, sums, truncated)

    def samples(self, eval_set_id: str) -> TimelineSamples:
        """The attempts that a timeline can be asked for."""
        found: list[TimelineSample] = []
        for item in self._items(eval_set_id):
            if len(found) == LISTED:
                return TimelineSamples(eval_set_id, found, True)
            found.append(TimelineSample(item.uuid, item.id, item.epoch, item.eval_id or None))
        return TimelineSamples(eval_set_id, found, False)

    def _items(self, eval_set_id: str) -> Iterator[SampleItem]:
        offset, total = 0, 1
        while offset < total:
            wanted = samples.Wanted(eval_set_id, None, (), offset, _PAGE)
            items, total = samples.page(self._database, self._registry, self._feeds, wanted)
            if not items:
                return
            yield from items
            offset += len(items)

    def _known(self, uuid: str) -> _Sums | None:
        with self._lock:
            return self._kept.get(uuid)

    def _read(self, item: SampleItem, log: LogSamples | None, noted: spans.Noted | None) -> _Sums:
        run = self._registry.run(item.eval_set_id)
        status = "" if item.is_provisional else item.status
        place = Place(
            run,
            item.uuid,
            item.id,
            item.epoch,
            item.eval_id,
            item.task_name,
            item.model,
            item.filename,
            status,
        )
        found = read(place, log if status else None)
        found.record.uuid = found.record.uuid or item.uuid
        requests, notes = noted or spans.Noted([], [])
        over = found.record.completed_at is not None
        known = known_until(place, found, None if over else spans.worker_of(run, item.eval_id))
        sums = _sums(build(Sources(found.record, requests, notes, [], known, place.attempt)))
        if found.logged and status:
            with self._lock:
                self._kept[item.uuid] = sums
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return sums


def _sums(built: Built) -> _Sums:
    rows = built.totals.categories(built.spans, built.total_ms)
    tools = [
        s for s in built.spans if s.category is Category.TOOL and s.attributes.get("hawk.kind") == "tool"
    ]
    longest = heapq.nlargest(MOST_TOOL_CALLS, tools, key=_duration)
    return _Sums(
        times={row.category: (row.total_ms, row.count) for row in rows},
        tools=[(span.duration_ms, span.name, "error" in span.attributes) for span in longest],
        spans=len(built.spans),
        total=built.total_ms,
        unattributed=built.totals.unattributed,
    )


def _duration(span: Span) -> float:
    return span.duration_ms


def _added(eval_set_id: str, sums: dict[str, _Sums], truncated: bool) -> EvalSetTimeline:
    total = sum(one.total for one in sums.values())
    times: dict[Category, CategoryTime] = {}
    for one in sums.values():
        for category, (spent, count) in one.times.items():
            row = times.setdefault(category, CategoryTime(category, 0.0, 0))
            row.total_ms += spent
            row.count += count
    for row in times.values():
        row.total_ms = round(row.total_ms, 3)
        row.share = round(row.total_ms / total, 6) if total > 0 else 0.0
    calls = (ToolCall(uuid, tool, ms, failed) for uuid, one in sums.items() for ms, tool, failed in one.tools)
    return EvalSetTimeline(
        eval_set_id=eval_set_id,
        categories=sorted(times.values(), key=lambda row: (-row.total_ms, row.category)),
        longest_tool_calls=heapq.nlargest(MOST_TOOL_CALLS, calls, key=lambda call: call.duration_ms),
        span_count=sum(one.spans for one in sums.values()),
        truncated=truncated,
        samples=len(sums),
        total_ms=round(total, 3),
        unattributed_ms=round(sum(one.unattributed for one in sums.values()), 3),
    )
