"""A stand-in's side of a connection to its worker's pod: orders, files, rows, sockets, from the greeting to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hawk import __version__
from hawk.errors import HawkError
from hawk.link.frames import ByteStream, LinkLost
from hawk.link.mux import Channel, Mux
from hawk.link.shares import WorkerShare
from hawk.runner import datahome
from hawk.runner.wire import RUN
from hawk.runner.workerhome import Share, directory
from hawk.runner.workpods.buffers import Mirror
from hawk.runner.workpods.files import StandInFiles
from hawk.runner.workpods.messages import Begin, Done, Phase, Rows, Signal, State, Stream, heard, say
from hawk.runner.workpods.sockets import Doors, join_tcp
from hawk.store.rundir import RunDir, read_json

LONGEST = 32 * 1024 * 1024
"""Bytes of a message with rows."""


class Connection:
    """Of one worker; one connection after another.

    Args:
        run_base: Directory of short paths, for sockets.
        begin: What the worker is told.

    Attributes:
        state: What the pod said last.
    """

    def __init__(self, run_dir: RunDir, index: int, run_base: Path, begin: Begin) -> None:
        self._run_dir, self._home, self._begin = run_dir, directory(run_dir, RUN, index), begin
        self._threads = ThreadPoolExecutor(2, "files")
        self._files = StandInFiles(
            run_dir.path, share_of(run_dir, index), self._threads, self._forget_the_last
        )
        self._doors = Doors(datahome.link_path(run_base, self._home), self._reached)
        self._orders: Channel | None = None
        self._mux: Mux | None = None
        self._problem: HawkError | None = None  # with its files
        self.state = State()

    async def open(self) -> None:
        """Open the worker's sockets. Raises: OSError."""
        await self._doors.open()

    def close(self) -> None:
        """The worker has ended."""
        self._doors.close()

    async def signal(self, name: str) -> None:
        """Have the worker signalled. Raises: LinkLost."""
        if self._orders is None:
            raise LinkLost("its pod is not connected")
        await say(self._orders, Signal(name))

    async def carry(self, stream: ByteStream) -> State | None:
        """Carry until the worker has ended and everything is here; then returns its last state, else None when the
        connection ends.

        Raises:
            HawkError: It broke, or the pod did what it may not, or a file can't be written here.
        """
        mux = Mux(stream, odd=False, accept=self._accept)
        self._problem = None
        running, using = asyncio.create_task(mux.run()), asyncio.create_task(self._use(mux))
        try:
            await asyncio.wait([running, using], return_when=asyncio.FIRST_COMPLETED)
            if self._problem is not None:
                raise self._problem
            if using.done():
                return using.result()
            running.result()
            return None
        finally:
            self._orders = self._mux = None
            self._doors.announce(False)
            for task in (using, running):
                task.cancel()
            await asyncio.gather(using, running, return_exceptions=True)

    async def _use(self, mux: Mux) -> State | None:
        orders = await mux.open(Stream.ORDERS)
        others: list[asyncio.Task[None]] = []
        try:
            states: AsyncIterator[State] = heard(orders, State)
            async for state in states:
                if state.version != __version__:
                    said = f"its pod has hawk {state.version[:40]}, its supervisor {__version__}"
                    return State(Phase.ENDED, code=2, reason=said)
                if not others:
                    others = await self._greet(mux, orders, state)
                self._doors.announce(state.answers)
                self.state = state
                if state.phase is Phase.ENDED and state.settled:
                    with contextlib.suppress(LinkLost):
                        await say(orders, Done())
                    return state
            return None
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _greet(self, mux: Mux, orders: Channel, state: State) -> list[asyncio.Task[None]]:
        """Begin with everything else. Raises: LinkLost."""
        self._orders, self._mux = orders, mux
        empty = state.phase is Phase.NEW
        if empty:
            await say(orders, self._begin)
        return [
            asyncio.create_task(self._carry_files(mux, empty=empty)),
            asyncio.create_task(self._mirror(mux)),
        ]

    async def _carry_files(self, mux: Mux, *, empty: bool) -> None:
        channel = await mux.open(Stream.FILES)
        try:
            await self._files.carry(channel, empty=empty)
        except LinkLost:
            raise
        except HawkError as ex:
            self._problem = ex
            raise
        finally:
            await mux.close()  # a pod whose files do not come is as good as not connected

    def _forget_the_last(self) -> None:
        """The heartbeat of the process before would be taken for this one's."""
        (self._home / "heartbeat.json").unlink(missing_ok=True)

    async def _mirror(self, mux: Mux) -> None:
        mirror, channel = Mirror(self._run_dir.buffers), await mux.open(Stream.BUFFERS)
        loop = asyncio.get_running_loop()
        rows: AsyncIterator[Rows] = heard(channel, Rows, LONGEST)
        async for news in rows:
            await loop.run_in_executor(self._threads, mirror.apply, news)

    async def _accept(self, channel: Channel) -> None:
        """What the pod opens: its way to the middleman, and no other."""
        there = urlsplit(self._begin.middleman or "")
        if channel.name == Stream.MODELS and there.hostname is not None:
            await join_tcp(channel, there.hostname, there.port or 80)

    async def _reached(self) -> Mux:
        if self._mux is None:
            raise LinkLost("its pod is not connected")
        return self._mux


def share_of(run_dir: RunDir, index: int) -> WorkerShare:
    """Which files belong to a worker of the plan. Raises: StorageError."""
    home, plan = directory(run_dir, RUN, index), run_dir.read_plan()
    share = read_json(home / "worker.json", Share)
    selection = read_json(home / "selection.json", dict[str, Any]) or {}
    mine = share.identifiers if share is not None else ()
    tasks = [task for task in plan.tasks if task.identifier in mine] if plan is not None else []
    pairs = {task.pair(sample).directory for task in tasks for sample in task.sample_ids}
    logs = [Path(str(task["resume"])).name for task in selection.get("tasks", []) if task.get("resume")]
    return WorkerShare(index, pairs, logs)
