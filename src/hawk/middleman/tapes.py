"""The cassettes that are open: one a job that records or replays."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path

from hawk.middleman.record import Recorder
from hawk.middleman.replay import Player
from hawk.middleman.tokens import Claims

Closing = Callable[[], None]


class Tapes:
    """Opens a job's cassette at its first request."""

    def __init__(self) -> None:
        self._recorders: dict[str, Recorder] = {}
        self._players: dict[tuple[str, str], asyncio.Future[Player]] = {}

    def recorder(self, claims: Claims) -> Recorder:
        assert claims.cassette is not None
        found = self._recorders.get(claims.job)
        if found is None:
            found = self._recorders[claims.job] = Recorder(Path(claims.cassette.path))
        return found

    async def player(self, claims: Claims) -> Player:
        """A job's player; a large cassette takes a moment to be read, once.

        Raises:
            StorageError: The cassette can't be read.
        """
        assert claims.cassette is not None
        key = (claims.job, claims.jti)  # a run that is resumed begins at the first call again
        found = self._players.get(key)
        if found is None:
            make = functools.partial(Player, Path(claims.cassette.path), speed=claims.cassette.speed)
            found = self._players[key] = asyncio.ensure_future(asyncio.to_thread(make))
        return await asyncio.shield(found)

    def close(self, job: str) -> list[Closing]:
        """A job has ended. Returns what is still to be called, in a thread: it waits for a disk."""
        closing: list[Closing] = []
        recorder = self._recorders.pop(job, None)
        if recorder is not None:
            closing.append(recorder.close)
        for key in [key for key in self._players if key[0] == job]:
            player = self._players.pop(key)
            if player.done() and not player.cancelled() and player.exception() is None:
                closing.append(player.result().close)
        return closing

    def close_all(self) -> None:
        """The middleman ends: wait for everything."""
        for job in {*self._recorders, *(job for job, _ in self._players)}:
            for close in self.close(job):
                close()
