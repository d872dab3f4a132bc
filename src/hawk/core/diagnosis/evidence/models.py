"""Models of the job: their lanes at the middleman, requests on their way, how requests ended."""

from __future__ import annotations

import msgspec


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
