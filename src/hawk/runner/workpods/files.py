"""Both sides of a worker's files: the stand-in gives what is needed to begin, then the pod sends what the worker writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from hawk.link import rules
from hawk.link.apply import Applier
from hawk.link.frames import Ask, ByteStream, Header, Known, ProtocolError, Ready
from hawk.link.outbox import Memory, Outbox
from hawk.link.session import Connection, Session, exchange_lists
from hawk.link.shares import WorkerShare

PERIOD = 0.25
"""Seconds between looks for what the worker has written: its heartbeat comes once a second."""


class PodFiles:
    """The pod's side.

    Attributes:
        whole: Everything that the worker needs is there.
    """

    def __init__(self, root: Path, share: WorkerShare) -> None:
        self._root, self._share = root, share
        self._memory = Memory()
        self._session: Session | None = None
        self._connected = asyncio.Event()
        self.whole = asyncio.Event()

    async def carry(self, stream: ByteStream) -> None:
        """Until the connection ends.

        Raises:
            LinkLost: It broke.
            ProtocolError: The other side did what it may not.
            StorageError: A file can't be written here.
        """
        connection = Connection(stream)
        begun = self.whole.is_set()
        theirs = await exchange_lists(connection, self._root, None, self._share.concerns)
        session = Session(connection, period=PERIOD, heed=self._heed)
        if begun:
            session.outbox = self._outbox(theirs)
        else:
            session.applier = Applier(self._root, lambda _: not self.whole.is_set())
        self._session = session
        self._connected.set()
        try:
            await session.run()
        finally:
            if self._session is session:
                self._session = None
                self._connected.clear()

    async def sent(self) -> None:
        """Return when the other side has everything; waits for a connection, and for another one where that breaks."""
        while True:
            await self._connected.wait()
            session = self._session
            if session is None:
                continue
            drained = asyncio.create_task(session.drained())
            broken = asyncio.create_task(session.ended.wait())
            try:
                await asyncio.wait([drained, broken], return_when=asyncio.FIRST_COMPLETED)
                if drained.done():
                    return
            finally:
                for task in (drained, broken):
                    task.cancel()
                await asyncio.gather(drained, broken, return_exceptions=True)
            await asyncio.sleep(0.05)

    def _outbox(self, theirs: list[Known] | tuple[()] = ()) -> Outbox:
        share = self._share
        return Outbox(
            self._root, share.writes, share.writes, theirs=theirs, memory=self._memory, enters=share.enters
        )

    def _heed(self, header: Header) -> None:
        if not isinstance(header, Ready) or self.whole.is_set():
            raise ProtocolError(f"{type(header).__name__} is not for a worker")
        assert self._session is not None
        outbox = self._outbox()
        for path in self._root.rglob("*"):
            name = str(path.relative_to(self._root))
            if path.is_file() and rules.carried(name) and self._share.writes(name):
                outbox.received(name)  # as it has come: it is sent when it changes
        self._session.outbox = outbox
        self.whole.set()


class StandInFiles:
    """The stand-in's side. For one connection after another.

    Args:
        threads: Where files are read and written.
        begins: Called when the pod has everything and before it knows that.
    """

    def __init__(self, root: Path, share: WorkerShare, threads: Executor, begins: Callable[[], None]) -> None:
        self._root, self._share, self._threads, self._begins = root, share, threads, begins

    async def carry(self, stream: ByteStream, *, empty: bool) -> None:
        """Until the connection ends.

        Args:
            empty: The pod has nothing yet.

        Raises:
            LinkLost: It broke.
            ProtocolError: The pod did what it may not.
            StorageError: A file can't be written here.
        """
        connection, share = Connection(stream), self._share
        theirs = await exchange_lists(connection, self._root, self._threads, share.concerns)
        session = Session(connection, threads=self._threads, period=PERIOD, answer=_nobody)
        giving: asyncio.Task[None] | None = None
        if empty:
            session.outbox = Outbox(self._root, share.given, theirs=theirs, enters=share.enters)
            giving = asyncio.create_task(self._give(session))
        else:
            session.applier = self._applier()
        try:
            await session.run()
        finally:
            if giving is not None:
                giving.cancel()
                await asyncio.gather(giving, return_exceptions=True)

    async def _give(self, session: Session) -> None:
        await session.drained()
        outbox = session.outbox
        assert outbox is not None
        session.outbox = outbox.narrowed(lambda _: False, lambda _: False, lambda _: False)
        session.applier = self._applier()
        self._begins()
        session.say(Ready())

    def _applier(self) -> Applier:
        return Applier(self._root, lambda header: self._share.writes(header.path))


async def _nobody(_: Ask) -> bytes | None:
    return None
