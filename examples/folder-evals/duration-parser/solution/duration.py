"""Durations as people write them."""

import re

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
PARTS = re.compile(r"\s*".join(rf"(?:(?P<{unit}>[0-9]+){unit})?" for unit in SECONDS))


def parse(text: str) -> int:
    """Seconds of a duration such as `1h30m`."""
    text = text.strip()
    if re.fullmatch("[0-9]+", text):
        return int(text)
    match = PARTS.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is not a duration")
    return sum(int(number) * SECONDS[unit] for unit, number in match.groupdict().items() if number)
