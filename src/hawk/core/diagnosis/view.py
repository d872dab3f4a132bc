"""Evidence, indexed for the rules: attempts by what they do, by worker, by model; times as seconds before now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property

from hawk.core.diagnosis.evidence import Change, Evidence, Model, Times, Worker
from hawk.core.diagnosis.learning import times
from hawk.core.snapshot import SandboxFacts
from hawk.core.states import ActivityType, SamplePhase

ACTIVE = 20.0
"""Seconds within which an attempt that has done something is active."""


class View:
    """What rules read.

    Args:
        evidence: As it was taken.
        now: The moment to judge it at: when it was taken, while the runner lives.
    """

    def __init__(self, evidence: Evidence, now: datetime) -> None:
        self.evidence = evidence
        self.now = now
        self.job = evidence.job
        self.attempts = evidence.attempts
        self.workers = evidence.workers
        self.models = evidence.models
        self.learnt = evidence.learnt

    # --- attempts

    @cached_property
    def by_uuid(self) -> dict[str, int]:
        """Index of each attempt in flight that has a uuid."""
        return {attempt.uuid: i for i, attempt in enumerate(self.attempts) if attempt.uuid}

    @cached_property
    def _by_activity(self) -> dict[ActivityType | None, list[int]]:
        found: dict[ActivityType | None, list[int]] = defaultdict(list)
        for i, attempt in enumerate(self.attempts):
            found[attempt.activity].append(i)
        return found

    @cached_property
    def _by_phase(self) -> dict[SamplePhase, list[int]]:
        found: dict[SamplePhase, list[int]] = defaultdict(list)
        for i, attempt in enumerate(self.attempts):
            found[attempt.phase].append(i)
        return found

    @cached_property
    def _by_worker(self) -> dict[int | None, list[int]]:
        found: dict[int | None, list[int]] = defaultdict(list)
        for i, attempt in enumerate(self.attempts):
            found[attempt.worker].append(i)
        return found

    @cached_property
    def _by_model(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for i, attempt in enumerate(self.attempts):
            found[attempt.model].append(i)
        return found

    @cached_property
    def _active_by_task(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for i, attempt in enumerate(self.attempts):
            if attempt.idle is not None and attempt.idle < ACTIVE:
                found[attempt.task].append(i)
        return found

    def active_of(self, tasks: Iterable[str]) -> list[int]:
        """Indices of the attempts of some tasks that have just done something."""
        return [i for task in tasks for i in self._active_by_task.get(task, ())]

    def doing(self, *activities: ActivityType | None) -> list[int]:
        """Indices of the attempts that wait for one of some things."""
        return [i for activity in activities for i in self._by_activity.get(activity, ())]

    def in_phase(self, *phases: SamplePhase) -> list[int]:
        return [i for phase in phases for i in self._by_phase.get(phase, ())]

    def of_worker(self, worker: Worker) -> list[int]:
        """Indices of the attempts in flight that a worker runs."""
        return self._by_worker.get(worker.index, [])

    def of_model(self, model: Model) -> list[int]:
        """Indices of the attempts in flight whose model this is, by its name or by a request of theirs."""
        found = set(self._by_model.get(model.name, ())) if model.name else set()
        found.update(self.with_uuids(request.uuid for request in model.open))
        return sorted(found)

    def with_uuids(self, uuids: Iterable[str]) -> list[int]:
        """Indices of attempts in flight; those that are not in flight any more are left out."""
        return sorted({self.by_uuid[uuid] for uuid in uuids if uuid in self.by_uuid})

    def uuids(self, held: Iterable[int]) -> list[str]:
        """Of some attempts in flight; those that have none yet are left out."""
        return [uuid for i in held if (uuid := self.attempts[i].uuid)]

    @cached_property
    def boxes(self) -> list[tuple[int, SandboxFacts]]:
        """Index and sandbox of each attempt that has one, or had."""
        return [(i, a.sandbox) for i, a in enumerate(self.attempts) if a.sandbox is not None]

    @cached_property
    def everybody(self) -> list[int]:
        return list(range(len(self.attempts)))

    # --- times

    def ago(self, at: str | None) -> float | None:
        """Seconds from an ISO 8601 time to now; None for none or nonsense."""
        if at is None:
            return None
        try:
            then = datetime.fromisoformat(at)
        except ValueError:
            return None
        return (self.now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()

    def before(self, seconds: float | None) -> str | None:
        """The time so many seconds ago, ISO 8601."""
        return None if seconds is None else self.after(-seconds)

    def after(self, seconds: float) -> str:
        return (self.now + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")

    def held_since(self, held: Sequence[int]) -> str | None:
        """Since when the first of some attempts waits for what it waits for."""
        times = [since for i in held if (since := self.attempts[i].since) is not None]
        return min(times, default=None)

    # --- what is known from before

    def model_times(self, model: Model) -> Times | None:
        """How long calls of a model took that went well; None without any."""
        if len(model.ok_seconds) >= 3:
            return times(model.ok_seconds)
        return self.learnt.models.get(f"{model.provider}/{model.model}")

    def changes(self, kind: str, *states: str) -> list[Change]:
        """Lines of the journal, oldest first."""
        return [c for c in self.evidence.journal if c.kind == kind and c.state in states]
