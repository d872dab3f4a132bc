"""What a client asks, while it comes: its head at once, its body as it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol
from urllib.parse import parse_qs

HIGH = 1 << 18
"""Bytes of a body waiting to be taken at which reading pauses."""


class Line(Protocol):
    """The connection that a request came on."""

    loop: asyncio.AbstractEventLoop

    @property
    def transport(self) -> asyncio.Transport | None: ...

    def interim(self, data: bytes) -> None:
        """Send an answer before the answer."""

    def read_on(self) -> None:
        """What was read has been taken."""


class TooLargeError(Exception):
    """A body is larger than it may be."""


class Request:
    """What a client asks. `headers`: by name in lower case, the first of several; `fields`: all, as sent."""

    __slots__ = ("_connection", "_ended", "_parts", "_size", "_waiter", "expected", "fields", "headers", "keep_alive", "method",
                 "target", "version")  # fmt: skip

    def __init__(self, connection: Line, method: str, target: str, version: str, keep_alive: bool) -> None:
        self._connection = connection
        self.method = method
        self.target = target
        self.version = version
        self.keep_alive = keep_alive
        self.fields: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        self.expected = False
        """A client that asked first was told to send its body."""

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._connection.transport

    @property
    def has_body(self) -> bool:
        """Whether a body comes, or has come."""
        return not self._ended or bool(self._parts)

    @property
    def whole(self) -> bool:
        """Everything of it has come and been taken."""
        return self._ended and not self._parts

    def query(self, name: str) -> list[str]:
        """Values of a parameter."""
        return parse_qs(self.target.partition("?")[2]).get(name, [])

    def keep_going(self) -> None:
        """Tell a client that asks first (`Expect: 100-continue`) to send its body."""
        if self.headers.get("expect", "").lower() == "100-continue" and self.version != "1.0":
            self.expected = True
            self._connection.interim(b"HTTP/1.1 100 Continue\r\n\r\n")

    def still_here(self) -> None:
        """Tell a client that waits that it is not forgotten (`102 Processing`, RFC 2518)."""
        if self.version != "1.0":
            self._connection.interim(b"HTTP/1.1 102 Processing\r\n\r\n")

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        while part := await self._part():
            yield part

    async def read(self, most: int) -> bytes:
        """The body, whole.

        Raises:
            TooLargeError: It has more bytes than that.
        """
        if self._ended:
            taken, self._parts = self._parts, []
            return taken[0] if len(taken) == 1 else b"".join(taken)
        parts, size = list[bytes](), 0
        while part := await self._part():
            parts.append(part)
            size += len(part)
            if size > most:
                raise TooLargeError
        return b"".join(parts)

    async def _part(self) -> bytes:
        while not self._parts:
            if self._ended:
                return b""
            self._waiter = self._connection.loop.create_future()
            await self._waiter
        parts, self._parts, self._size = self._parts, [], 0
        self._connection.read_on()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def fed(self, data: bytes) -> bool:
        """More of the body; True: enough for now."""
        self._parts.append(data)
        self._size += len(data)
        self._wake()
        return self._size > HIGH

    def ended(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
