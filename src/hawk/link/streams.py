"""What a link runs on: a WebSocket that was dialled, one that was taken, a socket, the standard streams of a command."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hawk.link.frames import LinkLost

if TYPE_CHECKING:
    import aiohttp
    from starlette.websockets import WebSocket

CHUNK = 256 * 1024
CONNECTING = 20.0
"""Seconds that a connection may take to come up."""


class NotAdmittedError(LinkLost):
    """The server answered a dial with a status instead of a link. Field: `status`."""


class SocketStream:
    """A pair of asyncio's streams: a unix socket, or pipes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(CHUNK)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def connect_unix(path: Path) -> SocketStream:
    """Raises: OSError."""
    return SocketStream(*await asyncio.open_unix_connection(str(path), limit=CHUNK))


class DialledStream:
    """A WebSocket of aiohttp's, as a stream: where one message ends means nothing."""

    def __init__(self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._session, self._socket = session, socket

    async def read(self) -> bytes:
        from aiohttp import WSMsgType

        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            data: bytes = message.data
            return data
        if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED):
            return b""
        raise LinkLost(f"the connection broke: {message.data}")

    async def write(self, data: bytes) -> None:
        try:
            for at in range(0, len(data), CHUNK):
                await self._socket.send_bytes(data[at : at + CHUNK])
        except RuntimeError as ex:  # it is closing
            raise LinkLost("the connection is closed") from ex

    async def close(self) -> None:
        await self._socket.close()
        await self._session.close()


async def dial(url: str, token: str, ssl: Any = True) -> DialledStream:
    """Open the link of a job at a server.

    Args:
        url: `http(s)://…/runners/<job>/link`.
        ssl: As aiohttp takes it.

    Raises:
        NotAdmittedError: The server does not want this runner.
        LinkLost: It can't be reached.
    """
    import aiohttp

    session = aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECTING), trust_env=True
    )
    try:
        async with asyncio.timeout(CONNECTING):
            socket = await session.ws_connect(
                url,
                headers={"Authorization": f"Bearer {token}"},
                max_msg_size=4 * CHUNK,
                compress=0,
                ssl=ssl,
            )
    except aiohttp.WSServerHandshakeError as ex:
        await session.close()
        raise NotAdmittedError(f"the server answered {ex.status}", status=ex.status) from ex
    except (aiohttp.ClientError, OSError, TimeoutError) as ex:
        await session.close()
        raise LinkLost(f"{url} can't be reached: {ex or type(ex).__name__}") from ex
    except BaseException:
        await session.close()
        raise
    return DialledStream(session, socket)


class TakenStream:
    """A WebSocket that a client has opened at the server."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return b""
        return message.get("bytes") or (message.get("text") or "").encode()

    async def write(self, data: bytes) -> None:
        from starlette.websockets import WebSocketDisconnect

        try:
            for at in range(0, len(data), CHUNK):
                await self._socket.send({"type": "websocket.send", "bytes": data[at : at + CHUNK]})
        except (RuntimeError, WebSocketDisconnect) as ex:
            raise LinkLost("the connection is closed") from ex

    async def close(self) -> None:
        from starlette.websockets import WebSocketDisconnect

        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await self._socket.close()
