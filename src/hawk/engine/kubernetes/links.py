"""What the engine asks over the links of runner pods, and how it reaches pods that can't dial the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from hawk.core.recorder.stacks import StackRecord
from hawk.link.frames import ByteStream

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

ATTACH = ["python", "-m", "hawk.runner.pod", "attach"]
"""Joins its input and output with the link of the runner beside it."""

LOOK = 0.5
"""Seconds between looks at which runner pods run."""


class LinkHub(Protocol):
    """All links of a server. Every method but `keep_attached` may be called from any thread."""

    def connected(self, job_id: str) -> bool:
        """Whether the job's runner has its link open to this server."""
        ...

    def ask_stacks(self, job_id: str, native: bool) -> list[StackRecord] | None:
        """The stacks of the job's workers, now; None when nobody is there to take them."""
        ...

    async def keep_attached(self, job_id: str, open_stream: Callable[[], Awaitable[ByteStream]]) -> None:
        """Keep a link to a runner that does not dial, until it has said good-bye or this is cancelled."""
        ...

    def drop(self, job_id: str) -> None:
        """End the link of a job: its runner is being removed."""
        ...


class NoLinks:
    """As long as nobody carries links."""

    def connected(self, job_id: str) -> bool:
        return False

    def ask_stacks(self, job_id: str, native: bool) -> list[StackRecord] | None:
        return None

    async def keep_attached(self, job_id: str, open_stream: Callable[[], Awaitable[ByteStream]]) -> None:
        await asyncio.Event().wait()

    def drop(self, job_id: str) -> None:
        return


class Attaching:
    """Goes to every runner pod that runs, when pods have no address of the server to dial. On the engine's loop.

    Args:
        running: Runner pods by job id.
        leading: Whether this server is the one to go there.
        links: Who carries the links just now.
    """

    def __init__(
        self,
        cluster: Cluster,
        running: Callable[[], dict[str, str]],
        leading: Callable[[], bool],
        links: Callable[[], LinkHub],
    ) -> None:
        self._cluster, self._running, self._leading, self._links = cluster, running, leading, links
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                wanted = {*self._running().items()} if self._leading() else set()
                for key in [key for key in self._tasks if key not in wanted]:
                    self._tasks.pop(key).cancel()
                for job_id, pod in wanted:
                    if (job_id, pod) not in self._tasks:
                        self._tasks[job_id, pod] = asyncio.create_task(self._keep(job_id, pod))
                await asyncio.sleep(LOOK)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._tasks.clear()

    async def _keep(self, job_id: str, pod: str) -> None:
        async def open_stream() -> ByteStream:
            return await self._cluster.open_exec(pod, ATTACH, container="runner")

        await self._links().keep_attached(job_id, open_stream)
