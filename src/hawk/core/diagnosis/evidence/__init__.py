"""What was observed of a job at one moment: one typed document, which every rule reads and nothing else.

It is written beside the snapshot (`evidence.json`), so the last one is there after everything has died. Times are
ISO 8601 in UTC, durations are seconds, memory and disk are bytes. `Evidence.missing` names the sources that could not
be read, and why: a rule that needs one of them is not judged.

A module a part: `document` holds them all together.
"""

from hawk.core.diagnosis.evidence.attempts import (
    Attempt,
    Call,
    Process,
    Repeat,
    Retrying,
    Try,
    Unreached,
    Wait,
)
from hawk.core.diagnosis.evidence.cluster import BrokenSandbox, Cluster, RunnerEnd, WaitingSandbox
from hawk.core.diagnosis.evidence.document import Evidence
from hawk.core.diagnosis.evidence.host import Disk, Host
from hawk.core.diagnosis.evidence.job import CHANGES, Change, Enumerating, ErrorGroup, Job, TaskCount
from hawk.core.diagnosis.evidence.learnt import Learnt, Times
from hawk.core.diagnosis.evidence.models import CallGroup, Held, Lane, Model, OpenRequest, Probe
from hawk.core.diagnosis.evidence.workers import Exit, Stalled, Worker

__all__ = [
    "CHANGES",
    "Attempt",
    "BrokenSandbox",
    "Call",
    "CallGroup",
    "Change",
    "Cluster",
    "Disk",
    "Enumerating",
    "ErrorGroup",
    "Evidence",
    "Exit",
    "Held",
    "Host",
    "Job",
    "Lane",
    "Learnt",
    "Model",
    "OpenRequest",
    "Probe",
    "Process",
    "Repeat",
    "Retrying",
    "RunnerEnd",
    "Stalled",
    "TaskCount",
    "Times",
    "Try",
    "Unreached",
    "Wait",
    "WaitingSandbox",
    "Worker",
]
