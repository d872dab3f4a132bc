"""Several streams of bytes over one connection, such as a command in a pod: files, sockets, orders, each at its own pace.

A stream is opened by either side, under a name that says what it is for. Who sends has credit for so many bytes, and gets more
as the other side reads: one that is slow holds up no other and fills no memory. All take turns, a piece at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from enum import IntEnum

from hawk.errors import ClusterError
from hawk.link.frames import ByteStream, LinkLost, ProtocolError

PIECE = 64 * 1024
"""Bytes of one frame."""

CREDIT = 1024 * 1024
"""Bytes that may be on their way in one stream."""

MOST = 10_000
"""Streams at once."""

_HEAD = struct.Struct(">BII")

Accept = Callable[["Channel"], Awaitable[None]]


class _Kind(IntEnum):
    OPEN = 1  # its name
    DATA = 2
    CREDIT = 3  # a number of bytes that were read
    END = 4  # no more comes
    CLOSE = 5  # nothing is read any more either


class Channel:
    """One of the streams: a `ByteStream`, of which each direction can end by itself.

    Attributes:
        name: What it is for, as who opened it says.
    """

    def __init__(self, mux: Mux, number: int, name: str) -> None:
        self._mux, self._number, self.name = mux, number, name
        self._parts: list[bytes] = []
        self._held = self._unsaid = 0
        self._credit = CREDIT
        self._ended = self._closed = self._lost = False
        self._said_end = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def read(self) -> bytes:
        """The next bytes; none at the end.

        Raises:
            LinkLost: The connection broke before its end.
        """
        while not self._parts:
            if self._lost:
                raise LinkLost("the connection broke")
            if self._ended or self._closed:
                return b""
            self._news.clear()
            await self._news.wait()
        data = b"".join(self._parts)
        self._parts.clear()
        self._held = 0
        self._unsaid += len(data)
        if self._unsaid >= CREDIT // 2 and not self._closed:
            count, self._unsaid = self._unsaid, 0
            await self._mux.send(_Kind.CREDIT, self._number, count.to_bytes(4, "big"))
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; returns when the other side keeps up.

        Raises:
            LinkLost: The connection broke, or the other side has closed this stream.
        """
        at = 0
        while at < len(data):
            while not self._credit and not self._closed:
                self._room.clear()
                await self._room.wait()
            if self._closed or self._said_end:
                raise LinkLost("this stream is closed")
            count = min(PIECE, self._credit, len(data) - at)
            self._credit -= count
            await self._mux.send(_Kind.DATA, self._number, data[at : at + count])
            at += count

    async def end(self) -> None:
        """Say that no more comes; what the other side sends still does. Raises: LinkLost."""
        if not (self._said_end or self._closed):
            self._said_end = True
            await self._mux.send(_Kind.END, self._number)

    async def close(self) -> None:
        """End both directions."""
        if not self._closed:
            self._close()
            with contextlib.suppress(LinkLost):
                await self._mux.send(_Kind.CLOSE, self._number)

    # --- what the other side says

    def _take(self, kind: _Kind, body: bytes) -> None:
        match kind:
            case _Kind.DATA:
                self._held += len(body)
                if self._held > CREDIT:
                    raise ProtocolError("more came than was asked for")
                if not self._ended:
                    self._parts.append(body)
            case _Kind.CREDIT:
                self._credit = min(CREDIT, self._credit + int.from_bytes(body[:4], "big"))
                self._room.set()
            case _Kind.END:
                self._ended = True
            case _:
                self._ended = True
                self._close()
        self._news.set()

    def _close(self, *, lost: bool = False) -> None:
        self._closed, self._lost = True, lost and not self._ended
        self._news.set()
        self._room.set()
        self._mux._forget(self._number)


class Mux:
    """All streams of one connection. `run` must run as long as they are used.

    Args:
        odd: Which numbers this side gives to what it opens; the other side has the others.
        accept: Is called, as a task of its own, with each stream that the other side opens; it is closed when that returns.
    """

    def __init__(self, stream: ByteStream, *, odd: bool, accept: Accept) -> None:
        self._stream, self._accept = stream, accept
        self._next, self._odd = int(odd), odd
        self._channels: dict[int, Channel] = {}
        self._sending = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    async def run(self) -> None:
        """Carry until the connection ends.

        Raises:
            LinkLost: It broke.
            ProtocolError: The other side sent what it may not.
        """
        try:
            buffer = bytearray()
            while data := await self._read():
                buffer += data
                self._take(buffer)
        finally:
            self._ended = True
            for channel in list(self._channels.values()):
                channel._close(lost=True)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.close()

    async def close(self) -> None:
        """End the connection, and so `run`."""
        with contextlib.suppress(OSError, ClusterError, LinkLost):
            await self._stream.close()

    async def open(self, name: str) -> Channel:
        """A new stream. Raises: LinkLost."""
        number, self._next = self._next, self._next + 2
        channel = self._channels[number] = Channel(self, number, name)
        await self.send(_Kind.OPEN, number, name.encode())
        return channel

    async def send(self, kind: _Kind, number: int, body: bytes = b"") -> None:
        """For channels. Raises: LinkLost."""
        if self._ended:
            raise LinkLost("the connection has ended")
        try:
            async with self._sending:  # first come, first served: so they take turns
                await self._stream.write(_HEAD.pack(kind, number, len(body)) + body)
        except (OSError, ClusterError) as ex:
            raise LinkLost(f"the connection broke: {ex}") from ex

    async def _read(self) -> bytes:
        try:
            return await self._stream.read()
        except (OSError, ClusterError) as ex:
            raise LinkLost(f"the connection broke: {ex}") from ex

    def _take(self, buffer: bytearray) -> None:
        """Every whole frame that has come."""
        at = 0
        while len(buffer) - at >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(buffer, at)
            if length > PIECE or kind not in _Kind.__members__.values():
                raise ProtocolError("what came is no frame of several streams")
            end = at + _HEAD.size + length
            if len(buffer) < end:
                break
            self._taken(_Kind(kind), number, bytes(buffer[at + _HEAD.size : end]))
            at = end
        del buffer[:at]

    def _taken(self, kind: _Kind, number: int, body: bytes) -> None:
        if kind is _Kind.OPEN:
            if bool(number % 2) is self._odd or number in self._channels or len(self._channels) >= MOST:
                raise ProtocolError("this stream can't be opened")
            channel = self._channels[number] = Channel(self, number, body.decode("utf-8", "replace"))
            task = asyncio.create_task(self._serve(channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif (known := self._channels.get(number)) is not None:  # else it was closed here, which crossed this
            known._take(kind, body)

    async def _serve(self, channel: Channel) -> None:
        try:
            await self._accept(channel)
        except (OSError, LinkLost):
            pass  # of this one stream
        finally:
            await channel.close()

    def _forget(self, number: int) -> None:
        self._channels.pop(number, None)


async def join(channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes between a stream and a socket, both ways, until both have ended or one breaks."""

    async def outwards() -> None:
        while data := await reader.read(PIECE):
            await channel.write(data)
        await channel.end()

    async def inwards() -> None:
        while data := await channel.read():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    both = [asyncio.create_task(outwards()), asyncio.create_task(inwards())]
    try:
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.exception()  # a connection that breaks is nobody's fault
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await channel.close()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
