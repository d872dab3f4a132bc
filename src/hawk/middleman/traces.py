"""W3C trace context (Recommendation, 2021): one `traceparent` in, a child of it out."""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

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
        return Trace(secrets.token_hex(16), secrets.token_hex(8), None, "01")
    return Trace(match[1], secrets.token_hex(8), match[2], match[3])
