"""Replay: answers from a cassette, so that an eval runs offline, for nothing, and the same every time."""

from __future__ import annotations

import difflib
import os
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from hawk.errors import NotFoundError, StorageError
from hawk.middleman.canonical import again, canonical, canonical_path, digest, pretty
from hawk.middleman.cassette import Identity, Line, lines, read, writable

_COMPARED = 100
"""Entries that are compared with a request that is missed: a miss has to be told in a moment, not after minutes."""

_DIFFERENCE = 40
"""Lines of a difference that are shown."""


class ReplayMissError(NotFoundError):
    """The cassette holds no (further) answer to this request.

    Attributes:
        nearest: One line that says which entry is nearest; None when the cassette is empty.
        difference: Unified difference from that entry to the request, short.
    """

    def __init__(self, message: str, nearest: str | None, difference: str) -> None:
        remedy = "Record again, or run this eval with the model itself (leave out `replay`)."
        super().__init__(message, remedy=remedy, nearest=nearest, difference=difference)
        self.nearest = nearest
        self.difference = difference


ReplayMiss = ReplayMissError


class Recorded(NamedTuple):
    """A recorded answer.

    Attributes:
        status: 0: the provider gave none, and the connection was cut.
        headers: Without length and encoding: those are the server's to add.
        chunks: (seconds to wait before it, bytes).
        complete: False: after the last chunk the connection was cut.
    """

    status: int
    headers: list[tuple[str, str]]
    chunks: list[tuple[float, bytes]]
    complete: bool


class _Place(NamedTuple):
    """Where an exchange is in the file, and what it is told apart by."""

    offset: int
    length: int
    identity: Identity
    provider: str
    path: str


class Player:
    """Answers requests from one cassette: the n-th of equal requests gets the n-th recorded answer.

    Args:
        path: The cassette.
        speed: 1: pauses as recorded; 2: half of them; 0: none.
        loop: Begin again after the last of the recorded answers, instead of missing.

    Raises:
        StorageError: It can't be read.
    """

    def __init__(self, path: Path, *, speed: float = 1.0, loop: bool = False) -> None:
        self.path = path
        self.speed = speed
        self.loop = loop
        self._lock = threading.Lock()
        self._served: Counter[tuple[str, Identity, str]] = Counter()
        self._by_request: defaultdict[tuple[Identity, str], list[_Place]] = defaultdict(list)
        self._places: list[_Place] = []
        try:
            for offset, length, line in lines(path):
                place = _Place(offset, length, line.identity, line.provider, line.path)
                self._places.append(place)
                # Digested here and not when it was recorded: the rules may have changed since.
                key = digest(line.provider, line.path, again(line.request))
                self._by_request[line.identity, key].append(place)
            self._fd = os.open(path, os.O_RDONLY)
        except OSError as ex:
            why = ex.strerror or str(ex)
            raise StorageError(
                f"{path}: {why}.", remedy="Check the path of the cassette to replay.", path=str(path)
            ) from ex

    def __len__(self) -> int:
        """How many exchanges it holds."""
        return len(self._places)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def find(
        self, identity: Identity, provider: str, path_and_query: str, body: bytes, run: str = ""
    ) -> Recorded:
        """The answer to a request.

        Args:
            run: Tells tries of one attempt apart: an attempt that is begun again asks the same from the start.

        Raises:
            ReplayMissError: There is none.
        """
        identity = identity.writable()
        request = canonical(body)
        path = canonical_path(writable(path_and_query))
        key = identity, digest(provider, path, request)
        with self._lock:
            places = self._by_request.get(key, [])
            served = self._served[run, *key]
            if places and (served < len(places) or self.loop):
                self._served[run, *key] += 1
                place = places[served % len(places)]
            else:
                place = None
        line = self._load(place) if place else None
        if line is None:
            raise self._miss(identity, provider, path, request, len(places))
        return self._recorded(line)

    def _load(self, place: _Place) -> Line | None:
        return read(os.pread(self._fd, place.length, place.offset))

    def _recorded(self, line: Line) -> Recorded:
        chunks, before = [], 0.0
        for chunk in line.chunks:
            pause = max(0.0, chunk.t - before) / self.speed if self.speed > 0 else 0.0
            chunks.append((pause, chunk.data()))
            before = chunk.t
        return Recorded(line.status, list(line.headers), chunks, line.complete)

    # --- misses ---------------------------------------------------------------------------------------

    def _miss(
        self, identity: Identity, provider: str, path: str, request: Any, recorded: int
    ) -> ReplayMissError:
        who = f"task {identity.task or '-'}, sample {identity.sample or '-'}, epoch {identity.attempt or '-'}"
        asked = f"{provider}{path} ({who})"
        if recorded:
            times = "once" if recorded == 1 else f"{recorded} times"
            message = f"{self.path.name} holds {asked}, recorded {times}, but it was asked once more."
            return ReplayMissError(message, f"the same request, recorded {times}", "")
        message = f"{self.path.name} holds no answer to {asked}."
        found = self._nearest(identity, provider, path, request)
        if found is None:
            return ReplayMissError(f"{message} It is empty.", None, "")
        place, line = found
        nearest = (
            f"{place.provider}{place.path} (task {line.task or '-'}, sample {line.sample or '-'}, "
            f"epoch {line.attempt or '-'}), recorded {line.at}"
        )
        return ReplayMissError(message, nearest, _difference(line.request, request))

    def _nearest(
        self, identity: Identity, provider: str, path: str, request: Any
    ) -> tuple[_Place, Line] | None:
        """Of the entries of the same attempt (else the same sample, the same task, any), the one most alike."""

        def closeness(place: _Place) -> tuple[bool, bool, bool, bool]:
            theirs = place.identity
            task = theirs.task == identity.task
            sample = task and theirs.sample == identity.sample
            same = (place.provider, place.path) == (provider, path)
            return sample and theirs.attempt == identity.attempt, sample, task, same

        if not self._places:
            return None
        best = max(map(closeness, self._places))
        candidates = [place for place in self._places if closeness(place) == best][:_COMPARED]
        wanted = pretty(request)
        scored: list[tuple[float, _Place, Line]] = []
        for place in candidates:
            line = self._load(place)
            if line is not None:
                scored.append((_likeness(pretty(line.request), wanted), place, line))
        if not scored:
            return None
        _, place, line = max(scored, key=lambda entry: entry[0])
        return place, line


def _likeness(one: list[str], other: list[str]) -> float:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).quick_ratio()


def _difference(recorded: Any, asked: Any) -> str:
    found = difflib.unified_diff(pretty(recorded), pretty(asked), "recorded", "asked", lineterm="", n=1)
    shown = [line if len(line) <= 300 else f"{line[:300]}…" for line in found]
    if len(shown) > _DIFFERENCE:
        shown = [*shown[:_DIFFERENCE], f"… {len(shown) - _DIFFERENCE} more lines"]
    return "\n".join(shown) or "none: only the attempt is another"
