"""What a timeline is made of, and what is answered about one attempt and about a whole eval set."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from hawk.core.text import one_line

MOST_SPANS = 20_000
"""Spans that one answer holds: the longest are kept, with all that they lie in."""

LONGEST = 10
MOST_GAPS = 20
MOST_TOOL_CALLS = 100


class Category(StrEnum):
    """What the time of a span goes to. Exactly these: other programs read them."""

    SETUP = "setup"
    RUN = "run"
    SAMPLE = "sample"
    EXECUTION = "execution"
    SCORING = "scoring"
    MODEL = "model"
    TOOL = "tool"
    MIDDLEMAN = "middleman"
    PROVIDER = "provider"
    HEARTBEAT = "heartbeat"
    OTHER = "other"

    @property
    def frame(self) -> bool:
        """A span of it only holds others together: that it was open does not say what the time went to."""
        return self in _FRAMES


_FRAMES = frozenset({Category.RUN, Category.SAMPLE, Category.EXECUTION})


class Span(msgspec.Struct, gc=False):
    """Something that took time.

    Attributes:
        span_id: 16 hexadecimal digits, as in a trace context.
        kind: OpenTelemetry's; `INTERNAL` but for requests.
        start_ms: Milliseconds since 1970, with a fraction.
        end_ms: None while it is open.
        duration_ms: Of an open span: so far.
        attributes: Names like OpenTelemetry's. `hawk.kind` says what it is; `hawk.inferred` is true for time that nobody
            recorded and only one thing can have taken; `error` is there when it failed.
    """

    span_id: str
    parent_id: str | None
    name: str
    category: Category
    start_ms: float
    end_ms: float | None = None
    duration_ms: float = 0.0
    kind: str = "INTERNAL"
    attributes: dict[str, Any] = {}

    @property
    def until(self) -> float:
        return self.start_ms + self.duration_ms


class CategoryTime(msgspec.Struct):
    """Time by category. Each moment counts once, for the innermost span that was open, so that times add up.

    Attributes:
        share: Of the whole, from 0 to 1.
        count: Spans of the category.
    """

    category: Category
    total_ms: float
    count: int
    share: float = 0.0


class Gap(msgspec.Struct):
    """Time that no span explains, all gaps between the same two things together.

    Attributes:
        after: What ended before it; empty at the beginning.
        before: What began after it; empty at the end.
        within: The span that was open meanwhile.
        count: So many gaps.
        start_ms: When the longest of them began.
    """

    after: str
    before: str
    within: str
    count: int
    total_ms: float
    longest_ms: float
    start_ms: float


class SampleTimeline(msgspec.Struct):
    """The timeline of one attempt.

    Attributes:
        spans: By start.
        truncated: There were more; totals are over all of them.
        open: Spans that have not ended.
        total_ms: From the first thing known of the attempt to its end, or to `as_of`.
        unattributed_ms: Time of it that no span explains.
        as_of: ISO 8601; of an attempt whose worker died: the last sign of life.
        longest: Ids of the ten spans that took longest by themselves, without what they hold.
        phase: As in `core.status`.
        problem: Why something is missing.
    """

    sample_uuid: str
    eval_set_id: str | None
    eval_id: str | None
    spans: list[Span]
    truncated: bool = False
    open: int = 0
    total_ms: float = 0.0
    unattributed_ms: float = 0.0
    as_of: str = ""
    categories: list[CategoryTime] = []
    longest: list[str] = []
    gaps: list[Gap] = []
    task: str = ""
    sample_id: str = ""
    epoch: int = 0
    model: str = ""
    phase: str = ""
    problem: str | None = None


class ToolCall(msgspec.Struct):
    """One of the longest calls of tools."""

    sample_uuid: str
    tool_name: str
    duration_ms: float
    failed: bool


class EvalSetTimeline(msgspec.Struct):
    """Totals of an eval set.

    Attributes:
        truncated: Not every attempt was read in the time that an answer may take. Ask again: what was read is kept.
        samples: Attempts that are in it.
        total_ms: Of all of them together.
    """

    eval_set_id: str
    categories: list[CategoryTime]
    longest_tool_calls: list[ToolCall]
    span_count: int
    truncated: bool
    samples: int = 0
    total_ms: float = 0.0
    unattributed_ms: float = 0.0


class TimelineSample(msgspec.Struct):
    """An attempt that a timeline can be asked for."""

    sample_uuid: str
    sample_id: str
    epoch: int
    eval_id: str | None


class TimelineSamples(msgspec.Struct):
    """The attempts of an eval set that have a timeline."""

    eval_set_id: str
    samples: list[TimelineSample]
    truncated: bool


@lru_cache(maxsize=1024)
def short(name: str) -> str:
    """A name as spans have it: one printable line. Names come again and again."""
    return one_line(name, 200)


def trace_id(sample_uuid: str) -> str:
    """The trace of an attempt: whoever knows its uuid knows the trace. The rule of `bridge.attribution`."""
    return hashlib.sha256(sample_uuid.encode()).hexdigest()[:32]


def call_id(irid: str) -> str:
    """The span of a model call, from its `x-irid`: the parent that its requests name. The rule of `bridge.attribution`."""
    return hashlib.sha256(irid.encode()).hexdigest()[:16]


def span_id(of: str) -> str:
    """The id of any other span, always the same for the same thing."""
    return hashlib.blake2b(of.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
