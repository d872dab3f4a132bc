"""What goes into a lane and comes out of it: limits, tickets, outcomes, and the reasons for waiting."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

NO_HEADERS: Mapping[str, str] = {}


class Limits(msgspec.Struct, frozen=True):
    """What a person configured for one (account, model).

    Attributes:
        most: Ceiling of requests in flight.
        start: Where the adaptive limit starts.
        least: It never falls below this.
        requests_per_minute: Starts in any 60 seconds, spread evenly; None: only what the provider shows.
        tokens_per_minute: Tokens in any 60 seconds, input and output together.
        adaptive: False keeps the limit at `most` and learns no rate; Retry-After counts all the same.
    """

    most: int = 256
    start: int = 8
    least: int = 1
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    adaptive: bool = True


class Ticket(msgspec.Struct, eq=False):
    """One request that wants to be sent; compared by identity.

    Attributes:
        job: Whose request it is.
        tokens: What it will probably use, input and output; 0: not known.
        asked_at: When it asked, in the seconds of the caller's monotonic clock.
        granted_at: When it was let go; None while it waits.
        key: The same for every try of one request, so that a retry keeps its place; "": each try stands alone.
        place: When the first try of this request asked, which orders the tickets of a job.
        level: Requests in flight when it was let go, itself included.
        serial: Its number among the lane's grants.
        edge: It took the last place that the limit allowed.
        booked: Tokens that were counted for it beforehand.
        share, cell: The lane's bookkeeping; not for callers.
    """

    job: str
    tokens: int = 0
    asked_at: float = 0.0
    granted_at: float | None = None
    key: str = ""
    place: float = 0.0
    level: int = 0
    serial: int = 0
    edge: bool = False
    booked: float = 0.0
    share: Any = None
    cell: Any = None


class Outcome(msgspec.Struct, frozen=True):
    """How a request ended.

    Attributes:
        status: The provider's HTTP status; 0: no answer.
        seconds: Until the first byte of the answer.
        tokens: What it really used; 0: not known.
        retry_after: Seconds that the provider asked for, beside what the headers say.
        headers: Of the answer, names in lower case; the rate-limit ones are read.
    """

    status: int
    seconds: float
    tokens: int = 0
    retry_after: float | None = None
    headers: Mapping[str, str] = NO_HEADERS


class Reason(StrEnum):
    """Why a ticket waits."""

    RETRY_AFTER = "retry_after"
    """The provider said when to come back."""
    BACK_OFF = "back_off"
    """The provider refused and did not say when to come back."""
    REQUESTS_PER_MINUTE = "requests_per_minute"
    """The configured rate, or the one in the provider's headers."""
    LEARNT_RATE = "learnt_rate"
    """The rate that refusals have shown."""
    TOKENS_PER_MINUTE = "tokens_per_minute"
    CONCURRENCY = "concurrency"
    """All places are taken."""
    FAIR_SHARE = "fair_share"
    """All places are taken, and this job holds its share of them."""
    NEXT = "next"
    """Nothing is in the way; it goes at the next grant."""


class Waiting(msgspec.Struct, frozen=True):
    """Why a ticket waits.

    Attributes:
        place: 1 is the next to go.
        until: When the reason ends by itself, on the caller's clock; None: when a request ends.
        holders: Requests in flight by job.
    """

    reason: Reason
    place: int
    until: float | None
    holders: dict[str, int]


class LaneState(msgspec.Struct, frozen=True):
    """A lane at one moment; times on the caller's clock, rates a minute.

    Attributes:
        limit: Requests that may be in flight now.
        in_flight: Requests in flight by job.
        waiting: Queued tickets by job.
        oldest: When the first queued ticket of each job asked.
        paused_until: Nothing starts before this.
        paused_why: What the pause follows from.
        learnt_per_minute: Starts a minute that refusals or headers have shown; None: no such limit was met.
        requests_last_minute: Requests let go and not refused.
        tokens_last_minute: Tokens of requests that ended.
        refused_last_minute: Answers with 429.
        errors_last_minute: Answers of 500 and above, and no answer at all.
        p50, p95: Seconds to the first byte, over the last 512 good answers.
    """

    limit: int
    most: int
    in_flight: dict[str, int]
    waiting: dict[str, int]
    oldest: dict[str, float]
    paused_until: float | None
    paused_why: Reason | None
    learnt_per_minute: float | None
    requests_last_minute: int
    tokens_last_minute: int
    refused_last_minute: int
    errors_last_minute: int
    p50: float | None
    p95: float | None
