"""The whole of it."""

from __future__ import annotations

import msgspec

from hawk.core.diagnosis.evidence.attempts import Attempt
from hawk.core.diagnosis.evidence.cluster import BrokenSandbox, Cluster, WaitingSandbox
from hawk.core.diagnosis.evidence.host import Host
from hawk.core.diagnosis.evidence.job import Change, Enumerating, ErrorGroup, Job, TaskCount
from hawk.core.diagnosis.evidence.learnt import Learnt
from hawk.core.diagnosis.evidence.models import Model
from hawk.core.diagnosis.evidence.workers import Worker
from hawk.core.snapshot import Progress


class Evidence(msgspec.Struct, omit_defaults=True):
    """The document.

    Attributes:
        at: When it was taken. After a death the last one stays, with `job.alive` false.
        amended: When somebody else added to it what only they know (that the runner is gone).
        missing: Source → why it could not be read.
        ended: Attempts that ended otherwise than well, by error.
        waiting: Attempts that have not begun, by what they wait for.
        journal: The last changes of job and workers, oldest first.
    """

    job_id: str
    at: str
    job: Job = msgspec.field(default_factory=Job)
    amended: str | None = None
    missing: dict[str, str] = {}
    progress: Progress = msgspec.field(default_factory=Progress)
    tasks: list[TaskCount] = []
    workers: list[Worker] = []
    attempts: list[Attempt] = []
    waiting: dict[str, int] = {}
    ended: list[ErrorGroup] = []
    models: list[Model] = []
    sandboxes: list[WaitingSandbox] = []
    broken: list[BrokenSandbox] = []
    cluster: Cluster | None = None
    enumerating: Enumerating | None = None
    host: Host | None = None
    learnt: Learnt = msgspec.field(default_factory=Learnt)
    journal: list[Change] = []
