"""What every source of evidence is given, and what it has to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from hawk.config.settings import Settings
from hawk.core.diagnosis import causes
from hawk.core.diagnosis.evidence import Attempt, Evidence
from hawk.core.plan import Plan
from hawk.core.snapshot import Snapshot
from hawk.runner.models import ModelAccess
from hawk.runner.processes import Worker
from hawk.store.rundir import JobSpec, RunDir


@dataclass
class Context:
    """One look.

    Attributes:
        snapshot: As it was built last; not changed any more.
        enumerator: The process that loads the tasks, while it does.
        workers: Those that live.
        attempts: By uuid, the attempts in flight of the evidence that is being filled: sources amend them.
        keys: The same by (task identifier, sample id, epoch).
    """

    run_dir: RunDir
    spec: JobSpec
    settings: Settings
    now: datetime
    snapshot: Snapshot
    plan: Plan | None = None
    workers: Sequence[Worker] = ()
    models: ModelAccess | None = None
    enumerator: Worker | None = None
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    keys: Mapping[tuple[str, str, int], Attempt] = field(default_factory=dict)


class Reader(Protocol):
    """A source. It may keep what it has read between looks; it is used by one thread.

    Attributes:
        source: Its name in `Evidence.missing`, when `fill` raises.
    """

    source: causes.Source

    def fill(self, evidence: Evidence, context: Context) -> None:
        """Add what it knows. Raises whatever it likes: the rest of the evidence does not depend on it."""
        ...
