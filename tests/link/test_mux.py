"""Several streams over one connection: each at its own pace, none lost, none that holds up another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawk.link.frames import LinkLost, ProtocolError
from hawk.link.mux import CREDIT, Accept, Channel, Mux
from hawk.link.streams import SocketStream
from hawk.runner.workpods.messages import Stream
from hawk.runner.workpods.sockets import join_tcp, join_with


class Ends:
    """Two sides, joined by a socket."""

    def __init__(self, left: Mux, right: Mux, wire: SocketStream, running: list[asyncio.Task[None]]) -> None:
        self.left, self.right, self.wire, self.running = left, right, wire, running


async def nobody(channel: Channel) -> None:
    raise AssertionError(f"nobody was to open {channel.name}")


@contextlib.asynccontextmanager
async def joined(accept: Accept) -> AsyncIterator[Ends]:
    streams = [SocketStream(*await asyncio.open_connection(sock=s)) for s in socket.socketpair()]
    left, right = Mux(streams[0], odd=False, accept=nobody), Mux(streams[1], odd=True, accept=accept)
    running = [asyncio.create_task(mux.run()) for mux in (left, right)]
    try:
        yield Ends(left, right, streams[0], running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def everything(channel: Channel) -> bytes:
    return b"".join([data async for data in _parts(channel)])


async def _parts(channel: Channel) -> AsyncIterator[bytes]:
    while data := await channel.read():
        yield data


async def echo(channel: Channel) -> None:
    async for data in _parts(channel):
        await channel.write(data)
    await channel.end()


async def test_streams_carry_more_than_their_credit_both_ways_at_once() -> None:
    async with joined(echo) as ends:

        async def one(number: int) -> None:
            sent = os.urandom(3 * CREDIT // (number + 1))
            channel = await ends.left.open(f"stream {number}")
            back = asyncio.create_task(everything(channel))
            await channel.write(sent)
            await channel.end()
            assert await back == sent

        async with asyncio.timeout(60):
            await asyncio.gather(*(one(n) for n in range(4)))


async def test_a_reader_that_is_slow_holds_up_no_other_stream() -> None:
    async def serve(channel: Channel) -> None:
        if channel.name == "quick":
            await echo(channel)
        await asyncio.Event().wait()

    async with joined(serve) as ends, asyncio.timeout(60):
        slow, quick = await ends.left.open("slow"), await ends.left.open("quick")
        writing = asyncio.create_task(slow.write(bytes(2 * CREDIT)))
        await quick.write(b"hello")
        await quick.end()
        assert await everything(quick) == b"hello"
        assert not writing.done()
        writing.cancel()


async def test_what_waits_on_a_connection_that_breaks_is_told() -> None:
    opened = asyncio.Event()

    async def serve(channel: Channel) -> None:
        opened.set()
        await asyncio.Event().wait()

    async with joined(serve) as ends, asyncio.timeout(60):
        channel = await ends.left.open("x")
        await opened.wait()
        reading = asyncio.create_task(channel.read())
        await ends.right.close()
        with pytest.raises(LinkLost):
            await reading
        with pytest.raises(LinkLost):
            await ends.left.open("y")


async def test_what_is_no_frame_ends_the_connection() -> None:
    async with joined(nobody) as ends, asyncio.timeout(60):
        await ends.wire.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with pytest.raises(ProtocolError):
            await ends.running[1]


async def test_a_connection_made_in_a_pod_ends_where_the_other_side_says(tmp_path: Path) -> None:
    """As requests to a middleman that only the other pod reaches."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readline()
        writer.write(b"answer to " + asked)
        writer.close()

    there = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]

    async def serve(channel: Channel) -> None:
        assert channel.name == Stream.MODELS
        await join_tcp(channel, "127.0.0.1", port)

    async with joined(serve) as ends, asyncio.timeout(60):

        async def reached() -> Mux:
            return ends.left

        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await join_with(Stream.MODELS, reached, reader, writer)

        here = await asyncio.start_unix_server(taken, str(tmp_path / "s"))
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(b"this\n")
        assert await reader.read() == b"answer to this\n"
        writer.close()
        here.close()
        there.close()
