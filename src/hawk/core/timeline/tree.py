"""A tree of spans in the making."""

from __future__ import annotations

from collections.abc import Iterator

from hawk.core.timeline.model import Category, Span


class Tree:
    """Spans of one attempt below one root. Every span's parent is in it, and no span has another's id.

    Attributes:
        root: The attempt.
        now: Milliseconds since 1970 up to which it is known: open spans last at least until then.
        failed: Ids of failed calls of models, which Inspect does not note the end of, with the time of what came next.
    """

    def __init__(self, root: Span, now: float) -> None:
        self.root = root
        self.now = now
        self.spans: dict[str, Span] = {root.span_id: root}
        self.failed: dict[str, float | None] = {}

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans.values())

    def add(self, span: Span) -> Span:
        """Put a span in its place: below the root where its parent is unknown; a second one of an id gets another id."""
        if span.span_id in self.spans:
            span.span_id = self._free(span.span_id)
        if span.parent_id not in self.spans:
            span.parent_id = self.root.span_id
        self.spans[span.span_id] = span
        return span

    def _free(self, taken: str) -> str:
        number = int(taken, 16)
        while (candidate := f"{(number := (number + 1) % 2**64):016x}") in self.spans:
            pass
        return candidate

    def parent(self, span: Span) -> Span | None:
        return self.spans.get(span.parent_id) if span.parent_id is not None else None

    def category_within(self, parent_id: str | None, otherwise: Category) -> Category:
        """What something of no category of its own goes to: scoring and set-up keep what they do for themselves."""
        parent = self.spans.get(parent_id or "")
        if parent is not None and parent.category in (Category.SETUP, Category.SCORING):
            return parent.category
        return otherwise

    def frame_at(self, at: float) -> Span:
        """The innermost span at a time that holds others: where something belongs of which only the time is known."""
        found = self.root
        for span in self.spans.values():
            if (
                span.category.frame
                and span.start_ms <= at
                and (span.end_ms is None or at <= span.end_ms)
                and span.start_ms >= found.start_ms
            ):
                found = span
        return found

    def end_failed(self, at: float, model: str) -> Span | None:
        """A failed call ended then, if one is known that may have; it is returned."""
        for key in reversed(self.failed):
            span, following = self.spans[key], self.failed[key]
            if span.start_ms <= at and (following is None or at <= following) and span.name.endswith(model):
                del self.failed[key]
                span.end_ms = at
                return span
        return None

    def end_rest(self) -> None:
        """Of other failed calls it is only known that they ended before what came next."""
        for key, following in self.failed.items():
            span = self.spans[key]
            span.end_ms = span.start_ms if following is None else following
        self.failed.clear()

    def finish(self) -> list[Span]:
        """All spans by start, their durations known, cycles cut, children within nothing but time."""
        self._cut_cycles()
        for span in self.spans.values():
            end = self.now if span.end_ms is None else span.end_ms
            if end < span.start_ms:  # a clock was set back
                end = span.start_ms
                span.end_ms = None if span.end_ms is None else end
            span.duration_ms = end - span.start_ms
        return sorted(self.spans.values(), key=lambda span: (span.start_ms, -span.duration_ms))

    def _cut_cycles(self) -> None:
        """A damaged log may say that two spans hold each other: then the root holds them."""
        root = self.root.span_id
        safe = {root}
        for span in self.spans.values():
            if span.parent_id in safe:  # as nearly always: who holds others begins first
                safe.add(span.span_id)
                continue
            path: list[Span] = []
            seen: set[str] = set()
            at = span
            while at.span_id not in safe:
                if at.span_id in seen:
                    at.parent_id = root
                    break
                seen.add(at.span_id)
                path.append(at)
                at = self.spans[at.parent_id or root]
            safe.update(step.span_id for step in path)
