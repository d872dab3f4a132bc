"""How findings say times, names and commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hawk.core.text import one_line, plural


def lasted(seconds: float) -> str:
    """A time, rough: `45 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def counted(count: int, noun: str = "attempt") -> str:
    """`1 attempt`, `12 attempts`."""
    return plural(count, noun)


def named(names: Iterable[str], most: int = 3) -> str:
    """Some names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(one_line(name, 60) for name in every[:most]) + more


def quoted(command: str, most: int = 80) -> str:
    """A command within a sentence."""
    return f"`{one_line(command, most)}`"


def earliest(times: Sequence[str | None]) -> str | None:
    """The first of some ISO 8601 times."""
    return min((time for time in times if time), default=None)
