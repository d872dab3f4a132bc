"""A provider that fails every request is not asked for a while, so that jobs get a fast, clear answer.

The circuit breaker of Nygard, "Release It!" (2007): closed, open, and half open with one probe at a time.
"""

from __future__ import annotations

import msgspec


class BreakerSettings(msgspec.Struct, frozen=True):
    """When to open, and for how long.

    Attributes:
        failures: Failures in a row that open it.
        over: They must be spread over at least this many seconds: a burst of requests fails at once.
        seconds: It stays open this long at first.
        most_seconds: Each failed probe doubles the wait, up to this.
    """

    failures: int = 10
    over: float = 5.0
    seconds: float = 30.0
    most_seconds: float = 300.0


class BreakerState(msgspec.Struct, frozen=True):
    """A breaker at one moment, on the caller's clock.

    Attributes:
        since: When it opened.
        retry_at: When the next probe may go.
        said: What the provider said at the last failure.
    """

    open: bool
    since: float | None = None
    retry_at: float | None = None
    said: str | None = None


class Breaker:
    """Told of each request's end; says whether another may go.

    What counts as a failure is the caller's to say: no answer, 5xx, 401 and 403 do; a 429 or another 4xx shows that
    the provider works, so it is a success.
    """

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self._row = 0
        self._row_since = 0.0
        self._kind = ""
        self._open_since: float | None = None
        self._retry_at = 0.0
        self._wait = 0.0
        self._probe_since: float | None = None
        self._said: str | None = None

    def allow(self, now: float) -> bool:
        """Whether a request may go; while open, only a probe may, and it must report back."""
        if self._open_since is None:
            return True
        if now < self._retry_at or self._probing(now):
            return False
        self._probe_since = now
        return True

    def success(self, now: float) -> None:
        """The provider answered as a provider that works does."""
        if self._row or self._open_since is not None:
            self._row, self._kind = 0, ""
            self._open_since = None
            self._probe_since = None
            self._said = None

    def withdrawn(self, now: float) -> None:
        """A request ended and says nothing: the client went away. A probe makes room for another."""
        self._probe_since = None

    def failure(self, now: float, said: str, kind: str = "fault") -> None:
        """The provider failed a request.

        Args:
            said: One line of what it said, for people.
            kind: Failures of another kind (`refused` for 401 and 403) begin a row of their own.
        """
        self._said = said
        if self._open_since is not None:
            if self._probe_since is not None:
                self._probe_since = None
                self._wait = min(2 * self._wait, self.settings.most_seconds)
                self._retry_at = now + self._wait
            return
        if not self._row or kind != self._kind:
            self._row, self._row_since, self._kind = 0, now, kind
        self._row += 1
        if self._row >= self.settings.failures and now - self._row_since >= self.settings.over:
            self._open_since = now
            self._wait = self.settings.seconds
            self._retry_at = now + self._wait

    def state(self, now: float) -> BreakerState:
        """What a person sees."""
        if self._open_since is None:
            return BreakerState(open=False, said=self._said)
        return BreakerState(
            open=True, since=self._open_since, retry_at=max(self._retry_at, now), said=self._said
        )

    def _probing(self, now: float) -> bool:
        # A probe that never reports back (its task was killed) must not keep the breaker open for good.
        return self._probe_since is not None and now - self._probe_since < self.settings.most_seconds
