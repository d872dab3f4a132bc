"""What is wrong with a job as a whole, a line each, as a watcher is shown it: pure, over a Snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hawk.cli.text import clean, duration, plural, seconds_since
from hawk.core.snapshot import Snapshot, Worker
from hawk.core.states import Trouble

BUSY = 5.0  # seconds of silence of a worker before it is trouble: a loaded machine pauses for less


def verdicts(snapshot: Snapshot) -> list[str]:
    """What is wrong, by name, the worst first, a line each."""
    return [verdict_line(v) for v in snapshot.diagnosis if v.get("severity") not in (None, "info")]


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """A verdict, as a snapshot carries it, in one line: how bad, what, how many attempts, the next command."""
    held = verdict.get("attempts") or 0
    holds = f" · holds {plural(held, 'attempt')}" if held else ""
    cause = f"{str(verdict['severity']).upper()} {clean(verdict.get('cause'))}"
    return f"{cause}: {clean(verdict.get('what'))}{holds} → {clean(verdict.get('next'))}"


def troubles(snapshot: Snapshot, now: datetime) -> list[str]:
    """What is wrong with the job as a whole: trouble, workers, sandboxes that wait, degraded sources."""
    lines = []
    if snapshot.trouble_reason:
        lines.append(trouble_text(snapshot.trouble_reason))
    lines += [text for worker in snapshot.workers if (text := _worker_text(worker, now))]
    if snapshot.waiting_samples:
        first = snapshot.waiting_samples[0]
        why = clean(first.detail or first.reason or first.phase)
        lines.append(f"{len(snapshot.waiting_samples)} sandboxes not started: {why}")
    if snapshot.models is not None and snapshot.models.problem and not snapshot.status.terminal:
        lines.append(clean(snapshot.models.problem))
    lines += [f"{clean(source)} unavailable: {clean(why)}" for source, why in sorted(snapshot.errors.items())]
    return lines


def trouble_text(reason: str) -> str:
    """A trouble reason in words; one that is not ours as it is."""
    try:
        return f"{Trouble(reason).label} ({reason})"
    except ValueError:
        return clean(reason)


def _worker_text(worker: Worker, now: datetime) -> str:
    parts = []
    if (busy := seconds_since(worker.busy_since, now)) >= BUSY:
        parts.append(f"has not answered for {duration(busy)}")
    if worker.exit_code not in (None, 0):
        parts.append(f"ended with exit code {worker.exit_code}{_because(worker.reason)}")
    if worker.restarts:
        parts.append(f"restarted {worker.restarts} x{'' if worker.exit_code else _because(worker.reason)}")
    return f"worker {worker.index} " + ", ".join(parts) if parts else ""


def _because(reason: str | None) -> str:
    return f" ({clean(reason)})" if reason else ""
