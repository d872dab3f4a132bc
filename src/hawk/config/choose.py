"""Choosing by name among things that have names: exact ones, and patterns with `*` and `?`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from hawk.config.suggest import did_you_mean, listing
from hawk.errors import UsageError


def split(values: Iterable[str]) -> list[str]:
    """Names of an option that may be repeated and may hold several, with commas between them."""
    return [name for value in values for name in map(str.strip, value.split(",")) if name]


def choose(known: Iterable[str], patterns: Sequence[str], what: str) -> list[str]:
    """Those that match any of the patterns, in their own order; all when there is no pattern.

    Args:
        known: The names there are.
        patterns: Names, in which `*` and `?` stand for any text.
        what: How messages call one of them.

    Raises:
        UsageError: A pattern matches nothing: whoever misspells a name must not get fewer results than they think.
    """
    names = list(dict.fromkeys(known))
    if not patterns:
        return names
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(
                f"There is no {what} {pattern!r}.{did_you_mean(pattern, names)}",
                remedy=f"Choose from: {listing(names)}.",
            )
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
