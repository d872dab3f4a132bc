"""Rate-limit headers of providers.

OpenAI and those like it: `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, reset as "1s", "6m0s", "120ms".
Anthropic: `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`, reset as an
RFC 3339 time, which is read against the answer's own `date`. Both: `retry-after` (seconds or a date), `retry-after-ms`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s|d)")
_UNIT = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
LONGEST_WAIT = 3600.0
"""No answer holds a lane back for longer: after an hour the provider is asked again."""


class Allowance(NamedTuple):
    """What a provider says is left.

    Attributes:
        limit: Of the whole period.
        reset: Seconds until all of it is there again; None: not said.
    """

    limit: float
    remaining: float
    reset: float | None


def retry_after(headers: Mapping[str, str], given: float | None = None) -> float | None:
    """Seconds to wait, the longest that is said; None: nothing sensible is."""
    waits = [
        given,
        _scaled(headers.get("retry-after-ms"), 1e-3),
        _scaled(headers.get("retry-after"), 1.0),
        _until(headers.get("retry-after"), headers.get("date")),
    ]
    said = [wait for wait in waits if wait is not None and math.isfinite(wait) and wait >= 0]
    return min(max(said), LONGEST_WAIT) if said else None


def requests_left(headers: Mapping[str, str]) -> Allowance | None:
    """What is left of the requests."""
    return _openai(headers, "requests") or _anthropic(headers, "requests")


def tokens_left(headers: Mapping[str, str]) -> list[Allowance]:
    """What is left of each kind of tokens."""
    kinds = ("tokens", "input-tokens", "output-tokens")
    found = [_openai(headers, "tokens"), *(_anthropic(headers, kind) for kind in kinds)]
    return [one for one in found if one is not None]


def seconds(text: str | None) -> float | None:
    """ "1s", "6m0s", "120ms", "1.5" as seconds; None: it is nothing of the kind."""
    if not text or len(text) > 40:
        return None
    text = text.strip()
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _UNIT[unit] for number, unit in parts)
    return _scaled(text, 1.0)


def _openai(headers: Mapping[str, str], what: str) -> Allowance | None:
    return _allowance(
        headers.get(f"x-ratelimit-limit-{what}"),
        headers.get(f"x-ratelimit-remaining-{what}"),
        seconds(headers.get(f"x-ratelimit-reset-{what}")),
    )


def _anthropic(headers: Mapping[str, str], what: str) -> Allowance | None:
    name = f"anthropic-ratelimit-{what}"
    return _allowance(
        headers.get(f"{name}-limit"),
        headers.get(f"{name}-remaining"),
        _until(headers.get(f"{name}-reset"), headers.get("date")),
    )


def _allowance(limit: str | None, remaining: str | None, reset: float | None) -> Allowance | None:
    most, left = _scaled(limit, 1.0), _scaled(remaining, 1.0)
    if most is None or left is None or not 0 < most < 1e12 or not 0 <= left <= most:
        return None
    return Allowance(most, left, reset)


def _scaled(text: str | None, unit: float) -> float | None:
    if not text or len(text) > 40:
        return None
    try:
        value = float(text) * unit
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _until(text: str | None, date: str | None) -> float | None:
    """Seconds from the answer's date to a time in RFC 3339 or in HTTP's form."""
    if not text or not date:
        return None
    then, when = _time(text), _time(date)
    return max((then - when).total_seconds(), 0.0) if then and when else None


def _time(text: str) -> datetime | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None
