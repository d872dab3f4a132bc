"""What was observed of a job at one moment: one typed document, which every rule reads and nothing else.

It is written beside the snapshot (`evidence.json`), so the last one is there after everything has died. Times are
ISO 8601 in UTC, durations are seconds, memory and disk are bytes. `Evidence.missing` names the sources that could not
be read, and why: a rule that needs one of them is not judged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hawk.core.snapshot import Progress, SandboxFacts
from hawk.core.states import ActivityType, JobStatus, Operation, SamplePhase

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


class Wait(msgspec.Struct, omit_defaults=True, gc=False):
    """Where an attempt's own task is suspended, from the recorder.

    Attributes:
        place: `file:line function` of the innermost frame of somebody's own code; else of the innermost frame.
        own: That is the author's code.
        innermost: `file:line function` of the innermost frame.
        awaits: What that frame waits for, as the recorder says (`Event`, `Lock`, `Future`, `Semaphore`, …).
        label: The same in words: `a model's answer`, `a subprocess`, …; empty where it has no name.
        frames: Function names, outermost first, the innermost 30.
        at: When the chains were taken.
        kind: Of `core.recorder.waitkinds.WaitKind`: what has to happen before it goes on.
        since: Since when it has been seen at this place, without a break.
        looks: In how many records, one after the other.
        others: Kinds of what other tasks of the attempt's own work wait for.
    """

    place: str
    innermost: str = ""
    awaits: str = ""
    label: str = ""
    own: bool = False
    frames: list[str] = []
    at: str | None = None
    kind: str = ""
    since: str | None = None
    looks: int = 0
    others: list[str] = []


class Call(msgspec.Struct, omit_defaults=True, gc=False):
    """An action in flight, from the trace.

    Attributes:
        action: Inspect's word: `Model`, `Tool Call`, `Sandbox Exec`, `Subprocess`, …
        timeout: Its own deadline in seconds, where it has one.
    """

    action: str
    detail: str = ""
    since: str | None = None
    timeout: float | None = None


class Process(msgspec.Struct, omit_defaults=True, gc=False):
    """A process in an attempt's sandbox that no other process in it descends from.

    Attributes:
        state: R, S, D, Z, T, as the kernel says.
        waits: What it sleeps in, in words: `a timer`, `its standard input`, `a lock`, `the network`, `a child`; empty
            where that can't be seen.
        age: Since it began.
        cpu: Seconds of CPU of it so far.
        busy: Share of a core over the last looks.
        io: Bytes read and written per second over the last looks.
        quiet: Seconds for which neither CPU nor I/O moved.
        deadline: Seconds left until a `timeout` that it runs under ends it; None without one.
        background: No command that runs now started it: a daemon, or what an earlier command left.
        service: Which sandbox of the attempt it runs in, where that is not the default one.
    """

    command: str
    state: str = ""
    waits: str = ""
    age: float = 0.0
    cpu: float = 0.0
    busy: float = 0.0
    io: float = 0.0
    quiet: float = 0.0
    deadline: float | None = None
    background: bool = False
    service: str = ""


class Repeat(msgspec.Struct, omit_defaults=True, gc=False):
    """The last calls of a tool were the same, with the same arguments.

    Attributes:
        same_result: The answers were the same too.
    """

    tool: str
    arguments: str
    count: int
    same_result: bool = False
    since: str | None = None


class Retrying(msgspec.Struct, omit_defaults=True, gc=False):
    """Model calls of an attempt that failed and are made again, one after the other without a success.

    Attributes:
        count: Failures in a row so far.
        waited: Seconds spent in pauses between them, all in all.
        until: When the next try is.
        status: HTTP status of the last failure.
        error: Type of the exception.
        kind: Of `calls.Kind`, of the last failure; empty where that is not known.
        said: The beginning of what was said.
        model: `provider/model`, as in `Model`.
    """

    count: int
    waited: float = 0.0
    since: str | None = None
    until: str | None = None
    status: int | None = None
    error: str = ""
    kind: str = ""
    said: str = ""
    model: str = ""


class Try(msgspec.Struct, omit_defaults=True, gc=False):
    """An earlier try of an attempt that errored and was run again."""

    at: str
    error: str
    seconds: float = 0.0


class Unreached(msgspec.Struct, omit_defaults=True):
    """Results of an attempt's tools that speak of a network which is not there.

    Attributes:
        count: Among the last results that are remembered; `of`: how many those are.
        said: The words of the newest.
    """

    count: int
    of: int
    said: str = ""
    since: str | None = None
    last_at: str | None = None


class Attempt(msgspec.Struct, omit_defaults=True, gc=False):
    """An attempt in flight.

    Attributes:
        task: The plan's identifier of its task; `name` is `task/sample/attempt` for people.
        activity: What it waits for as its worker says; None: the worker does not.
        detail, since, deadline: Of that.
        idle: Since it did anything.
        outcomes: Of its last model calls, newest last, S or F.
        tries: Earlier tries that errored, newest last.
        expected: Seconds that it is expected to take in all, from earlier runs.
        scorer: Which scorer runs, while one does and that is known.
        unreached: The network that its commands look for is not there.
    """

    task: str
    sample: str
    epoch: int
    name: str = ""
    uuid: str | None = None
    model: str = ""
    worker: int | None = None
    phase: SamplePhase = SamplePhase.RUNNING
    activity: ActivityType | None = None
    detail: str = ""
    since: str | None = None
    deadline: str | None = None
    started_at: str | None = None
    idle: float | None = None
    http_retries: int = 0
    outcomes: str = ""
    limits: dict[str, float] = {}
    sandbox: SandboxFacts | None = None
    wait: Wait | None = None
    calls: list[Call] = []
    processes: list[Process] = []
    repeat: Repeat | None = None
    retrying: Retrying | None = None
    tries: list[Try] = []
    expected: float | None = None
    scorer: str | None = None
    unreached: Unreached | None = None


class Stalled(msgspec.Struct, omit_defaults=True):
    """A stall of a worker that goes on, as the journal has it. `stall` is of `core.recorder.stalls.Stall`."""

    stall: str
    since: str
    reason: str = ""
    where: str = ""
    innermost: str = ""
    attempt: str = ""


class Exit(msgspec.Struct, omit_defaults=True):
    """How a worker process ended."""

    at: str
    reason: str


class Worker(msgspec.Struct, omit_defaults=True):
    """One worker process.

    Attributes:
        state: `starting`, `running`, `exited`.
        control: `ok`, `busy` (no answer in time), `gone` (nobody listens), `unknown`.
        control_since: Since when it is not ok.
        answered: It has answered before.
        beat: Seconds since its last heartbeat; None before the first.
        lag: Seconds for which its event loop had not answered at that heartbeat.
        lags: The longest such lag of each of the last looks, newest last.
        cpu: Share of a core over the last looks.
        memory, memory_limit, memory_by: Near which limit it is.
        exits: Ends of its processes, newest last.
        stalled: What stands still now.
        preparing: What is being made that its sandboxes need.
        preparing_since: Since when.
        dropped: Trace lines that could not be written.
        complaints: Known patterns in its output: `database is locked` → how often, in the last minutes.
        complaint_at: When the newest of each was seen.
    """

    index: int
    pid: int | None = None
    state: str = "running"
    restarts: int = 0
    control: str = "unknown"
    control_since: str | None = None
    control_error: str = ""
    answered: bool = False
    beat: float | None = None
    lag: float = 0.0
    lags: list[float] = []
    cpu: float | None = None
    memory: int = 0
    memory_limit: int = 0
    memory_by: str = ""
    open_files: int = 0
    exits: list[Exit] = []
    stalled: list[Stalled] = []
    preparing: str | None = None
    preparing_since: str | None = None
    dropped: int = 0
    complaints: dict[str, int] = {}
    complaint_at: dict[str, str] = {}


class Enumerating(msgspec.Struct, omit_defaults=True):
    """The process that loads the tasks, while it does. `place` is where its main thread is."""

    since: str
    place: str = ""
    own: bool = False
    label: str = ""
    cpu: float | None = None


class Held(msgspec.Struct, omit_defaults=True):
    """Places of a lane that a job holds, and those it waits for. `mine`: it is this job."""

    job: str
    in_flight: int = 0
    waiting: int = 0
    oldest_wait: float | None = None
    mine: bool = False


class Lane(msgspec.Struct, omit_defaults=True):
    """A model's lane at the middleman: all jobs share it.

    Attributes:
        limit: Requests at once just now; `most` is the ceiling that was configured.
        paused_until, paused_why: A provider said to wait.
        p50, p95: Seconds from sending to the first byte of the answer, of the last calls.
        per_minute: Requests of all jobs that were let through in the last minute.
        refused, errors: 429 and other failures of all jobs in the last minute.
    """

    limit: float = 0.0
    most: int | None = None
    in_flight: int = 0
    waiting: int = 0
    by_job: list[Held] = []
    paused_until: str | None = None
    paused_why: str | None = None
    breaker_open: bool = False
    breaker_since: str | None = None
    breaker_retry_at: str | None = None
    breaker_said: str | None = None
    p50: float | None = None
    p95: float | None = None
    per_minute: float | None = None
    refused: int = 0
    errors: int = 0


class OpenRequest(msgspec.Struct, omit_defaults=True):
    """A request of this job that has not ended.

    Attributes:
        phase: `waiting` for its turn, `connecting`, `sent` (nothing came back yet), `answering`.
        age: Since it came.
        upstream_age: Since it was sent on; None while it waits.
        quiet: Seconds since the last byte of an answer, or since it was sent on.
        bytes: Of the answer so far.
        stream: It asked for its answer in pieces.
        reasoning: It asked the model to think at length, or is of a kind that does.
        most_tokens: Tokens that it allows.
        deadline: Seconds until the middleman gives it up; None where that is not known.
    """

    id: str
    uuid: str = ""
    name: str = ""
    phase: str = "sent"
    age: float = 0.0
    upstream_age: float | None = None
    quiet: float = 0.0
    bytes: int = 0
    stream: bool = False
    reasoning: bool = False
    most_tokens: int | None = None
    place: int | None = None
    until: str | None = None
    retry: int = 0
    deadline: float | None = None


class CallGroup(msgspec.Struct, omit_defaults=True):
    """Requests that ended in the same way, over the last ten minutes.

    Attributes:
        kind: Of `calls.Kind`.
        streak: How many of them came after the model's last good answer: 0 when the newest request of this model was
            answered well. Those that a client left don't count as an answer, nor as a failure.
        seconds: Durations of the last ones, newest last, at most 20.
        said: The beginning of the newest error of the provider.
        uuids: Of the attempts whose last request ended so, newest last, at most 1,000.
        again: How many of them were made by an attempt whose last one ended so, too.
        direct: A request of the same kind past the middleman was answered: True or False; None: it was not tried.
    """

    kind: str
    count: int
    status: int = 0
    upstream_status: int | None = None
    error: str = ""
    said: str = ""
    first_at: str | None = None
    last_at: str | None = None
    streak: int = 0
    seconds: list[float] = []
    output: list[int] = []
    retry_after: float | None = None
    uuids: list[str] = []
    direct: bool | None = None
    again: int = 0


class Probe(msgspec.Struct, omit_defaults=True):
    """Whether a provider answered a small question that costs nothing (the list of its models).

    Attributes:
        answered: Any HTTP answer, whatever its status; False: none in time.
        why: What went wrong, where it did.
    """

    at: str
    answered: bool
    seconds: float = 0.0
    status: int | None = None
    why: str = ""


class Model(msgspec.Struct, omit_defaults=True):
    """A model of this job, by provider and account.

    Attributes:
        name: As Inspect names it, where that is known: `openai/gpt-4o`.
        recent: How its last requests of this job ended, newest last: S or F, at most 50.
        last_ok: When one was answered well last.
        ok_seconds: Durations of the last good ones, newest last, at most 50.
        direct: The provider answers without the middleman.
        failing: Failures since the last good answer, of every kind; `failing_since`: when the first of them came.
        url: Where the provider is.
        past: Its calls don't go through the middleman.
    """

    provider: str
    account: str = ""
    model: str = ""
    name: str = ""
    lane: Lane | None = None
    open: list[OpenRequest] = []
    calls: list[CallGroup] = []
    recent: str = ""
    last_ok: str | None = None
    ok_seconds: list[float] = []
    probe: Probe | None = None
    direct: Probe | None = None
    failing: int = 0
    failing_since: str | None = None
    url: str = ""
    past: bool = False


class Disk(msgspec.Struct, omit_defaults=True):
    """A file system that matters. `what`: `run directory`, `temporary files`, `sandboxes`."""

    what: str
    path: str
    free: int = 0
    total: int = 0
    free_files: int | None = None
    writable: bool = True
    why: str = ""


class Host(msgspec.Struct, omit_defaults=True):
    """The machine. `pressure` is the share of time in which something waited for a CPU, over ten seconds (PSI)."""

    cores: int = 0
    load: float = 0.0
    pressure: float | None = None
    throttled: float | None = None
    memory: int = 0
    memory_free: int = 0
    disks: list[Disk] = []


class Times(msgspec.Struct, omit_defaults=True):
    """Durations seen before of one kind of thing, in seconds."""

    count: int
    p50: float
    p95: float
    most: float


class Learnt(msgspec.Struct, omit_defaults=True):
    """What earlier runs and this one have shown.

    Attributes:
        models: How long a call takes, by `provider/model`.
        tools: How long a call takes, by the tool's name.
        scorers: How long one takes, by its name.
        starts: How long a sandbox takes to be there, by task.
        idle: The longest time that an attempt did nothing and then went on.
    """

    models: dict[str, Times] = {}
    tools: dict[str, Times] = {}
    scorers: dict[str, Times] = {}
    starts: dict[str, Times] = {}
    idle: float = 0.0


class WaitingSandbox(msgspec.Struct, omit_defaults=True):
    """A sandbox that the engine has not started yet. `reason` is in the cluster's spelling."""

    sample: str | None
    name: str
    phase: str = ""
    reason: str = ""
    detail: str = ""
    since: str | None = None
    task: str = ""
    epoch: int | None = None


