"""How grave a line of a log is, by Inspect's levels."""

from __future__ import annotations

from enum import StrEnum


class LogLevel(StrEnum):
    """From the least to the gravest."""

    DEBUG = "debug"
    TRACE = "trace"
    HTTP = "http"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


_GRAVITY = {level: place for place, level in enumerate(LogLevel)}


def gravity(level: str | None) -> int:
    """To compare by; what says nothing of it, or something else, counts as information."""
    try:
        return _GRAVITY[LogLevel(level or LogLevel.INFO)]
    except ValueError:
        return _GRAVITY[LogLevel.INFO]
