"""What a refused handshake says: aiohttp itself throws the text away, and with it the reason."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import aiohttp

refusals: contextvars.ContextVar[list[bytes] | None] = contextvars.ContextVar("refusals", default=None)
"""Where the current task wants such texts."""


class Reply(aiohttp.ClientResponse):
    """A response that keeps it, for the task that asked."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        result = await super().start(connection)
        kept = refusals.get()
        if kept is not None and self.status != 101:
            async with asyncio.timeout(5):
                kept.append(await self.content.read(1 << 16))
        return result
