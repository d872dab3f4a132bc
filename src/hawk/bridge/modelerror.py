"""The error of a model call as its client said it: Inspect puts the whole request before it, which pushes it out of sight."""

from __future__ import annotations

import re

_REQUESTS = (
    re.compile(r"\s*Request:\n(?:.*?\})?\n\n", re.DOTALL),
    re.compile(
        r"(?:\\n)?Request:\\n(?:.*?\})?\\n\\n"
    ),  # the same in a repr: newlines are escaped, those of the request twice
)


def without_request(message: str) -> str:
    """An error's text without the request that it repeats. Text of any other form stays as it is."""
    for pattern in _REQUESTS:
        found = pattern.search(message)
        if found is not None:
            return message[: found.start()] + message[found.end() :]
    return message
