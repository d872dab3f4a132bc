"""The state of a job at one moment: the payload of `eval-set-status`, typed.

A superset of what the public `hawk` client reads: names and types are a contract, so fields are added and
never renamed. Plain data: building it is `core.status`, showing it is the CLI's and the pages' business.
Timestamps are ISO 8601 strings in UTC, durations are seconds.
"""

from typing import Any

import msgspec

from hawk.core.states import ActivityType, JobStatus, Operation, SamplePhase


class Progress(msgspec.Struct):
    """Counts of attempts. The six others always add up to `total`, which comes from the plan."""

    total: int = 0
    completed: int = 0
    running: int = 0
    errored: int = 0
    canceled: int = 0
    limit: int = 0
    waiting: int = 0


class EventBrief(msgspec.Struct):
    """One of the last five events of an attempt. `pending` is true only while it is really in flight."""

    type: str
    description: str | None = None
    timestamp: str | None = None
    duration_seconds: float | None = None
    pending: bool = False


class Activity(msgspec.Struct):
    """What an attempt in flight waits for, since when and (if known) until when."""

    type: ActivityType
    detail: str | None = None
    since: str | None = None
    deadline: str | None = None


class SandboxFacts(msgspec.Struct):
    """An attempt's sandbox.

    Attributes:
        label: Its name, for `hawk sandbox shell`.
        troubles: Limits that were hit, by name (`oom_killed`, `disk_full`, …): how often.
        limits: What keeps each limit: `cgroup`, `rlimit, per process`, `tmpfs`, …
        lost: Why it ended before its attempt did.
    """

    label: str
    troubles: dict[str, int] = {}
    limits: dict[str, str] = {}
    lost: str | None = None


class Sample(msgspec.Struct):
    """One attempt: a (sample, epoch) of a task. `attempt` repeats `epoch` under Hawk's word."""

    id: str
    epoch: int
    attempt: int
    uuid: str | None = None
    phase: SamplePhase = SamplePhase.WAITING
    completed: bool = False
    limit: str | None = None
    error: str | None = None
    retries: int | None = None
    started_at: str | None = None
    completed_at: str | None = None
    total_time: float | None = None
    working_time: float | None = None
    total_tokens: int | None = None
    latest_score: str | None = None
    last_events: list[EventBrief] = []
    idle_seconds: float | None = None
    http_retries: int | None = None
    recent_outcomes: str = ""
    activity: Activity | None = None
    verdict: str | None = None
    reason: str | None = None
    outcome: str | None = None  # of `core.attempts.results.Outcome`, once it has ended
    sandbox: SandboxFacts | None = None  # while it lives; later, if it hit a limit or was lost


class PairCount(msgspec.Struct):
    """Pairs of a task. Passed: an attempt has. Failed: all have ended and none has. The rest is undecided.

    Attributes:
        tally: How many pairs have passed how many of the attempts that have a result so far, as "1/2": 22.
        not_needed: Attempts that their policy made unnecessary.
    """

    total: int = 0
    passed: int = 0
    failed: int = 0
    tally: dict[str, int] = {}
    not_needed: int = 0


class Task(msgspec.Struct):
    """One (task, agent, model). One row however often it was retried."""

    task_name: str
    task_id: str | None = None
    model: str | None = None
    agent: str | None = None
    log_file: str = ""
    eval_id: str | None = None
    eval_status: str | None = None
    live: bool = False
    trouble_reason: str | None = None
    progress: Progress = msgspec.field(default_factory=Progress)
    pairs: PairCount = msgspec.field(default_factory=PairCount)
    samples: list[Sample] = []
    http_retries: int = 0
    metrics: dict[str, float | None] = {}
    error: str | None = None


class WaitingSample(msgspec.Struct):
    """A sandbox that the engine has not started yet and Inspect does not know."""

    sample_id: str | None
    pod_name: str
    phase: str
    reason: str | None = None
    detail: str | None = None


class Metric(msgspec.Struct):
    value: float | None
    unit: str | None = None


class Worker(msgspec.Struct):
    """One worker process as the supervisor sees it."""

    index: int
    state: str
    pid: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    restarts: int = 0
    busy_since: str | None = None  # the control socket has not answered since
    tasks: int = 0


class ModelUse(msgspec.Struct):
    """What a job has spent at the middleman, and has on its way.

    Attributes:
        usd: Dollars of the requests whose model has a price; None: none has.
        waiting: Requests that wait for their turn.
        exhausted: Which bound of the budget is reached, one line.
        problem: Why nothing newer is known, one line.
    """

    requests: int = 0
    tokens: int = 0
    usd: float | None = None
    in_flight: int = 0
    waiting: int = 0
    exhausted: str | None = None
    problem: str | None = None


class Snapshot(msgspec.Struct):
    """The whole job. `errors` names each degraded source; everything else is still served."""

    job_id: str
    status: JobStatus = JobStatus.PENDING
    pending_interactions: int = 0
    created_by: str | None = None
    is_owner_or_admin: bool = True
    trouble_reason: str | None = None
    pods: dict[str, Any] | None = None
    metrics: dict[str, Metric] | None = None
    admission: dict[str, Any] | None = None
    progress: Progress = msgspec.field(default_factory=Progress)
    tasks: list[Task] = []
    waiting_samples: list[WaitingSample] = []
    errors: dict[str, str] = {}
    operation: Operation | None = None
    reason: str | None = None  # why the status is what it is, one line
    remedy: str | None = None  # what to do about it, one line
    diagnosis: list[dict[str, Any]] = []
    attempts: dict[str, Any] = {}
    workers: list[Worker] = []
    models: ModelUse | None = None
    started_at: str | None = None
    finished_at: str | None = None
    generated_at: str | None = None
    revision: str | None = None  # the runner's digest of all that does not change by the clock alone


class SealedSnapshot(Snapshot):
    """A snapshot whose tasks are passed on as the bytes they came as.

    Decoding and encoding ten thousand attempts takes longer than everything else in serving them.
    """

    tasks: msgspec.Raw = msgspec.Raw(b"[]")  # type: ignore[assignment]

    def opened(self) -> Snapshot:
        """The same with its tasks decoded.

        Raises:
            msgspec.DecodeError: They are damaged.
        """
        fields = {name: getattr(self, name) for name in Snapshot.__struct_fields__ if name != "tasks"}
        return Snapshot(**fields, tasks=msgspec.json.decode(self.tasks, type=list[Task]))


class StatusResponse(msgspec.Struct):
    """The body of `GET /monitoring/jobs/{id}/eval-set-status`."""

    data: Snapshot
    etag: str
