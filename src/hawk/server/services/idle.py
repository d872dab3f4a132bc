"""Ends a server that nobody needs: no request and no job for `HAWK_IDLE_EXIT` seconds."""

from __future__ import annotations

import time


class Activity:
    """When the server was last needed."""

    def __init__(self) -> None:
        self._open = 0
        self._last = time.monotonic()

    def begin(self) -> None:
        """A request has come in."""
        self._open += 1

    def end(self) -> None:
        """Its answer is complete."""
        self._open -= 1
        self._last = time.monotonic()

    def keep(self) -> None:
        """Needed for another reason than a request."""
        self._last = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._open else time.monotonic() - self._last
