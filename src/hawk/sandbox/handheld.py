"""A sandbox for a command that does not run an event loop: kept by a thread that does."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from hawk.sandbox import pool
from hawk.sandbox.config import BubblewrapConfig
from hawk.sandbox.group import open_group

_T = TypeVar("_T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="sandbox", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _serve(self) -> None:
        async def until_stopped() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            self._ready.set()
            await self._stop.wait()

        asyncio.run(until_stopped())

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@contextlib.contextmanager
def own_sandbox(config: BubblewrapConfig) -> Iterator[str]:
    """The label of a sandbox, with its services, that lives as long as the block runs.

    Raises:
        SandboxError: It could not be made.
    """
    loop = _Loop()
    try:
        group = loop.run(open_group(config, name=secrets.token_hex(4)))
        try:
            yield group.boxes["default"].label
        finally:
            loop.run(group.close())
    finally:
        loop.run(pool.close())
        loop.close()
