"""Sockets of a worker in another pod: whoever connects to one here is joined with the one there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from hawk.link.frames import LinkLost
from hawk.link.mux import Channel, Mux, join
from hawk.link.streams import CONNECTING
from hawk.runner.heartbeat import RECORDER_SOCKET, STACKS_SOCKET
from hawk.runner.workpods.messages import Stream
from hawk.store.rundir import write_json

NEAR = {Stream.RECORDER: RECORDER_SOCKET, Stream.STACKS: STACKS_SOCKET}
"""Sockets in a worker's data directory, by what they are for."""

Reached = Callable[[], Awaitable[Mux]]
"""Gives the connection to the other pod; waits for one. Raises: LinkLost."""


class Doors:
    """Opens beside the supervisor the sockets that a local worker would have.

    Args:
        data_home: Of the worker.
        reached: Gives the connection; it does not wait for long.
    """

    def __init__(self, data_home: Path, reached: Reached) -> None:
        self._data_home, self._reached = data_home, reached
        self._servers: list[asyncio.AbstractServer] = []
        control = data_home / "inspect_ai" / "control"
        self._control = control / f"{os.getpid()}.sock"
        self._notice = control / f"{os.getpid()}.json"

    async def open(self) -> None:
        """Raises: OSError."""
        self._control.parent.mkdir(parents=True, exist_ok=True)
        for name, path in (
            (Stream.CONTROL, self._control),
            *((n, self._data_home / p) for n, p in NEAR.items()),
        ):
            path.unlink(missing_ok=True)
            self._servers.append(await asyncio.start_unix_server(self._joins(name), str(path)))
            path.chmod(0o600)

    def announce(self, answers: bool) -> None:
        """Let the control socket be found, as long as there is one in the pod."""
        if answers:
            notice = {"pid": os.getpid(), "socket_path": str(self._control), "started_at": time.time()}
            write_json(self._notice, notice, durable=False)
        else:
            self._notice.unlink(missing_ok=True)

    def close(self) -> None:
        self.announce(False)
        for server in self._servers:
            server.close()
        for path in (self._control, *(self._data_home / p for p in NEAR.values())):
            path.unlink(missing_ok=True)

    def _joins(self, name: Stream) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await join_with(name, self._reached, reader, writer)

        return taken


async def join_with(
    name: Stream, reached: Reached, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Join a connection that somebody made here with the other side."""
    try:
        mux = await reached()
        channel = await mux.open(name)
    except LinkLost:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return
    await join(channel, reader, writer)


async def join_unix(channel: Channel, path: Path) -> None:
    """Join a stream that the other side opened with a socket here. Raises: OSError."""
    await join(channel, *await asyncio.open_unix_connection(str(path)))


async def join_tcp(channel: Channel, host: str, port: int) -> None:
    """The same, with an address. Raises: OSError."""
    async with asyncio.timeout(CONNECTING):
        reader, writer = await asyncio.open_connection(host, port)
    await join(channel, reader, writer)
