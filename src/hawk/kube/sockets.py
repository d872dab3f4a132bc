"""The API's channels over a WebSocket: input, output, errors and the outcome of a command, as messages.

Version 5 of the protocol can end the input; version 4, of older clusters, can't.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import aiohttp
import msgspec

from hawk.errors import ClusterError
from hawk.kube.problems import Reason, error, refusal, words_of
from hawk.kube.replies import refusals
from hawk.kube.requests import Requests

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"

_HANDSHAKE = 15.0  # seconds


@dataclass(frozen=True)
class Outcome:
    """The end of a command as the API says it.

    Attributes:
        code: Exit code; None when it did not run, or nobody knows.
        message: The API's own words, then.
    """

    code: int | None
    message: str


class Channels:
    """One open stream to a command.

    Attributes:
        stdin_closes: Whether its input can be ended.
    """

    STDIN: ClassVar = 0
    STDOUT: ClassVar = 1
    STDERR: ClassVar = 2
    OUTCOME: ClassVar = 3
    CLOSE: ClassVar = 255

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool], what: str) -> None:
        self._socket, self._what = socket, what
        self.stdin_closes = socket.protocol == V5

    async def __aenter__(self) -> Channels:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def receive(self) -> tuple[int, bytes] | Outcome:
        """The next bytes and the channel that they are of; the outcome at the end.

        Raises:
            ClusterError: The connection ended without one (`reason`: exec; `started` is set).
        """
        while True:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
            elif message.type is aiohttp.WSMsgType.TEXT:
                data = message.data.encode() if isinstance(message.data, str) else message.data
            else:
                raise self._lost(message)
            if not data or data[0] == self.CLOSE:
                continue
            if data[0] == self.OUTCOME:
                return _decoded(data[1:])
            return data[0], data[1:]

    async def send(self, data: bytes | memoryview) -> None:
        """Send bytes to the command's input.

        Raises:
            ClusterError: The connection was lost.
        """
        await self._put(b"\x00" + data)

    async def end_input(self) -> None:
        """Say that no more input comes, where the protocol can."""
        if self.stdin_closes:
            await self._put(bytes([self.CLOSE, self.STDIN]))

    async def close(self) -> None:
        """Close it without waiting for the other side."""
        try:
            async with asyncio.timeout(1):
                await self._socket.close()
        except (TimeoutError, aiohttp.ClientError, OSError):
            pass

    async def _put(self, data: bytes) -> None:
        try:
            await self._socket.send_bytes(data)
        except (aiohttp.ClientError, OSError) as ex:
            raise error(Reason.EXEC, f"The connection was lost to {self._what}: {ex}", started=True) from ex

    def _lost(self, message: Any) -> ClusterError:
        said = (
            str(message.data or "") if message.type is aiohttp.WSMsgType.ERROR else str(message.extra or "")
        )
        cause = self._socket.exception()
        said = said or (str(cause) or type(cause).__name__ if cause else "it ended without an outcome")
        return error(Reason.EXEC, f"The connection was lost to {self._what}: {said}", said=said, started=True)


async def dial(requests: Requests, path: str, query: Sequence[tuple[str, str]], *, what: str) -> Channels:
    """Open a stream.

    Raises:
        ClusterError: It was refused, or nobody answers.
    """
    requests.count("EXEC", path)
    said: list[bytes] = []
    token = refusals.set(said)
    try:
        async with requests.dials, asyncio.timeout(_HANDSHAKE):
            socket = await requests.session.ws_connect(
                requests.access.host + path,
                params=list(query),
                protocols=(V5, V4),
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_close=0.3),
                **await requests.options(),
            )
    except aiohttp.WSServerHandshakeError as ex:
        text = said[0] if said else b""
        try:
            body = msgspec.json.decode(text)
        except msgspec.DecodeError:
            body = text.decode(errors="replace")
        raise refusal(ex.status, body, what=what) from ex
    except (aiohttp.ClientError, TimeoutError, OSError) as ex:
        words = words_of(ex)
        raise error(
            Reason.UNREACHABLE,
            f"The cluster at {requests.access.host} could not be reached to {what}: {words}",
        ) from ex
    finally:
        refusals.reset(token)
    return Channels(socket, what)


def _decoded(data: bytes) -> Outcome:
    """What the API says at the end of a command."""
    try:
        status = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return Outcome(None, data.decode(errors="replace"))
    if status.get("status") == "Success":
        return Outcome(0, "")
    causes = (status.get("details") or {}).get("causes") or []
    code = next((cause.get("message") for cause in causes if cause.get("reason") == "ExitCode"), None)
    message = str(status.get("message", ""))
    return Outcome(int(code) if code is not None and str(code).isdecimal() else None, message)
