"""W3C trace context (Recommendation, 2021): one `traceparent` in, a child of it out."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

_random = random.Random()  # noqa: S311  # ids need to differ, not to be secret
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)


class Trace(NamedTuple):
    """`parent_id` is None where the request began the trace."""

    trace_id: str
    span_id: str
    parent_id: str | None
    flags: str

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def child_of(traceparent: str | None) -> Trace:
    """A span under the one that a request names, or the first of a new trace when it names none that is valid."""
    match = _TRACEPARENT.fullmatch(traceparent.strip()) if traceparent else None
    if match is None:
        return Trace(f"{_random.getrandbits(128) or 1:032x}", _span_id(), None, "01")
    return Trace(match[1], _span_id(), match[2], match[3])


def _span_id() -> str:
    return f"{_random.getrandbits(64) or 1:016x}"
