"""The life of a job as a pure state machine: events in, instructions out, no I/O and no clock.

```
 new ──Start──► preparing ──Prepared──► enumerating ──Enumerated──► running ──all workers done──► ended
                   │ PreparationFailed       │ EnumerationFailed       │ StopRequested: workers end, none restarts
                   └─────────────────────────┴────────────────────────► ended
```

The supervisor feeds what it observes and carries out what it is told. An impossible event raises
`TransitionError` with the story so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from hawk.core.plan import Limits
from hawk.core.states import StopAction, WorkerState
from hawk.errors import TransitionError


class JobPhase(StrEnum):
    NEW = "new"
    PREPARING = "preparing"
    ENUMERATING = "enumerating"
    RUNNING = "running"
    ENDED = "ended"


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """A supervisor has taken the job."""


@dataclass(frozen=True)
class Prepared:
    """The environment that the eval set's packages need is there."""


@dataclass(frozen=True)
class PreparationFailed:
    reason: str
    remedy: str | None = None


@dataclass(frozen=True)
class Enumerated:
    """The plan is known.

    Attributes:
        shares: Unfinished task identifiers of each worker to start, by worker index.
        adopted: The same for workers of an earlier supervisor that still live.
    """

    shares: dict[int, tuple[str, ...]]
    adopted: dict[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class EnumerationFailed:
    reason: str
    remedy: str | None = None


@dataclass(frozen=True)
class WorkerExited:
    """A worker process ended.

    Attributes:
        index: Which.
        reason: How, one line ("killed by SIGKILL"); empty for a clean end.
        unfinished: Task identifiers of its share with attempts that have no outcome.
        progressed: At least one attempt ended since this worker was last started.
        hopeless: Starting it again would end the same way (the eval set itself is wrong).
        remedy: What to do about that.
        asked: Somebody asked for it, to have it started again: it counts neither as a crash nor as a task's failure.
    """

    index: int
    reason: str = ""
    unfinished: tuple[str, ...] = ()
    progressed: bool = False
    hopeless: bool = False
    remedy: str | None = None
    asked: bool = False


@dataclass(frozen=True)
class StartFailed:
    """A worker could not be started at all."""

    index: int
    reason: str
    remedy: str | None = None


@dataclass(frozen=True)
class StopRequested:
    action: StopAction


@dataclass(frozen=True)
class Halted:
    """The job must not go on (its budget is used up): what is in flight ends as an error, what has ended is kept."""

    reason: str
    remedy: str | None = None


@dataclass(frozen=True)
class StopTimedOut:
    """The workers did not end within the time that the last step of the stop gave them."""


Event = (
    Start
    | Prepared
    | PreparationFailed
    | Enumerated
    | EnumerationFailed
    | WorkerExited
    | StartFailed
    | StopRequested
    | Halted
    | StopTimedOut
)

# --- instructions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepare:
    """Make the environment, then report Prepared or PreparationFailed."""


@dataclass(frozen=True)
class Enumerate:
    """Run the enumeration, then report Enumerated or EnumerationFailed."""


@dataclass(frozen=True)
class StartWorker:
    """Start a worker after `delay` seconds."""

    index: int
    identifiers: tuple[str, ...]
    delay: float = 0.0


@dataclass(frozen=True)
class StopTasks:
    """Ask a worker, over its control socket, to end its tasks: running attempts resolve by `action`."""

    index: int
    action: StopAction


@dataclass(frozen=True)
class SignalWorker:
    """Send a signal by name."""

    index: int
    signal: str


@dataclass(frozen=True)
class ArmStopTimer:
    """Report StopTimedOut after that many seconds, unless the job ends before."""

    seconds: float


@dataclass(frozen=True)
class Finish:
    """Nothing more will run. `reason` is set when something other than the attempts went wrong."""

    reason: str | None = None
    remedy: str | None = None
    stopped: bool = False


Instruction = Prepare | Enumerate | StartWorker | StopTasks | SignalWorker | ArmStopTimer | Finish

# --- the machine ----------------------------------------------------------------------------------

# Scoring the work so far may need model calls of its own, so a stop is patient first. SIGINT lets Inspect
# write its log; its teardown takes seconds even with hundreds of attempts. SIGKILL loses no flushed attempt.
STOP_STEPS: tuple[tuple[str | None, float], ...] = ((None, 60.0), ("SIGINT", 20.0), ("SIGKILL", 10.0))

ON_REQUEST = "ended on request"
"""Beginning of the reason of a worker that was ended to be started again: no crash, whatever signal it took."""

RESTART_DELAY = 1.0
"""Seconds before the second restart without progress; doubles each time. The first is at once."""


@dataclass
class WorkerRecord:
    """One worker as the machine knows it."""

    index: int
    identifiers: tuple[str, ...]
    state: WorkerState = WorkerState.STARTING
    restarts: int = 0
    fruitless: int = 0
    clean_reruns: int = 0
    reason: str = ""


class JobMachine:
    """See the module. `handle` is the only way to change it."""

    def __init__(self, job_id: str, limits: Limits) -> None:
        self.job_id = job_id
        self.limits = limits
        self.phase = JobPhase.NEW
        self.workers: dict[int, WorkerRecord] = {}
        self.stopping: StopAction | None = None
        self.story: list[str] = []
        self._step = 0
        self._failure: tuple[str, str | None] | None = None

    def handle(self, event: Event) -> list[Instruction]:
        """Take an event, return what must be done now.

        Raises:
            TransitionError: The event can't happen in this phase.
        """
        self.story.append(f"{self.phase}: {event}")
        match self.phase, event:
            case JobPhase.NEW, Start():
                self.phase = JobPhase.PREPARING
                return [Prepare()]
            case JobPhase.PREPARING, Prepared():
                return self._unless_stopped(JobPhase.ENUMERATING, [Enumerate()])
            case JobPhase.PREPARING, PreparationFailed(reason, remedy):
                return self._end(reason, remedy)
            case JobPhase.ENUMERATING, EnumerationFailed(reason, remedy):
                return self._end(reason, remedy)
            case JobPhase.ENUMERATING, Enumerated():
                return self._run(event)
            case JobPhase.RUNNING, WorkerExited():
                return self._exited(event)
            case JobPhase.RUNNING, StartFailed():
                self._failure = (event.reason, event.remedy)
                return self._gone(event.index, event.reason)
            case ((JobPhase.PREPARING | JobPhase.ENUMERATING | JobPhase.RUNNING), StopRequested()):
                return self._stop(event.action)
            case ((JobPhase.PREPARING | JobPhase.ENUMERATING | JobPhase.RUNNING), Halted()):
                self._failure = (event.reason, event.remedy)
                return self._stop(StopAction.ERROR)
            case JobPhase.RUNNING, StopTimedOut() if self.stopping is not None:
                return self._escalate()
            case (JobPhase.ENDED, StopRequested() | Halted() | StopTimedOut()) | (_, StopTimedOut()):
                return []
        raise TransitionError(
            f"Job {self.job_id!r} is {self.phase}: {type(event).__name__} can't happen.", story=self.story
        )

    def _run(self, event: Enumerated) -> list[Instruction]:
        self.phase = JobPhase.RUNNING
        for index, identifiers in event.adopted.items():
            self.workers[index] = WorkerRecord(index, identifiers, WorkerState.RUNNING)
        if self.stopping is not None:
            return self._stop_steps() if self.workers else self._end(*(self._failure or (None, None)))
        for index, identifiers in event.shares.items():
            self.workers[index] = WorkerRecord(index, identifiers)
        if not self.workers:
            return self._end(None)
        return [StartWorker(index, identifiers) for index, identifiers in event.shares.items()]

    def _exited(self, event: WorkerExited) -> list[Instruction]:
        worker = self.workers[event.index]
        if self.stopping is not None or not event.unfinished:
            return self._gone(event.index, event.reason)
        if event.asked:
            return self._again(worker, event, 0.0)
        if event.hopeless:
            self._failure = self._failure or (event.reason, event.remedy)
            return self._gone(event.index, event.reason)
        worker.fruitless = 0 if event.progressed else worker.fruitless + 1
        if not event.reason:
            worker.clean_reruns += 1
        if worker.fruitless > self.limits.worker_restarts or worker.clean_reruns > self.limits.task_retries:
            how = event.reason or "ended without an outcome for every attempt"
            self._failure = self._failure or (f"worker {event.index} given up: {how}", None)
            return self._gone(event.index, how)
        delay = 0.0 if worker.fruitless < 2 else RESTART_DELAY * 2.0 ** (worker.fruitless - 2)
        return self._again(worker, event, delay)

    def _again(self, worker: WorkerRecord, event: WorkerExited, delay: float) -> list[Instruction]:
        worker.restarts += 1
        worker.identifiers = event.unfinished
        worker.state, worker.reason = WorkerState.STARTING, event.reason
        return [StartWorker(event.index, event.unfinished, delay)]

    def _gone(self, index: int, reason: str) -> list[Instruction]:
        worker = self.workers[index]
        worker.state, worker.reason = WorkerState.EXITED, reason
        if any(w.state is not WorkerState.EXITED for w in self.workers.values()):
            return []
        return self._end(*(self._failure or (None, None)))

    def _stop(self, action: StopAction) -> list[Instruction]:
        first = self.stopping is None
        self.stopping = action
        if self.phase is not JobPhase.RUNNING:
            return []  # taken up by the next event: nothing is started any more
        return self._stop_steps() if first else [StopTasks(w.index, action) for w in self._living()]

    def _stop_steps(self) -> list[Instruction]:
        self._step = 0
        assert self.stopping is not None
        waiting = [w.index for w in self.workers.values() if w.state is WorkerState.STARTING]
        done: list[Instruction] = []
        for index in waiting:  # a restart that is still to come will not
            done += self._gone(index, "stopped before it started")
        if done:
            return done
        return [
            *(StopTasks(w.index, self.stopping) for w in self._living()),
            ArmStopTimer(STOP_STEPS[0][1]),
        ]

    def _escalate(self) -> list[Instruction]:
        self._step = min(self._step + 1, len(STOP_STEPS) - 1)
        name, seconds = STOP_STEPS[self._step]
        assert name is not None
        return [*(SignalWorker(w.index, name) for w in self._living()), ArmStopTimer(seconds)]

    def started(self, index: int) -> None:
        """The worker's process exists."""
        self.workers[index].state = WorkerState.RUNNING

    def _living(self) -> list[WorkerRecord]:
        return [w for w in self.workers.values() if w.state is WorkerState.RUNNING]

    def _unless_stopped(self, phase: JobPhase, instructions: list[Instruction]) -> list[Instruction]:
        if self.stopping is not None:
            return self._end(*(self._failure or (None, None)))
        self.phase = phase
        return instructions

    def _end(self, reason: str | None, remedy: str | None = None) -> list[Instruction]:
        self.phase = JobPhase.ENDED
        return [Finish(reason, remedy, stopped=self.stopping is not None)]
