"""The worker's end of a keeper: starts it, and asks it for sandboxes and commands."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hawk.sandbox.errors import KeeperGoneError, KeeperRefusedError
from hawk.sandbox.wire import Unpacker, ancillary, pack

_SOURCE = Path(__file__).parents[2]
_START = "import sys; sys.path.insert(0, sys.argv[1]); from hawk.sandbox.keeperstart import main; main(int(sys.argv[2]))"


class Keeper:
    """A keeper process and the conversation with it; one event loop's.

    Attributes:
        facts: What the keeper found: `single_id`, `cgroups` (version, 0: none), `without_cgroups`, `mapped_usr`.
        pid: Its pid.
    """

    def __init__(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._sock = sock
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._dead: dict[str, Callable[[str], None]] = {}
        self._unpacker = Unpacker()
        self._sending = asyncio.Lock()
        self._gone = False
        self.facts: dict[str, Any] = {}
        self.pid = process.pid

    @classmethod
    async def start(cls, store: Path, bwrap: Path, name: str, environ: dict[str, str]) -> Keeper:
        """Start one.

        Args:
            store: Directory of layers and scratch space.
            name: Of its cgroups; unique on the machine.
            environ: Its environment; processes that outlive their time are found by it.

        Raises:
            KeeperRefusedError: The machine does not allow sandboxes; says which call was refused.
        """
        ours, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(  # noqa: ASYNC220  # a fork and exec, without waiting
                [sys.executable, "-I", "-S", "-c", _START, str(_SOURCE), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environ,
                cwd="/",
                start_new_session=True,  # an interrupt at the terminal is for the worker, which ends in order
            )
        finally:
            theirs.close()
        ours.setblocking(False)
        keeper = cls(ours, process)
        keeper._loop.add_reader(ours.fileno(), keeper._readable)
        try:
            keeper.facts = await keeper.ask(
                {"op": "hello", "store": str(store), "bwrap": str(bwrap), "name": name, "about": environ}
            )
        except BaseException:
            keeper.close()
            raise
        return keeper

    @property
    def gone(self) -> bool:
        return self._gone

    def when_dead(self, label: str, tell: Callable[[str], None]) -> None:
        """Call `tell(reason)` when the sandbox ends without being asked to."""
        self._dead[label] = tell

    def forget(self, label: str) -> None:
        self._dead.pop(label, None)

    async def send(
        self, message: dict[str, Any], fds: Sequence[int] = ()
    ) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Ask without waiting: (id of the request, its answer)."""
        number = next(self._numbers)
        answer = self._loop.create_future()
        if self._gone:
            raise KeeperGoneError("the process that keeps the sandboxes has ended")
        self._waiting[number] = answer
        data = pack({**message, "id": number}, fds)
        try:
            await self._write(data, fds)
        except BaseException as ex:
            self._waiting.pop(number, None)
            if isinstance(ex, OSError):
                raise KeeperGoneError(
                    f"the process that keeps the sandboxes has ended ({ex.strerror})"
                ) from ex
            raise
        return number, answer

    async def ask(self, message: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        """Ask and wait.

        Raises:
            KeeperRefusedError: It could not.
            KeeperGoneError: It has ended.
        """
        _, answer = await self.send(message, fds)
        reply = await answer
        if "errno" in reply:
            raise KeeperRefusedError(reply["errno"], reply["stage"], reply.get("detail", ""))
        return reply

    async def _write(self, data: bytes, fds: Sequence[int]) -> None:
        async with self._sending:
            sent = 0
            while sent == 0:
                try:
                    sent = self._sock.sendmsg([data], ancillary(fds))
                except BlockingIOError:
                    await self._writable()
            if sent < len(data):
                # A request that is cut off in the middle would spoil all that follow.
                await asyncio.shield(self._loop.sock_sendall(self._sock, memoryview(data)[sent:]))

    async def _writable(self) -> None:
        free = self._loop.create_future()
        self._loop.add_writer(self._sock.fileno(), _resolve, free)
        try:
            await free
        finally:
            self._loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        try:
            alive = self._unpacker.receive(self._sock)
        except BlockingIOError:
            return
        except OSError:
            alive = False
        for message, fds in self._unpacker.messages():
            for fd in fds:
                os.close(fd)
            self._deliver(message)
        if not alive:
            self._end()

    def _deliver(self, message: dict[str, Any]) -> None:
        if message.get("event") == "dead":
            tell = self._dead.pop(message["label"], None)
            if tell is not None:
                tell(message["reason"])
            return
        answer = self._waiting.pop(message.get("id", 0), None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _end(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(KeeperGoneError("the process that keeps the sandboxes has ended"))
        self._waiting.clear()
        for tell in list(self._dead.values()):
            tell("the process that keeps the sandboxes has ended")
        self._dead.clear()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)

    def close(self) -> None:
        """End it and with it every sandbox."""
        self._end()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
