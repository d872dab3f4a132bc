"""The answer to one request as it goes out: nothing is added that was not said, but the framing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from hawk.middleman.request import Request

_BODILESS = frozenset({204, 304})


class Line(Protocol):
    """The connection that an answer goes out on. `full`: set while the client does not take what is sent."""

    full: asyncio.Future[None] | None

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """After what was written."""


class Reply:
    """The answer to one request: `whole`, or `begin`, `part` and `end`. Nothing is added that was not said, but framing."""

    __slots__ = ("_bodiless", "_chunked", "_connection", "_head", "_modern", "begun", "stays")

    def __init__(self, connection: Line, request: Request) -> None:
        self._connection = connection
        self._head = b""
        self._chunked = False
        self._bodiless = request.method == "HEAD"
        self._modern = request.version != "1.0"
        self.stays = request.keep_alive
        self.begun = False

    def begin(self, status: int, reason: str, fields: Iterable[tuple[str, str]]) -> None:
        """The head. It is sent with the first part, or by `flush`.

        Args:
            fields: Without those of the connection; with Content-Length where the length of the body is known.
        """
        lines = [f"HTTP/1.1 {status} {reason}"]
        framed = self._bodiless or status in _BODILESS
        for name, value in fields:
            lines.append(f"{name}: {value}")
            framed = framed or (len(name) == 14 and name.lower() == "content-length")
        if not framed and self._modern:
            self._chunked = True
            lines.append("transfer-encoding: chunked")
        elif not framed:
            self.stays = False
        if not self.stays:
            lines.append("connection: close")
        elif not self._modern:
            lines.append("connection: keep-alive")
        lines.append("\r\n")
        self._head = "\r\n".join(lines).encode("utf-8", "surrogateescape")

    def flush(self) -> None:
        """The head alone: a body will come later."""
        head, self._head = self._head, b""
        if head:
            self.begun = True
            self._connection.write(head)

    async def part(self, data: bytes, *, last: bool) -> None:
        """A piece of the body, at least a byte. Returns when the client has taken enough of what came before.

        Args:
            last: Nothing comes after it.

        Raises:
            ConnectionError: The client has gone.
        """
        if self._chunked:
            end = b"\r\n0\r\n\r\n" if last else b"\r\n"
            data = b"%b%x\r\n%b%b" % (self._head, len(data), data, end)
            self._chunked = not last
        elif self._head:
            data = self._head + data
        self._head, self.begun = b"", True
        self._connection.write(data)
        if self._connection.full is not None:
            await self._connection.full

    def end(self) -> None:
        """There is no more."""
        data = self._head + (b"0\r\n\r\n" if self._chunked else b"")
        self._head, self._chunked, self.begun = b"", False, True
        if data:
            self._connection.write(data)

    def whole(self, status: int, reason: str, fields: Iterable[tuple[str, str]], body: bytes) -> None:
        """All of it at once."""
        self.begin(status, reason, [*fields, ("content-length", str(len(body)))])
        data, self._head, self.begun = self._head, b"", True
        self._connection.write(data if self._bodiless else data + body)

    def cut(self) -> None:
        """The connection ends after what was sent, without an end of the answer."""
        self.stays = False
        self._connection.close()
