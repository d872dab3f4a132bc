"""Time that nobody recorded and only one thing can have taken, by what Inspect and Hawk do between two phases.

Such spans say so: `hawk.inferred`. What an agent's own code does between two events is not among them: that stays
unattributed, as only the code knows.
"""

from __future__ import annotations

from hawk.core.text import one_line
from hawk.core.timeline.joining import TRY
from hawk.core.timeline.model import Category, Span, span_id
from hawk.core.timeline.records import SampleRecord, WorkerNote, milliseconds
from hawk.core.timeline.tree import Tree

_LEAST = 1.0
"""Milliseconds that are worth a span."""

_BETWEEN = {
    ("init", "solvers"): ("start the agent", Category.SETUP),
    ("solvers", "scorers"): ("save the workspace", Category.OTHER),
    ("scorers", ""): ("clean up", Category.OTHER),
    ("solvers", ""): ("clean up", Category.OTHER),
    ("init", ""): ("clean up", Category.OTHER),
    (TRY, "init"): ("wait to be tried again", Category.SETUP),
    (TRY, TRY): ("wait to be tried again", Category.SETUP),
}
"""What takes the time from the end of one phase to the beginning of the next; the empty one is the attempt's end.

After the agent, Hawk saves its workspace; after the scorers, Inspect takes the sandbox away and writes out events.
"""


def add_phases(tree: Tree, record: SampleRecord) -> None:
    """Add what lies between the phases of an attempt, and what takes the time of its set-up."""
    phases = sorted(
        (
            s
            for s in tree
            if s.parent_id == tree.root.span_id and _kind(s) in (TRY, "init", "solvers", "scorers")
        ),
        key=lambda span: span.start_ms,
    )
    for phase in phases:
        if _kind(phase) == "init" and record.has_sandbox:
            _add_sandbox(tree, phase)
    for before, after in zip(phases, [*phases[1:], None], strict=False):
        found = _BETWEEN.get((_kind(before), _kind(after) if after is not None else ""))
        if found is None or before.end_ms is None:
            continue
        name, category = found
        open_ = after is None and tree.root.end_ms is None
        if open_ and _kind(before) in ("init", "solvers"):
            name, category = _BETWEEN[_kind(before), "solvers" if _kind(before) == "init" else "scorers"]
        end = after.start_ms if after is not None else tree.root.end_ms if not open_ else tree.now
        assert end is not None
        if end - before.end_ms >= _LEAST:
            _infer(tree, tree.root, name, category, before.end_ms, None if open_ else end)


def add_tries(tree: Tree, record: SampleRecord, notes: list[WorkerNote]) -> list[Span]:
    """Add the tries that errored before the present one. What a worker noted of them tells when they began."""
    known = {note.attempt: note for note in notes if note.kind == TRY}
    times = [_times(tree, record, k, known.get(k + 1)) for k in range(max(len(record.earlier), *known, 0))]
    tries = []
    for k, (start, end) in enumerate(times):
        message = (
            record.earlier[k].message
            if k < len(record.earlier)
            else known[k + 1].error
            if k + 1 in known
            else ""
        )
        made = Span(
            span_id(f"try {record.uuid} {k}"),
            tree.root.span_id,
            f"try {k + 1}",
            Category.EXECUTION,
            start,
            end,
            attributes={"hawk.kind": TRY, "error": one_line(message, 200) or "failed"},
        )
        tries.append(tree.add(made))
    return tries


def _times(tree: Tree, record: SampleRecord, k: int, note: WorkerNote | None) -> tuple[float, float]:
    """When a try began and ended, from its note, its events, or else as the attempt began."""
    start = milliseconds(note.at) if note is not None else None
    if note is not None and start is not None:
        return start, start + 1000.0 * note.seconds
    rows = record.earlier[k].events if k < len(record.earlier) else []
    times = [
        at
        for row in rows
        for at in (milliseconds(row.timestamp), milliseconds(row.completed))
        if at is not None
    ]
    return (min(times), max(times)) if times else (tree.root.start_ms, tree.root.start_ms)


def _add_sandbox(tree: Tree, init: Span) -> None:
    """From the beginning of the set-up to the first use of the sandbox, it is waited for and started."""
    uses = [s.start_ms for s in tree if s.parent_id == init.span_id and _kind(s) == "sandbox"]
    end = min(uses, default=init.end_ms)
    until = tree.now if end is None else end
    if until - init.start_ms >= _LEAST:
        _infer(tree, init, "start the sandbox", Category.SETUP, init.start_ms, end)


def _infer(tree: Tree, within: Span, name: str, category: Category, start: float, end: float | None) -> None:
    made = Span(span_id(f"{name} {within.span_id} {start}"), within.span_id, name, category, start, end)
    made.attributes = {"hawk.kind": "phase", "hawk.inferred": True}
    tree.add(made)


def _kind(span: Span) -> str:
    return str(span.attributes.get("hawk.kind", ""))
