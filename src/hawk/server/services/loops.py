"""The loops: each looks again and again, in threads, until the server stops. One that fails logs and goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hawk.server.services.reconcile import PERIOD, Reconciler
from hawk.server.services.registry import JobState

if TYPE_CHECKING:
    from hawk.server.context import Context

IMPORT_PERIOD = 3.0
HOUSEKEEPING_PERIOD = 10.0
SWEEP_PERIOD = 300.0

_log = logging.getLogger(__name__)


class Loops:
    """Everything that the server does without being asked."""

    def __init__(self, context: Context, end: Callable[[], None]) -> None:
        self._context = context
        self._reconciler = Reconciler(context.database, context.engine, context.registry, context.feeds)
        self._end = end
        self._import_thread = ThreadPoolExecutor(1, "hawk-import")
        self._tasks: list[asyncio.Task[None]] = []
        self._at_work: set[str] = set()

    async def start(self) -> None:
        """Adopt unfinished jobs, then begin to look after them."""
        in_flight = await asyncio.get_running_loop().run_in_executor(
            self._context.threads, self._reconciler.adopt_all
        )
        if in_flight:
            _log.info("adopted %d unfinished jobs", in_flight)
        for body in (self._reconcile(), self._import(), self._housekeeping(), self._sweep()):
            self._tasks.append(asyncio.create_task(body))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._import_thread.shutdown(wait=True, cancel_futures=True)

    async def _reconcile(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for job in self._context.registry.all():
                if job.job_id not in self._at_work:
                    self._at_work.add(job.job_id)
                    loop.run_in_executor(self._context.threads, self._look, job)
            await asyncio.sleep(PERIOD)

    def _look(self, job: JobState) -> None:
        try:
            self._reconciler.look(job)
        except Exception:
            _log.exception("reconciling job %s", job.job_id)
        finally:
            self._at_work.discard(job.job_id)

    async def _import(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(IMPORT_PERIOD)
            for job in self._context.registry.all():
                await loop.run_in_executor(self._import_thread, self._import_one, job)

    def _import_one(self, job: JobState) -> None:
        try:
            job.import_new()
        except Exception:
            _log.exception("importing job %s", job.job_id)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(self._context.threads, self._sweep_once)
            await asyncio.sleep(SWEEP_PERIOD)

    def _sweep_once(self) -> None:
        try:
            self._context.engine.sweep()
            self._context.uploads.tidy()
        except Exception:
            _log.exception("sweeping")

    async def _housekeeping(self) -> None:
        idle_exit = self._context.settings.idle_exit
        while True:
            await asyncio.sleep(min(HOUSEKEEPING_PERIOD, idle_exit / 4 or HOUSEKEEPING_PERIOD))
            self._context.feeds.prune()
            await asyncio.get_running_loop().run_in_executor(
                self._context.threads, self._context.middleman.keep
            )
            if len(self._context.registry):
                self._context.activity.keep()
            elif idle_exit and self._context.activity.idle_seconds > idle_exit:
                _log.info("nothing to do for %.0f s: ending", idle_exit)
                self._end()
                return
