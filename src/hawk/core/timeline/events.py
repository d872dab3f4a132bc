"""Spans from Inspect's events.

An event that takes time is a span of its own. What Inspect calls a span (`span_begin`, `span_end`) is one as well, but
for that around the call of a tool: it and the tool's event are one and the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hawk.core.text import one_line
from hawk.core.timeline.model import Category, Span, call_id, short, span_id
from hawk.core.timeline.records import EMPTY, EventRow, Output, milliseconds
from hawk.core.timeline.tree import Tree

_DETAIL = 200
_OF_TYPE = {
    "init": Category.SETUP,
    "solvers": Category.EXECUTION,
    "solver": Category.EXECUTION,
    "agent": Category.EXECUTION,
    "subtask": Category.EXECUTION,
    "handoff": Category.EXECUTION,
    "scorers": Category.SCORING,
    "scorer": Category.SCORING,
    "tool": Category.TOOL,
}
_MOMENTS = frozenset({"score", "approval", "input", "sample_limit", "error", "interrupt", "compaction"})
"""Events without a duration that are worth a line. The others (`state`, `store`, `logger`, `info`, …) are not."""

_IRID = b'"x-irid"'


class EventFold:
    """Puts events into a tree, in their order.

    Args:
        tree: Where to.
        texts: Long texts that events refer to by `attachment://`.
        below: Id of the span that holds what names no other.
    """

    def __init__(self, tree: Tree, texts: Mapping[str, msgspec.Raw], below: str) -> None:
        self._tree, self._texts, self._below = tree, texts, below
        self._ids: dict[str, str] = {}  # Inspect's span to ours
        self._calls: dict[str, Span] = {}  # by the id of a tool's call
        self._frames: dict[
            tuple[str, str], list[Span]
        ] = {}  # spans around tools that wait for the tool's event
        self._tools: dict[tuple[str, str], list[Span]] = {}  # and events that wait for their span
        self._failed: dict[str, str] = {}  # the last failed call of a model in each of Inspect's spans

    def add(self, rows: Iterable[EventRow]) -> None:
        """Take events; rows without a time are passed over."""
        take = {
            "span_begin": self._begin,
            "span_end": self._end,
            "model": self._model,
            "tool": self._tool,
            "sandbox": self._sandbox,
            "subtask": self._subtask,
            **dict.fromkeys(_MOMENTS, self._moment),
        }
        for row in rows:
            taken = take.get(row.event)
            at = milliseconds(row.timestamp) if taken is not None else None
            if taken is not None and at is not None:
                if self._failed:
                    self._follow(row, at)
                taken(row, at)

    def _follow(self, row: EventRow, at: float) -> None:
        """A failed call had ended when the next thing in its place began, or its place ended."""
        place = (row.id if row.event == "span_end" else row.span_id) or ""
        failed = self._failed.pop(place, None)
        if failed is not None:
            self._tree.failed[failed] = at

    # --- one kind of event each

    def _begin(self, row: EventRow, at: float) -> None:
        inside = row.parent_id or ""
        parent = self._place(row.parent_id)
        name = row.name or row.type or "span"
        if row.type == "tool":
            known = self._tools.get((inside, name))
            if known:
                self._ids[row.id or ""] = known.pop(0).span_id
                return
        category = _OF_TYPE.get(row.type or "") or _OF_TYPE.get(name)
        if category is None or category is Category.TOOL:
            category = self._tree.category_within(parent, category or Category.EXECUTION)
        made = Span(
            span_id=span_id(f"span {row.id or row.uuid}"),
            parent_id=parent,
            name=short(name),
            category=category,
            start_ms=at,
            attributes={"hawk.kind": row.type or "span"},
        )
        made = self._tree.add(made)
        self._ids[row.id or ""] = made.span_id
        if row.type == "tool":
            self._frames.setdefault((inside, name), []).append(made)

    def _end(self, row: EventRow, at: float) -> None:
        span = self._tree.spans.get(self._ids.get(row.id or "", ""))
        # The span of a tool ends before the tool's event does, which then says when.
        if span is not None and span.end_ms is None and "hawk.call" not in span.attributes:
            span.end_ms = at

    def _model(self, row: EventRow, at: float) -> None:
        wrong = _failure(row)
        timeless = not row.pending and row.completed is None and row.working_time is None
        if timeless and not wrong:
            return  # the draft of a call that another event tells of
        attributes: dict[str, Any] = {"hawk.kind": "model"}
        usage = row.output.usage if isinstance(row.output, Output) else None
        if usage is not None:
            attributes["gen_ai.usage.input_tokens"] = usage.input_tokens or 0
            attributes["gen_ai.usage.output_tokens"] = usage.output_tokens or 0
        if row.retries:
            attributes["hawk.retries"] = row.retries
        if row.cache:
            attributes["hawk.cache"] = row.cache
        call = _irid(row.call)
        id_ = call_id(call) if call else None
        span = self._span(row, at, row.model or "model", Category.MODEL, attributes, id_)
        if timeless:
            span.end_ms = None
            self._tree.failed[span.span_id] = None
            self._failed[row.span_id or ""] = span.span_id

    def _tool(self, row: EventRow, at: float) -> None:
        name = row.function or "tool"
        attributes: dict[str, Any] = {"hawk.kind": "tool", "hawk.call": row.id or ""}
        detail = _head(row.arguments)
        if detail and detail != "{}":
            attributes["hawk.detail"] = detail
        if row.failed:
            attributes["error"] = "failed"
        inside = row.span_id or ""
        waiting = self._frames.get((inside, name))
        if waiting:
            span = waiting.pop(0)
            span.start_ms, span.category = min(at, span.start_ms), Category.TOOL
            span.end_ms = _ended(row, at)
            span.attributes = {**attributes, **span.attributes, "hawk.kind": "tool", **_failure(row)}
        else:
            span = self._span(row, at, name, Category.TOOL, attributes)
            self._tools.setdefault((inside, name), []).append(span)
        self._calls[row.id or ""] = span

    def _sandbox(self, row: EventRow, at: float) -> None:
        attributes: dict[str, Any] = {"hawk.kind": "sandbox"}
        detail = self._text(row.cmd or row.file)
        if detail:
            attributes["hawk.detail"] = detail
        code = bytes(row.result)
        if row.action == "exec" and code.lstrip(b"-").isdigit():
            attributes["hawk.exit_code"] = int(code)
        category = self._tree.category_within(self._place(row.span_id), Category.TOOL)
        self._span(row, at, f"sandbox {row.action or 'call'}", category, attributes)

    def _subtask(self, row: EventRow, at: float) -> None:
        self._span(row, at, row.name or "subtask", Category.EXECUTION, {"hawk.kind": "subtask"})

    def _moment(self, row: EventRow, at: float) -> None:
        """A mark in time; of an approval also the wait for it, since its tool was called."""
        name, category = row.event.replace("_", " "), Category.OTHER
        match row.event:
            case "score":
                name, category = f"score {row.scorer or ''}".rstrip(), Category.SCORING
            case "approval":
                name = f"approval by {row.approver or 'an approver'}: {row.decision or ''}".rstrip(": ")
                call = self._calls.get(_call_id(row.call))
                if call is not None and call.start_ms < at:
                    waited = Span("", call.span_id, short(name), category, call.start_ms, at)
                    waited.span_id = span_id(row.uuid or f"{row.event} {at}")
                    waited.attributes = {"hawk.kind": "approval"}
                    self._tree.add(waited)
                    return
            case "sample_limit":
                name = f"{row.type or ''} limit".strip()
            case "interrupt" | "compaction":
                name = f"{name} {row.type or ''}".rstrip()
        span = self._span(row, at, name, category, {"hawk.kind": row.event})
        span.end_ms = at

    # --- what they have in common

    def _span(
        self,
        row: EventRow,
        at: float,
        name: str,
        category: Category,
        attributes: dict[str, Any],
        id_: str | None = None,
    ) -> Span:
        span = Span(
            span_id=id_ or span_id(row.uuid or f"{row.event} {at}"),
            parent_id=self._place(row.span_id),
            name=short(name),
            category=category,
            start_ms=at,
            end_ms=_ended(row, at),
            attributes=attributes,
        )
        if row.error is not EMPTY:
            attributes.update(_failure(row))
        return self._tree.add(span)

    def _place(self, inspect_span: str | None) -> str:
        return self._ids.get(inspect_span or "", self._below)

    def _text(self, text: str | None) -> str:
        if text and text.startswith("attachment://"):
            return _head(self._texts.get(text.removeprefix("attachment://"), EMPTY)).strip('"')
        return _line(text or "")


def _ended(row: EventRow, at: float) -> float | None:
    if row.pending:
        return None
    end = milliseconds(row.completed)
    if end is None:
        end = at + 1000.0 * (row.working_time or 0.0)
    return end if end > at else at


def _failure(row: EventRow) -> dict[str, Any]:
    """What went wrong, as an attribute."""
    if row.error is EMPTY or bytes(row.error) in (b"", b"null"):
        return {}
    try:
        error = msgspec.json.decode(row.error)
    except ValueError:
        error = "failed"
    if isinstance(error, dict):
        error = error.get("message") or error.get("type") or "failed"
    return {"error": one_line(str(error), _DETAIL)}


def _irid(call: msgspec.Raw) -> str | None:
    """Inspect's id of a call, among the headers that it was sent with: found without decoding what was sent."""
    if call is EMPTY:
        return None
    raw = bytes(call)
    at = raw.find(_IRID)
    if at < 0:
        return None
    start = raw.find(b'"', at + len(_IRID))
    end = raw.find(b'"', start + 1)
    return raw[start + 1 : end].decode("ascii", "ignore") if 0 < start < end <= start + 65 else None


def _call_id(call: msgspec.Raw) -> str:
    try:
        found = msgspec.json.decode(call, type=dict[str, Any]).get("id")
    except ValueError:
        return ""
    return found if isinstance(found, str) else ""


def _head(raw: msgspec.Raw) -> str:
    """The beginning of a JSON document, as it is."""
    return _line(memoryview(raw)[: 4 * _DETAIL].tobytes().decode("utf-8", "ignore"))


def _line(text: str) -> str:
    if len(text) <= _DETAIL and text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    return one_line(text, _DETAIL)