class BrokenSandbox(msgspec.Struct, omit_defaults=True):
    """A sandbox's pod that was restarted, ended or vanished.

    Attributes:
        how: `oom_killed`, `restarted`, `disrupted` (evicted, its node gone), `ended`, `deleted`.
        detail: In words, as the end of a sentence about the sandbox.
    """

    sample: str
    name: str
    how: str
    detail: str = ""
    at: str | None = None
    task: str = ""
    epoch: int | None = None
    service: str = ""


class RunnerEnd(msgspec.Struct, omit_defaults=True):
    """How a runner pod ended. `how` is of `core.cluster_why.End`; `words` continue a sentence about it."""

    name: str
    how: str
    words: str
    at: str | None = None


class Cluster(msgspec.Struct, omit_defaults=True):
    """What a cluster says of the job's runner, where it runs on one.

    Attributes:
        active: There is a runner pod that has not ended.
        runner: Why it does not start.
        queue: The queue that has not admitted it yet.
        ends: How its pods ended that did not end well, oldest first.
        problem: Why the cluster can't be asked.
    """

    namespace: str = ""
    active: bool = False
    runner: WaitingSandbox | None = None
    queue: str = ""
    queued_since: str | None = None
    ends: list[RunnerEnd] = []
    problem: str = ""
    problem_since: str | None = None


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
