"""How many tasks of an event loop need something that all of them share."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable


class Holders:
    """Counted for each event loop: the last one that lets go ends what is shared.

    Args:
        close: Ends it, for the running loop.
    """

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close
        self._count: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int] = weakref.WeakKeyDictionary()

    def hold(self) -> None:
        """Keep it until as many `release` as `hold` were called."""
        loop = asyncio.get_running_loop()
        self._count[loop] = self._count.get(loop, 0) + 1

    async def release(self) -> None:
        """The reverse of `hold`."""
        loop = asyncio.get_running_loop()
        self._count[loop] -= 1
        if self._count[loop] == 0:
            await self._close()
