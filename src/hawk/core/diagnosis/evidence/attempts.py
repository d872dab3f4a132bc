"""An attempt in flight: where it waits, what it calls, what runs in its sandbox, how its last calls went."""

from __future__ import annotations

import msgspec

from hawk.core.snapshot import SandboxFacts
from hawk.core.states import ActivityType, SamplePhase


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
