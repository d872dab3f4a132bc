"""Pods kept ready for attempts that are still to come: an attempt claims one, and another is begun in its place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING

from hawk.errors import HawkError
from hawk.sandbox.pod.group import About, PodGroup, open_group
from hawk.sandbox.pod.options import PodConfig

if TYPE_CHECKING:
    from hawk.sandbox.pod.site import Site

_log = logging.getLogger(__name__)
_PAUSE = 30.0  # seconds after a failure before the next is begun


class WarmPool:
    """The warm pods of one configuration.

    Attributes:
        ready: Those that wait for an attempt.
    """

    def __init__(self, site: Site, config: PodConfig) -> None:
        self._site, self._config = site, config
        self.ready: list[PodGroup] = []
        self._begun: set[asyncio.Task[None]] = set()
        self._failed_at = -_PAUSE
        self._closed = False
        self.fill()

    def take(self, about: About) -> PodGroup | None:
        """A warm one that is as it should be; None when there is none. The pool is filled again."""
        taken = None
        while self.ready and taken is None:
            group = self.ready.pop(0)
            if group.alive:
                taken = group
            else:
                self._site.later(group.close())
        if taken is not None:
            taken.claim(about)
        self.fill()
        return taken

    def fill(self) -> None:
        """Begin as many as are missing."""
        now = asyncio.get_running_loop().time()
        while (
            not self._closed
            and len(self.ready) + len(self._begun) < self._config.warm
            and now - self._failed_at > _PAUSE
        ):
            task = asyncio.ensure_future(self._begin())
            self._begun.add(task)
            task.add_done_callback(self._begun.discard)

    async def _begin(self) -> None:
        try:
            group = await open_group(
                self._site,
                self._config,
                name=f"w{secrets.token_hex(5)}",
                about=About(),
                say=lambda _: None,
                warm=True,
            )
        except HawkError as ex:  # an attempt that needs one meets the same, and says it
            self._failed_at = asyncio.get_running_loop().time()
            _log.warning("no pod could be kept warm: %s", ex.message)
            return
        if self._closed:
            await group.close()
        else:
            self.ready.append(group)

    async def close(self) -> None:
        """Delete what was not claimed."""
        self._closed = True
        for task in tuple(self._begun):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        ready, self.ready = self.ready, []
        await asyncio.gather(*(group.close() for group in ready))
