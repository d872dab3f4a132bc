"""Text for a terminal: made harmless, shortened, aligned; times and durations for people."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime

from hawk.core.text import duration as duration
from hawk.core.text import parse_time as parse_time
from hawk.core.text import plural as plural
from hawk.core.text import strip_controls

_SPACE = re.compile(r"\s+")


def clean(text: object, *, lines: bool = False) -> str:
    """Make text from a model, a sandbox or a server harmless to a terminal.

    Args:
        text: Anything; None becomes the empty string.
        lines: Keep line breaks and tabs; otherwise all white space becomes single spaces.
    """
    if text is None:
        return ""
    plain = strip_controls(str(text).replace("\r\n", "\n"))
    return plain if lines else _SPACE.sub(" ", plain).strip()


def width(text: str) -> int:
    """Columns that text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def shorten(text: str, columns: int) -> str:
    """Cut text to at most so many columns, the last one an ellipsis."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for c in text:
        used += width(c)
        if used > columns - 1:
            break
        kept.append(c)
    return "".join(kept) + "…" if columns > 0 else ""


def pad(text: str, columns: int) -> str:
    return text + " " * max(0, columns - width(text))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, columns: int | None = None) -> str:
    """Aligned columns, cells cleaned; the widest columns give way when it would not fit.

    Args:
        headers: Titles of the columns.
        rows: As many cells each.
        columns: Width of the terminal; None: as wide as it takes.
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(headers, *cells, strict=True)]
    while columns is not None and sum(widths) + 2 * len(widths) - 2 > columns and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    return "\n".join(
        "  ".join(pad(shorten(cell, w), w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in [list(headers), *cells]
    )


def size(count: float) -> str:
    """Bytes for people: `0 B`, `34 KiB`, `12 MiB`, `1.5 GiB`."""
    for unit, bytes_ in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count >= bytes_:
            return f"{count / bytes_:.1f} {unit}" if unit == "GiB" else f"{count / bytes_:.0f} {unit}"
    return f"{count:.0f} B"


def local_time(text: str | None) -> str:
    """An ISO time as local date and minute; what can't be read is shown as it is."""
    time = parse_time(text)
    return time.astimezone().strftime("%Y-%m-%d %H:%M") if time else clean(text)


def seconds_since(text: str | None, now: datetime) -> float:
    """Seconds from an ISO time to now; 0 for none or nonsense."""
    time = parse_time(text)
    return 0.0 if time is None else (now - time).total_seconds()
