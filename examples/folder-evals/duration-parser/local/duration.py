"""Durations as people write them."""

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse(text: str) -> int:
    """Seconds of a duration such as `1h30m`."""
    total = 0
    number = ""
    for char in text:
        if char.isdigit():
            number += char
        elif char in SECONDS:
            total += int(number) * SECONDS[char]
            number = ""
    return total
