"""A snapshot as plain text: whole, as lines about what changed, and as the summary at the end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from hawk.cli import watch_model as model
from hawk.cli.text import clean, duration, shorten, table
from hawk.cli.watch_concerns import concerns, waits
from hawk.cli.watch_troubles import troubles, verdicts
from hawk.core.snapshot import Sample, Snapshot, Task
from hawk.core.states import JobStatus, SamplePhase

MAX_TASKS = 30
MAX_CONCERNS = 12
MAX_LINES = 5  # lines about single attempts for one change
BAR = 16
# One letter a segment, in the order of SEGMENTS: completed, limit, errored, canceled, running, waiting.
LETTERS = "#Lx-=."


def render(snapshot: Snapshot, now: datetime, columns: int = 110) -> str:
    """The whole snapshot; long lists are cut and say so."""
    blocks = [_header(snapshot, now), _tasks(snapshot, now, columns), _attention(snapshot, now, columns)]
    return "\n\n".join(block for block in blocks if block)


def _header(snapshot: Snapshot, now: datetime) -> str:
    totals = model.totals(snapshot, now)
    wrong = verdicts(snapshot)
    lines = [f"{clean(snapshot.job_id)}: {totals.label}"]
    if totals.elapsed is not None:
        lines[0] += (
            f" for {duration(totals.elapsed)}"
            if not snapshot.status.terminal
            else f" in {duration(totals.elapsed)}"
        )
    if snapshot.reason:
        lines.append(f"  why: {clean(snapshot.reason)}")
    if snapshot.remedy:
        lines.append(f"  → {clean(snapshot.remedy)}")
    lines.append(f"  {model.counts_text(snapshot.progress)}")
    if pairs := model.pairs_text(snapshot):
        lines.append(f"  {pairs}")
    if not snapshot.status.terminal:
        lines.append(
            f"  {model.rate_text(totals.pace)} attempts/min · ETA {model.eta_text(totals.pace) or '–'}"
        )
    if models := model.models_text(snapshot):
        lines.append(f"  {models}")
    if totals.http_retries:
        lines.append(f"  {totals.http_retries:,} HTTP retries")
    if len(wrong) > 1:
        lines += [f"  ! {line}" for line in wrong[1:MAX_LINES]]
    lines += [f"  {line}" for line in waits(snapshot)[:MAX_LINES]]
    lines += [f"  ! {line}" for line in troubles(snapshot, now)]
    return "\n".join([*wrong[:1], *lines])


def _tasks(snapshot: Snapshot, now: datetime, columns: int) -> str:
    rows = model.task_rows(snapshot, now)
    if not rows:
        return ""
    pairs = ["pairs"] if model.several_runs(snapshot) else []
    text = table(
        ["task", "", "done", *pairs, "run", "err", "limit", "cancel", "wait", "/min", "ETA", "retries"],
        [_task_cells(row, pairs=bool(pairs)) for row in rows[:MAX_TASKS]],
        columns=columns,
    )
    notes = [f"  ! {row.name}: {row.note}" for row in rows[:MAX_TASKS] if row.note]
    more = [f"… {len(rows) - MAX_TASKS} more tasks"] if len(rows) > MAX_TASKS else []
    return "\n".join([text, *more, *notes])


def _task_cells(row: model.TaskRow, *, pairs: bool) -> list[str]:
    p = row.progress
    return [
        row.name,
        "".join(letter * n for letter, n in zip(LETTERS, segments(p.total, _counts(row), BAR), strict=True)),
        f"{p.completed}/{p.total}",
        *([f"{row.pairs.passed}/{row.pairs.total}"] if pairs else []),
        *(str(n) if n else "" for n in (p.running, p.errored, p.limit, p.canceled, p.waiting)),
        model.rate_text(row.pace),
        model.eta_text(row.pace),
        str(row.http_retries or ""),
    ]


def _counts(row: model.TaskRow) -> list[int]:
    return [getattr(row.progress, name) for name in model.SEGMENTS]


def segments(total: int, counts: list[int], cells: int) -> list[int]:
    """Share a bar out so that its cells add up and nothing that exists is invisible.

    Largest remainders, after one cell for each count that is not zero (where there are that many cells).
    """
    if total <= 0 or sum(counts) == 0:
        return [0] * (len(counts) - 1) + [cells]
    present = [i for i, n in enumerate(counts) if n > 0]
    shares = [n * cells / sum(counts) for n in counts]
    given = [int(share) for share in shares]
    if len(present) <= cells:
        given = [max(g, 1 if counts[i] else 0) for i, g in enumerate(given)]
    while sum(given) > cells:
        given[
            max(range(len(given)), key=lambda i: given[i] - shares[i] if given[i] > 1 else float("-inf"))
        ] -= 1
    while sum(given) < cells:
        given[max(present, key=lambda i: shares[i] - given[i])] += 1
    return given


def _attention(snapshot: Snapshot, now: datetime, columns: int) -> str:
    found, more = concerns(snapshot, now, MAX_CONCERNS)
    if not found:
        return ""
    rows = [[c.task, c.who, c.phase, c.text] for c in found]
    lines = [table(["attempts to look at", "", "phase", "what"], rows, columns=columns)]
    if more:
        lines.append(f"… {more:,} more")
    return "\n".join(lines)


def changes(old: Snapshot | None, new: Snapshot, now: datetime) -> Iterator[str]:
    """A line for each thing that changed: status, progress, trouble, attempts that ended badly."""
    if old is None or (old.status, old.operation, old.reason) != (new.status, new.operation, new.reason):
        why = f": {clean(new.reason)}" if new.reason else ""
        remedy = f" → {clean(new.remedy)}" if new.remedy else ""
        yield f"{model.totals(new, now).label}{why}{remedy}"
    if new.progress.total and (old is None or old.progress != new.progress):
        totals = model.totals(new, now)
        eta = model.eta_text(totals.pace)
        tail = f" · ETA {eta}" if totals.pace.eta_seconds and not new.status.terminal else ""
        yield model.counts_text(new.progress) + tail
    waited = {_gist(line) for line in waits(old)} if old else set()
    yield from [line for line in waits(new) if _gist(line) not in waited][:MAX_LINES]
    told = {_gist(line) for line in verdicts(old)} if old else set()
    yield from [line for line in verdicts(new) if _gist(line) not in told][:MAX_LINES]
    known = {_gist(line) for line in troubles(old, now)} if old else set()
    for line in troubles(new, now):
        if _gist(line) not in known:
            yield f"trouble: {line}"
    yield from _ended_badly(old, new)


def _gist(line: str) -> str:
    """A trouble line without its numbers: time that passes is no change."""
    return "".join(c for c in line if not c.isdigit())


_BAD = (SamplePhase.ERRORED, SamplePhase.LIMIT)


def _ended_badly(old: Snapshot | None, new: Snapshot) -> Iterator[str]:
    before = _phases(old.tasks) if old else {}
    found = [
        (name, sample)
        for name, task in zip(model.task_names(new.tasks), new.tasks, strict=True)
        for sample in task.samples
        if sample.phase in _BAD and before.get(_key(task, sample)) is not sample.phase
    ]
    for name, sample in found[:MAX_LINES]:
        what = clean(sample.error) if sample.phase is SamplePhase.ERRORED else f"{clean(sample.limit)} limit"
        yield f"{sample.phase}: {name} {clean(sample.id)} #{sample.epoch}: {shorten(what, 200)}"
    if len(found) > MAX_LINES:
        yield f"… {len(found) - MAX_LINES} more attempts errored or hit a limit"


def _phases(tasks: list[Task]) -> dict[tuple[str, str, int], SamplePhase]:
    return {_key(task, sample): sample.phase for task in tasks for sample in task.samples}


def _key(task: Task, sample: Sample) -> tuple[str, str, int]:
    return task.task_id or task.task_name, sample.id, sample.epoch


def summary(snapshot: Snapshot, now: datetime, columns: int = 110) -> str:
    """What came out of a job that has ended, and the commands that come next."""
    totals = model.totals(snapshot, now)
    took = f" in {duration(totals.elapsed)}" if totals.elapsed is not None else ""
    lines = [f"{clean(snapshot.job_id)}: {totals.label}{took}"]
    if snapshot.reason:
        lines.append(f"  {clean(snapshot.reason)}")
    if snapshot.remedy:
        lines.append(f"  → {clean(snapshot.remedy)}")
    lines.append(f"  {model.counts_text(snapshot.progress)}")
    if pairs := model.pairs_text(snapshot):
        lines.append(f"  {pairs}")
    if models := model.models_text(snapshot):
        lines.append(f"  {models}")
    if snapshot.tasks:
        lines += ["", _scores(snapshot, columns)]
    follow = _next_commands(snapshot)
    if follow:
        lines += ["", "Next:", *(f"  {command}" for command in follow)]
    return "\n".join(lines)


def _scores(snapshot: Snapshot, columns: int) -> str:
    rows = []
    for name, task in zip(model.task_names(snapshot.tasks), snapshot.tasks, strict=True):
        p = task.progress
        scores = "  ".join(f"{clean(key)} {_number(value)}" for key, value in task.metrics.items())
        rows.append(
            [
                name,
                f"{p.completed}/{p.total}",
                *(str(n or "") for n in (p.errored, p.limit, p.canceled)),
                scores or "–",
            ]
        )
    shown = table(["task", "done", "err", "limit", "cancel", "scores"], rows[:MAX_TASKS], columns=columns)
    return shown + (f"\n… {len(rows) - MAX_TASKS} more tasks" if len(rows) > MAX_TASKS else "")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.1f}"


def _next_commands(snapshot: Snapshot) -> list[str]:
    job = clean(snapshot.job_id)
    if snapshot.status is JobStatus.DELETED:
        return []
    commands = [
        f"hawk transcript {clean(sample.uuid)}    # {sample.phase}: {clean(sample.id)} #{sample.epoch}"
        for phase in _BAD
        for sample in _first_of(snapshot, phase, 2)
    ]
    if snapshot.progress.completed or commands:
        commands += [f"hawk report {job}", f"hawk list samples {job}"]
    if snapshot.status is JobStatus.FAILED:
        commands += [f"hawk logs {job}", f"hawk eval-set resume {job}"]
    return commands


def _first_of(snapshot: Snapshot, phase: SamplePhase, count: int) -> list[Sample]:
    found = (s for task in snapshot.tasks for s in task.samples if s.phase is phase and s.uuid)
    return [sample for sample, _ in zip(found, range(count), strict=False)]
