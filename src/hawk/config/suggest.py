"""The nearest right spelling of a word somebody wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was most likely meant, or None when nothing is close.

    Case and `-` against `_` count for nothing.

    Args:
        word: What was written.
        known: What would be right.
    """
    plain = {_plain(candidate): candidate for candidate in known}
    matches = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.75)
    return plain[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing: the end of a message."""
    match = nearest(word, known)
    return f" Did you mean {match!r}?" if match is not None else ""


def listing(words: Iterable[str], limit: int = 12) -> str:
    """`a, b, c … (30 in all)`: enough to choose from, not a screenful."""
    ordered = sorted(words)
    if len(ordered) <= limit:
        return ", ".join(ordered) or "none"
    return f"{', '.join(ordered[:limit])} … ({len(ordered)} in all)"


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
