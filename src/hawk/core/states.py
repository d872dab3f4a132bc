"""The words of the system: every state, phase, reason and operation, spelt once.

They are strings on the wire (`StrEnum`), so JSON, database rows and comparisons need no conversion.
"""

from enum import StrEnum


class JobStatus(StrEnum):
    """Where a job is. Terminal: complete, failed, deleted."""

    PENDING = "pending"  # accepted, nothing has started
    RUNNING = "running"  # an attempt is in flight or can start, and the job progresses
    WAITING_FOR_CAPACITY = "waiting_for_capacity"  # nothing can start: unschedulable, no slot, paused
    IMPORTING = "importing"  # finished; results are being indexed
    STUCK = "stuck"  # will not progress on its own
    COMPLETE = "complete"  # every planned attempt has an outcome
    FAILED = "failed"  # runner died for good, or attempts are missing or errored for good
    DELETED = "deleted"  # torn down; no results kept

    @property
    def terminal(self) -> bool:
        return self in (JobStatus.COMPLETE, JobStatus.FAILED, JobStatus.DELETED)

    @property
    def label(self) -> str:
        return _JOB_LABELS[self]


_JOB_LABELS = {
    JobStatus.PENDING: "Queued",
    JobStatus.RUNNING: "Running",
    JobStatus.WAITING_FOR_CAPACITY: "Waiting for capacity",
    JobStatus.IMPORTING: "Importing samples",
    JobStatus.STUCK: "Stuck",
    JobStatus.COMPLETE: "Complete",
    JobStatus.FAILED: "Failed",
    JobStatus.DELETED: "Deleted",
}


class Operation(StrEnum):
    """What a person asked of a job that is still being carried out; shown beside the status."""

    STOPPING = "stopping"
    PAUSED = "paused"
    DELETING = "deleting"


class SamplePhase(StrEnum):
    """Where one attempt is. The last four are final."""

    WAITING = "waiting"
    INIT = "init"  # sandbox and setup
    RUNNING = "running"
    SCORING = "scoring"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    ERRORED = "errored"
    LIMIT = "limit"  # halted by a limit: not a bug
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        return self in _FINAL_PHASES

    @property
    def in_flight(self) -> bool:
        return self in _IN_FLIGHT_PHASES


_FINAL_PHASES = frozenset(
    {SamplePhase.COMPLETED, SamplePhase.ERRORED, SamplePhase.LIMIT, SamplePhase.CANCELED}
)
_IN_FLIGHT_PHASES = frozenset(
    {SamplePhase.INIT, SamplePhase.RUNNING, SamplePhase.SCORING, SamplePhase.AWAITING_APPROVAL}
)


QUEUED = "queued"
"""Why an attempt waits that waits for nothing but its turn."""


class ActivityType(StrEnum):
    """What an attempt in flight is waiting for."""

    MODEL = "model"
    TOOL = "tool"
    RETRY_WAIT = "retry_wait"
    APPROVAL = "approval"
    QUESTION = "question"
    SANDBOX = "sandbox"
    SCORING = "scoring"
    BLOCKED = "blocked"  # the worker's event loop does not turn
    SOLVER = "solver"  # the agent's own code: no call to a model, tool or sandbox is in flight


class Trouble(StrEnum):
    """Infrastructure trouble of a job or task, in the spelling that the cluster uses."""

    OOM_KILLED = "OOMKilled"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    ERR_IMAGE_PULL = "ErrImagePull"
    CREATE_CONTAINER_ERROR = "CreateContainerError"
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    UNSCHEDULABLE = "Unschedulable"

    @property
    def label(self) -> str:
        return _TROUBLE_LABELS[self]


_TROUBLE_LABELS = {
    Trouble.OOM_KILLED: "runner out of memory",
    Trouble.IMAGE_PULL_BACK_OFF: "image pull failing",
    Trouble.ERR_IMAGE_PULL: "image pull failing",
    Trouble.CREATE_CONTAINER_ERROR: "container creation failed",
    Trouble.CREATE_CONTAINER_CONFIG_ERROR: "container creation failed",
    Trouble.CRASH_LOOP_BACK_OFF: "container crash looping",
    Trouble.UNSCHEDULABLE: "pods can't be scheduled",
}


class StopAction(StrEnum):
    """What becomes of attempts that a stop interrupts."""

    SCORE = "score"  # score the work so far
    ERROR = "error"  # mark as error: a resume runs them again


class WorkerState(StrEnum):
    """Where one worker process is."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
