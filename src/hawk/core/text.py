"""Text for one line: what of hostile text may reach a terminal, numbers for people, and times as they are written."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# Escape sequences are removed whole, so that no "[31m" stays behind: first the strings (OSC and the like) up to
# their terminator, or to the end of the line, else one that isn't ended would hide all that follows; then CSI,
# then two-character escapes.
_ESCAPES = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
# What is left of C0 but tab and newline, DEL, C1, line and paragraph separators, the marks that reorder text,
# and lone surrogates, which can't be encoded.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def strip_controls(text: str) -> str:
    """The text without escape sequences, control and direction-changing characters; tabs and newlines stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def one_line(text: str, limit: int = 160) -> str:
    """One printable line of at most `limit` characters."""
    line = " ".join(strip_controls(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def duration(seconds: float | None) -> str:
    """Two units at most: `8s`, `3m 20s`, `1h 02m`, `2d 03h`; `–` when unknown."""
    if seconds is None:
        return "–"
    s = max(0, int(seconds))
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m {s % 60:02}s"
    if s < 86400:
        return f"{s // 3600}h {s // 60 % 60:02}m"
    return f"{s // 86400}d {s // 3600 % 24:02}h"


def plural(count: int, noun: str) -> str:
    """`1 task`, `2 tasks`, `1,000 attempts`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def parse_time(text: str | None) -> datetime | None:
    """An ISO 8601 time as an aware datetime, in UTC where it does not say; None for nothing or nonsense."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
