"""The pod's side of the link: dials the server, or waits for it, and keeps a connection as long as there is one to be had."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from typing import TYPE_CHECKING

import msgspec

from hawk import __version__
from hawk.config.settings import Settings
from hawk.errors import HawkError
from hawk.link import rules
from hawk.link.apply import Applier, Data
from hawk.link.frames import (
    PROTOCOL,
    Ask,
    Bye,
    ByteStream,
    File,
    Frame,
    Header,
    Held,
    Hello,
    Known,
    ProtocolError,
    Ready,
    Refused,
    Welcome,
)
from hawk.link.outbox import Memory, Outbox
from hawk.link.rules import Owner
from hawk.link.session import Connection, Session, exchange_lists
from hawk.link.start import Start
from hawk.link.streams import NotAdmittedError, SocketStream, dial
from hawk.runner.pod_attach import socket_path
from hawk.store import desk
from hawk.store.locks import holder
from hawk.store.rundir import RunDir
from hawk.store.sockets import listening

if TYPE_CHECKING:
    from pathlib import Path

FIRST_DELAY, LONGEST_DELAY = 0.25, 15.0
"""Seconds between tries to dial; each waits half of that at random more."""

NOT_ADMITTED = 6
"""Times in a row that a server may turn the pod away before that counts as its last word."""

LOCKS = 0.5
"""Seconds between looks at which processes live."""

PARTING = 10.0
"""Seconds that a good-bye may take."""


class PodLink:
    """See the module.

    Attributes:
        ready: The run directory is whole; the supervisor may start.
        refused: The server does not want this runner, now and for good.
        problem: Why there is no connection now, one line.
    """

    def __init__(self, start: Start, settings: Settings, run_dir: RunDir) -> None:
        self._start, self._settings, self._run_dir = start, settings, run_dir
        self.ready, self.refused = asyncio.Event(), asyncio.Event()
        self.problem = "nobody has asked for it yet"
        self._gone = asyncio.Event()
        self._memory = Memory()
        self._session: Session | None = None
        self._connected = asyncio.Event()
        self._theirs: list[Known] = []
        self._closing = False
        self._current: asyncio.Task[None] | None = None
        self._begun = time.monotonic()
        self._connection: Connection | None = None

    @property
    def quiet(self) -> float:
        """Seconds since the server said something."""
        heard = self._connection.heard if self._connection is not None else self._begun
        return time.monotonic() - heard

    async def run(self) -> None:
        """Keep a connection until this is cancelled, or the server has said its last word."""
        if self._start.server:
            await self._dial(f"{self._start.server.rstrip('/')}/runners/{self._start.job}/link")
        else:
            await self._listen(socket_path(self._settings))

    async def finish(self, seconds: float) -> bool:
        """Send what is left and say good-bye. Returns whether the server has everything."""
        self._closing = True
        try:
            async with asyncio.timeout(seconds):
                while not self._gone.is_set():
                    await self._connected.wait()
                    await self._part()
            return True
        except TimeoutError:
            return False

    async def _part(self) -> None:
        session = self._session
        if session is None:
            await asyncio.sleep(0.05)
            return
        if session.outbox is not None:
            session.outbox.closing = True
        sent = asyncio.create_task(session.drained())
        broken = asyncio.create_task(session.ended.wait())
        gone = asyncio.create_task(self._gone.wait())
        try:
            await asyncio.wait([sent, broken], return_when=asyncio.FIRST_COMPLETED)
            if sent.done():
                session.say(Bye())
                await asyncio.wait([gone, broken], timeout=PARTING, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sent, broken, gone):
                task.cancel()
            await asyncio.gather(sent, broken, gone, return_exceptions=True)

    # --- connections ----------------------------------------------------------------------------------

    async def _dial(self, url: str) -> None:
        delay, turned_away = FIRST_DELAY, 0
        while not (self._gone.is_set() or self.refused.is_set()):
            try:
                stream = await dial(url, self._start.token)
                turned_away = 0
                if await self._carry(stream):
                    delay = FIRST_DELAY
            except NotAdmittedError as ex:
                self.problem = ex.message
                turned_away += 1
                if turned_away >= NOT_ADMITTED:
                    self.refused.set()
            except HawkError as ex:
                self.problem = ex.message
            await asyncio.sleep(delay * random.uniform(1.0, 1.5))  # noqa: S311  # not to come all at once
            delay = min(delay * 2, LONGEST_DELAY)

    async def _listen(self, path: Path) -> None:
        """Take connections at a socket; the newest counts, since the one before it may be dead and not know it."""
        server = await asyncio.start_unix_server(self._take, sock=listener(path))
        try:
            await asyncio.Event().wait()
        finally:
            server.close()

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        before, stream = self._current, SocketStream(reader, writer)
        self._current = asyncio.create_task(self._carry_after(before, stream))

    async def _carry_after(self, before: asyncio.Task[None] | None, stream: ByteStream) -> None:
        if before is not None:
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)
        try:
            await self._carry(stream)
        except HawkError as ex:
            self.problem = ex.message

    async def _carry(self, stream: ByteStream) -> bool:
        """Greet, then carry until the connection ends. Returns whether it came to carrying.

        Raises:
            HawkError: It broke, or the other side does what it may not.
        """
        connection = self._connection = Connection(stream)
        try:
            empty = not self.ready.is_set()
            if not await self._greeted(connection, empty=empty):
                return False
            session = Session(connection, answer=self._answer, heed=self._heed)
            session.skips = self._skips
            if not self._start.shared:
                root = self._run_dir.path
                self._theirs = await exchange_lists(connection, root, None, lambda _: True)
                session.applier = Applier(root, self._allowed)
                if not empty:
                    session.outbox = self._outbox()
            self._session = session
            self._connected.set()
            locks = asyncio.create_task(self._tell_locks(session))
            try:
                await session.run()
            finally:
                self._session = None
                self._connected.clear()
                locks.cancel()
                await asyncio.gather(locks, return_exceptions=True)
            return True
        finally:
            await connection.close()

    async def _greeted(self, connection: Connection, *, empty: bool) -> bool:
        start = self._start
        hello = Hello(
            PROTOCOL,
            __version__,
            start.job,
            start.generation,
            start.token,
            empty=empty,
            shared=start.shared,
            spans=start.spans,
        )
        await connection.send(Frame(hello))
        answer = (await connection.read()).header
        if isinstance(answer, Refused):
            self.problem = answer.reason[:500]
            if answer.final:
                self.refused.set()
            return False
        if not isinstance(answer, Welcome) or answer.protocol != PROTOCOL:
            raise ProtocolError("the server did not greet back")
        return True

    def _outbox(self) -> Outbox:
        outbox = Outbox(
            self._run_dir.path, self._sends, self._removes, theirs=self._theirs, memory=self._memory
        )
        outbox.closing = self._closing
        return outbox

    # --- whose files ----------------------------------------------------------------------------------

    def _owner(self, path: str) -> Owner:
        return rules.owner(path, spans=self._start.spans)

    def _sends(self, path: str) -> bool:
        owner = self._owner(path)
        return owner is Owner.RUNNER or (owner is Owner.REQUEST and path.startswith("actions/"))

    def _removes(self, path: str) -> bool:
        return self._owner(path) is not Owner.SERVER

    def _allowed(self, header: Data) -> bool:
        if not self.ready.is_set():
            return True
        owner = self._owner(header.path)
        return owner is Owner.SERVER or (owner is Owner.REQUEST and isinstance(header, File))

    def _skips(self, header: Header) -> bool:
        """What is not taken again: a request that was answered, and the job's spec, which may be changed here."""
        if not isinstance(header, File) or not self.ready.is_set():
            return False
        if header.path == "job.json":
            return True
        return self._owner(header.path) is Owner.REQUEST and header.path in self._memory.had

    # --- what the other side says ---------------------------------------------------------------------

    def _heed(self, header: Header) -> None:
        match header:
            case Ready() if not self.ready.is_set():
                assert self._session is not None
                if not self._start.shared:
                    self._remember()
                    self._session.outbox = self._outbox()
                self.ready.set()
            case Bye():
                self._gone.set()
            case _:
                raise ProtocolError(f"{type(header).__name__} is not for a runner")

    def _remember(self) -> None:
        """What has come with the beginning is here from now on: when it goes, the server is told."""
        root = self._run_dir.path
        for path in root.rglob("*"):
            name = str(path.relative_to(root))
            if path.is_file() and rules.carried(name):
                self._memory.had.add(name)

    async def _answer(self, asked: Ask) -> bytes | None:
        if asked.what != "stacks":
            return None
        question, base = desk.Question(asked.native), self._settings.run_base
        records = await asyncio.to_thread(desk.ask, base, self._run_dir, question)
        return None if records is None else msgspec.json.encode(records)

    async def _tell_locks(self, session: Session) -> None:
        told: dict[str, int] | None = None
        while True:
            held = await asyncio.to_thread(self._held)
            if held != told:
                told = held
                session.say(Held(held))
            await asyncio.sleep(LOCKS)

    def _held(self) -> dict[str, int]:
        root = self._run_dir.path
        files = [self._run_dir.lock_file, *(root / "workers").glob("*/lock")]
        found = ((str(path.relative_to(root)), holder(path)) for path in files)
        return {name: pid for name, pid in found if pid is not None}


def listener(path: Path) -> socket.socket:
    """A socket of this user's alone. Raises: OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return listening(path)
