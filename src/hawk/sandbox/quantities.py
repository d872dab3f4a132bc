"""Sizes and durations as people write them: `1.5 GB`, `10m`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, Field

_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?:(?P<unit>[kmgt])i?)?b?", re.IGNORECASE)
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[smhd]?)", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_BYTES = 2**63 - 1  # what a resource limit of the kernel can hold
_MOST_SECONDS = 10 * 366 * 86400


def parse_size(value: object) -> int:
    """Bytes of a size.

    Args:
        value: Bytes as a number, or text with a unit: k, m, g, t, with or without `B` or `iB`, in either case.
            All of them are powers of 1024: nobody who writes 2GB for a sandbox means 1.86 GiB.

    Raises:
        ValueError: It is not a size, or not above zero.
    """
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        size = int(Fraction(match["number"]) * 1024 ** " kmgt".index((match["unit"] or " ").lower()))
    elif type(value) is int:
        size = value
    else:
        raise ValueError(f"{value!r} is not a size; write a number of bytes, or 512m, 1g, 1.5GiB")
    return _between(size, _MOST_BYTES, "a size", value)


def parse_duration(value: object) -> int:
    """Whole seconds of a duration.

    Args:
        value: Seconds as a number, or text with a unit: s, m, h, d.

    Raises:
        ValueError: It is not a duration, or not above zero.
    """
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        exact = Fraction(match["number"]) * _SECONDS[match["unit"].lower()]
    elif type(value) is int:
        exact = Fraction(value)
    else:
        raise ValueError(f"{value!r} is not a duration; write a number of seconds, or 90s, 10m, 2h")
    if exact != int(exact):
        raise ValueError(f"{value!r} is not a duration: only whole seconds are")
    return _between(int(exact), _MOST_SECONDS, "a duration", value)


def _between(number: int, most: int, what: str, value: object) -> int:
    if number <= 0:
        raise ValueError(
            f"{value!r} is not {what}: it must be above zero; leave the field out for its default"
        )
    if number > most:
        raise ValueError(f"{value!r} is not {what}: it is too large")
    return number


Size = Annotated[
    int,
    BeforeValidator(parse_size, json_schema_input_type=Annotated[int, Field(ge=1)] | str),
]
"""Bytes."""

Duration = Annotated[
    int,
    BeforeValidator(parse_duration, json_schema_input_type=Annotated[int, Field(ge=1)] | str),
]
"""Seconds."""
