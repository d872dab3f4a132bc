"""How long finished things took, by name: the newest of each, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict, deque

from hawk.core.diagnosis.evidence import Times
from hawk.core.diagnosis.learning import times

KEPT = 200
"""Durations of one name, the newest: enough for a 95 % bound that ten of them exceed."""

NAMES = 200
"""Names; the one that was seen least recently goes."""


class Durations:
    """Takes durations, gives quantiles."""

    def __init__(self) -> None:
        self._seconds: OrderedDict[str, deque[float]] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._most: dict[str, float] = {}
        self._known: dict[str, Times] = {}

    def add(self, name: str, seconds: float) -> None:
        """One that ended by itself."""
        if not name or seconds < 0:
            return
        kept = self._seconds.setdefault(name, deque(maxlen=KEPT))
        self._seconds.move_to_end(name)
        kept.append(round(seconds, 3))
        self._counts[name] = self._counts.get(name, 0) + 1
        self._most[name] = max(self._most.get(name, 0.0), round(seconds, 3))
        self._known.pop(name, None)
        if len(self._seconds) > NAMES:
            gone, _ = self._seconds.popitem(last=False)
            for table in (self._counts, self._most, self._known):
                table.pop(gone, None)

    def times(self) -> dict[str, Times]:
        """By name."""
        for name, kept in self._seconds.items():
            if name not in self._known and (found := times(list(kept))) is not None:
                found.count, found.most = self._counts[name], self._most[name]
                self._known[name] = found
        return {name: self._known[name] for name in self._seconds}
