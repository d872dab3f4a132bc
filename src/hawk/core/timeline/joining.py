"""What others saw of an attempt, put where it belongs: the middleman's requests, waits between retries, a blocked loop."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from hawk.core.text import one_line
from hawk.core.timeline.model import Category, Span, short, span_id
from hawk.core.timeline.records import Blocked, Ongoing, Request, WorkerNote, milliseconds
from hawk.core.timeline.tree import Tree

RETRY_WAIT = "retry_wait"
TRY = "try"

_SLACK = 250.0
"""Milliseconds that two processes' notes of one moment may lie apart."""

_LEAST_QUEUE = 1.0
"""Milliseconds in a queue that are worth a span."""


def join_requests(tree: Tree, requests: Iterable[Request]) -> None:
    """Add the middleman's part of each request, and the provider's, below the call of a model that made it.

    The call is known by the request's parent in the trace; where there is none, by time.
    """
    calls = _Calls(tree)
    for request in requests:
        start = milliseconds(request.at)
        if start is None:
            continue
        end = start + 1000.0 * request.seconds
        admitted = min(end, start + 1000.0 * request.queued)
        parent = _caller(tree, request) or calls.around(start, end) or tree.frame_at(start).span_id
        attributes = _facts(request)
        never_sent = request.upstream_status is None and request.first_byte is None
        if admitted - start >= _LEAST_QUEUE or (never_sent and not request.replayed):
            to = end if never_sent and not request.replayed else admitted
            name = (
                "queue"
                if admitted < end or request.replayed
                else f"refused: {request.error or request.status}"
            )
            queue = Span(span_id(f"queue {request.id}"), parent, name, Category.MIDDLEMAN, start, to)
            queue.attributes = {"hawk.kind": "queue", **attributes}
            tree.add(queue)
            if to >= end:
                continue
        made = Span(
            request.span_id or span_id(f"request {request.id}"),
            parent,
            short(f"{request.provider} {request.model or request.path}"),
            Category.PROVIDER,
            admitted,
            end,
            kind="CLIENT",
            attributes={"hawk.kind": "upstream", **attributes},
        )
        tree.add(made)


def join_notes(tree: Tree, notes: Iterable[WorkerNote]) -> None:
    """Add the waits between a failed call of a model and the next one, and end the calls that failed."""
    for note in notes:
        start = milliseconds(note.at)
        if note.kind != RETRY_WAIT or start is None:
            continue
        call = tree.end_failed(start, note.model)
        parent = call.parent_id if call is not None else tree.frame_at(start).span_id
        why = " ".join(str(word) for word in (note.status, note.error) if word) or "unknown"
        end = start + 1000.0 * max(0.0, note.seconds)
        if tree.root.end_ms is not None:
            end = max(start, min(end, tree.root.end_ms))
        wait = Span(
            span_id(f"retry {note.sample_uuid} {note.at} {note.model}"),
            parent,
            short(f"retry wait ({why})"),
            Category.MODEL,
            start,
            end if end <= tree.now else None,
            attributes={
                "hawk.kind": RETRY_WAIT,
                "hawk.retry": note.attempt,
                "hawk.until_ms": end,
                "gen_ai.request.model": note.model,
                "error": why,
            },
        )
        tree.add(wait)
    tree.end_rest()


def join_ongoing(tree: Tree, ongoing: Ongoing | None) -> None:
    """Add what an attempt waits for that Inspect has no event of until it is over, such as a person's approval."""
    since = milliseconds(ongoing.since) if ongoing is not None else None
    if ongoing is None or since is None or tree.root.end_ms is not None:
        return
    start = min(max(since, tree.root.start_ms), tree.now)
    span = Span(
        span_id(f"ongoing {ongoing.kind} {ongoing.since}"),
        tree.frame_at(start).span_id,
        short(f"waits for {ongoing.kind}"),
        Category.OTHER,
        start,
        attributes={"hawk.kind": ongoing.kind, "hawk.detail": short(ongoing.detail)},
    )
    tree.add(span)


def join_blocked(tree: Tree, stalls: Iterable[Blocked], attempt: str) -> None:
    """Add the times in which the worker ran nothing else.

    Args:
        attempt: Name of this attempt: one that blocked the loop itself is told from one that had to wait.
    """
    begin, end = tree.root.start_ms, tree.root.end_ms if tree.root.end_ms is not None else tree.now
    for stall in stalls:
        since, until = milliseconds(stall.since), milliseconds(stall.until)
        if since is None or since >= end or (until is not None and until <= begin):
            continue
        start = max(since, begin)
        own = bool(attempt) and stall.attempt == attempt
        by = "by this attempt" if own else f"by {stall.attempt}" if stall.attempt else ""
        span = Span(
            span_id(f"blocked {stall.since}"),
            tree.frame_at(start).span_id,
            one_line(f"event loop blocked {by}".rstrip(), 200),
            Category.HEARTBEAT,
            start,
            None if until is None and tree.root.end_ms is None else min(end, until or end),
            attributes={"hawk.kind": "loop_blocked", "hawk.detail": one_line(stall.where, 200)},
        )
        tree.add(span)


class _Calls:
    """Calls of models by time."""

    def __init__(self, tree: Tree) -> None:
        spans = [s for s in tree if s.category is Category.MODEL]
        self._calls = sorted(
            (s.start_ms, s.end_ms if s.end_ms is not None else tree.now, s.span_id) for s in spans
        )
        self._starts = [start for start, _, _ in self._calls]
        self._longest = max((end - start for start, end, _ in self._calls), default=0.0)

    def around(self, start: float, end: float) -> str | None:
        """The call during which something took place; of several at once the one that began last before it."""
        at = bisect_right(self._starts, start + 1.0) - 1
        while at >= 0 and self._calls[at][0] >= start - self._longest - _SLACK:
            if self._calls[at][1] + _SLACK >= end:
                return self._calls[at][2]
            at -= 1
        return None


def _caller(tree: Tree, request: Request) -> str | None:
    span = tree.spans.get(request.parent_id or "")
    return span.span_id if span is not None and span is not tree.root else None


def _facts(request: Request) -> dict[str, Any]:
    facts: dict[str, Any] = {"hawk.request": request.id, "http.response.status_code": request.status}
    for name, value in (
        ("hawk.account", request.account),
        ("hawk.retry", request.retry),
        ("gen_ai.usage.input_tokens", request.input),
        ("gen_ai.usage.output_tokens", request.output),
        ("hawk.usd", request.usd),
        ("hawk.replayed", request.replayed),
        ("hawk.client_gone", request.client_gone),
    ):
        if value:
            facts[name] = value
    if request.first_byte is not None:
        facts["hawk.first_byte_ms"] = round(1000.0 * request.first_byte, 3)
    if request.error or request.status >= 400:
        facts["error"] = request.error or f"HTTP {request.status}"
    if request.upstream_status not in (None, request.status):
        facts["hawk.upstream_status"] = request.upstream_status
    return facts
