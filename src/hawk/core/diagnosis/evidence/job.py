"""The job as a whole, its tasks, and how its attempts ended."""

from __future__ import annotations

from typing import Any

import msgspec

from hawk.core.snapshot import Progress
from hawk.core.states import JobStatus, Operation

CHANGES = frozenset({"job", "worker", "stop", "fix"})
"""Kinds of lines of the journal that are evidence: of attempts the snapshot says more, and verdicts follow from it."""


class Change(msgspec.Struct, omit_defaults=True):
    """A line of the journal."""

    at: str
    kind: str
    subject: str
    state: str
    reason: str = ""
    data: dict[str, Any] = {}


class Job(msgspec.Struct, omit_defaults=True):
    """The job as a whole.

    Attributes:
        phase: `preparing` (its packages are installed), `enumerating` (its tasks are loaded), `running`, `ended`.
        phase_since: When that began.
        submitted_at: When it was accepted.
        alive: A supervisor holds it, or is being started.
        ended_how: How its supervisor ended, where that is known and was not its own doing.
        reason: Why the status is what it is, as the supervisor said.
        slots: Attempts that run at once at most; 0 without such a bound.
        slots_by: Which setting that bound is.
        connections: Model calls at once, by the config; None: not set.
        queue_place: Place in the queue of jobs, from 1, while it has not been launched.
        stopping_since: When a stop was asked for.
        models_problem: Why the middleman can't be reached.
        models_problem_since: Since when.
        exhausted: Which bound of its budget is used up.
        installing: Packages that are being installed.
        storage_error: Why records can't be written.
        max_retries: Of a model call.
        never_changed: Seconds since anything of the job changed last.
    """

    phase: str = "running"
    phase_since: str | None = None
    submitted_at: str | None = None
    status: JobStatus = JobStatus.RUNNING
    operation: Operation | None = None
    alive: bool = True
    ended_how: str | None = None
    reason: str | None = None
    remedy: str | None = None
    slots: int = 0
    slots_by: str = ""
    connections: int | None = None
    queue_place: int | None = None
    stopping_since: str | None = None
    models_problem: str | None = None
    models_problem_since: str | None = None
    exhausted: str | None = None
    installing: str = ""
    storage_error: str | None = None
    max_retries: int | None = None
    policy: str = ""
    never_changed: float | None = None


class TaskCount(msgspec.Struct, omit_defaults=True):
    """One (task, agent, model). `identifier` is the plan's.

    Attributes:
        waiting_reason: What its attempts wait for that have not begun.
        error: The task as a whole failed, and why.
        paused: It is paused.
        expected: Seconds that its attempts are expected to take, from earlier runs; None without any.
        last_end: When the last attempt of it ended.
        trouble: Infrastructure trouble in the cluster's spelling.
    """

    identifier: str
    name: str
    model: str = ""
    agent: str | None = None
    progress: Progress = msgspec.field(default_factory=Progress)
    waiting_reason: str = ""
    error: str | None = None
    paused: bool = False
    expected: float | None = None
    last_end: str | None = None
    trouble: str | None = None


class ErrorGroup(msgspec.Struct, omit_defaults=True):
    """Attempts that ended with the same error, limit or reason.

    Attributes:
        kind: Type of the error, or `limit`.
        message: Of the newest, one line, shortened.
        limit: Which limit, for attempts that one ended.
        count: How many, tries that were run again included.
        phase: Where it failed: `sandbox`, `setup`, `agent`, `scoring`; empty where that is not known.
        retried: How many of them were tries that were run again.
        attempts: How many attempts they are of.
        examples: Names of some, `task/sample/attempt`, newest first.
    """

    kind: str
    message: str
    count: int
    task: str = ""
    limit: str | None = None
    phase: str = ""
    retried: int = 0
    attempts: int = 0
    first_at: str | None = None
    last_at: str | None = None
    examples: list[str] = []
    uuids: list[str] = []


class Enumerating(msgspec.Struct, omit_defaults=True):
    """The process that loads the tasks, while it does. `place` is where its main thread is."""

    since: str
    place: str = ""
    own: bool = False
    label: str = ""
    cpu: float | None = None
