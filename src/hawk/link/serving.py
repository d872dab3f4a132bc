"""The server's side of one connection: gives a runner that begins all that it needs, then takes what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from hawk import __version__
from hawk.link import rules
from hawk.link.apply import Applier, Data
from hawk.link.frames import (
    PROTOCOL,
    Bye,
    File,
    Frame,
    Header,
    Held,
    Hello,
    ProtocolError,
    Ready,
    Refused,
    Remove,
    Welcome,
)
from hawk.link.outbox import Outbox
from hawk.link.rules import Owner
from hawk.link.session import Connection, Session, exchange_lists
from hawk.store.rundir import RunDir

GREETING = 20.0
"""Seconds in which a runner must say who it is."""

PERIOD = 0.25
"""Seconds between looks for requests: a stop must reach the runner within one."""

_OUR_DIRECTORIES = frozenset({"", "stop", "actions", "spans"})

Admission = Callable[[Hello], Refused | None]


async def greet(connection: Connection, admission: Admission) -> Hello | Refused:
    """Hear who is there, and answer.

    Raises:
        LinkLost: It went away.
        ProtocolError: It is no runner, or takes too long.
    """
    try:
        async with asyncio.timeout(GREETING):
            hello = (await connection.read()).header
            if not isinstance(hello, Hello):
                raise ProtocolError("this is not the greeting of a runner")
            refused = admission(hello)
            await connection.send(Frame(refused or Welcome(PROTOCOL, __version__)))
    except TimeoutError as ex:
        raise ProtocolError(f"no greeting within {GREETING:.0f} s") from ex
    return refused or hello


class Served:
    """A runner's connection, after the greeting.

    Args:
        run: The job's run directory; it must be there.
        spans: The runner writes the spans of the middleman.
        threads: Where files are read and written.
        vouch: Is told which processes of the runner live: path of a lock to pid.

    Attributes:
        ready: The runner has all that it needs.
        gone: It has said good-bye.
    """

    def __init__(
        self,
        connection: Connection,
        run: RunDir,
        hello: Hello,
        *,
        spans: bool,
        threads: Executor,
        vouch: Callable[[Mapping[str, int]], None],
    ) -> None:
        self._connection, self._run, self._hello = connection, run, hello
        self._spans, self._threads, self._vouch = spans, threads, vouch
        self.session = Session(connection, threads=threads, period=PERIOD, heed=self._heed)
        self.ready = self.gone = False

    async def run(self) -> None:
        """Carry until the connection ends.

        Raises:
            LinkLost: It broke.
            ProtocolError: The runner did what it may not.
            StorageError: A file can't be written here.
        """
        try:
            if not self._hello.shared:
                await self._prepare()
            self.ready = not self._hello.empty or self._hello.shared
            if self._hello.shared and self._hello.empty:
                self._make_ready()
            giving = asyncio.create_task(self._give()) if not self.ready else None
            try:
                await self.session.run()
            finally:
                if giving is not None:
                    giving.cancel()
                    await asyncio.gather(giving, return_exceptions=True)
        finally:
            self.ready = False
            await self._connection.close()

    async def _prepare(self) -> None:
        root = self._run.path
        theirs = await exchange_lists(self._connection, root, self._threads, lambda _: True)
        self.session.applier = Applier(root, self._allowed)
        if self._hello.empty:
            self.session.outbox = Outbox(root, rules.wanted_to_begin, theirs=theirs)
        else:
            self.session.outbox = Outbox(
                root, self._sends, theirs=theirs, enters=_OUR_DIRECTORIES.__contains__
            )

    async def _give(self) -> None:
        """Send the whole tree, then say so, and send only what is ours from there on."""
        await self.session.drained()
        outbox = self.session.outbox
        assert outbox is not None
        self.session.outbox = outbox.narrowed(self._sends, lambda _: False, _OUR_DIRECTORIES.__contains__)
        self._make_ready()

    def _make_ready(self) -> None:
        self.session.say(Ready())
        self.ready = True

    def _owner(self, path: str) -> Owner:
        return rules.owner(path, spans=self._spans)

    def _sends(self, path: str) -> bool:
        return self._owner(path) is not Owner.RUNNER and rules.wanted_to_begin(path)

    def _allowed(self, header: Data) -> bool:
        if not self.ready:
            return False
        match self._owner(header.path):
            case Owner.RUNNER:
                return True
            case Owner.REQUEST:
                return isinstance(header, Remove) or (
                    isinstance(header, File) and header.path.startswith("actions/")
                )
            case Owner.SERVER:
                return False

    def _heed(self, header: Header) -> None:
        match header:
            case Held(locks=locks):
                if not self._hello.shared:
                    self._vouch(locks)
            case Bye():
                self.gone = True
                self._vouch({})
                self.session.say(Bye())
            case _:
                raise ProtocolError(f"{type(header).__name__} is not for a server")
