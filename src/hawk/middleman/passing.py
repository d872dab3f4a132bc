"""An answer as it goes to the client: the provider's head and bytes, framed anew, and nothing added that it did not say.

aiohttp's own response would invent a content type, a date and a server, and send head and body apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

_BODILESS = frozenset({204, 304})


class Passing(web.StreamResponse):
    """Written by `begin`, `part` and `end`; to aiohttp it is a response that is done."""

    def __init__(self, request: web.BaseRequest) -> None:
        super().__init__()
        self._incoming = request
        self._head = b""
        self._chunked = False
        self._bodiless = request.method == "HEAD"
        self._stays = bool(request.keep_alive)

    def begin(self, status: int, reason: str, headers: Iterable[tuple[str, str]]) -> None:
        """The head. It is sent with the first part, or by `flush`.

        Args:
            headers: Without those of the connection; with Content-Length where the provider said one.
        """
        self.set_status(status)
        request = self._incoming
        modern = request.version >= (1, 1)
        lines = [f"HTTP/1.1 {status} {reason}"]
        framed = self._bodiless or status in _BODILESS
        for name, value in headers:
            lines.append(f"{name}: {value}")
            framed = framed or (len(name) == 14 and name.lower() == "content-length")
        if not framed and modern:
            self._chunked = True
            lines.append("transfer-encoding: chunked")
        elif not framed:
            self._stays = False
        if not self._stays:
            lines.append("connection: close")
        elif not modern:
            lines.append("connection: keep-alive")
        lines.append("\r\n")
        self._head = "\r\n".join(lines).encode("utf-8", "surrogateescape")

    async def flush(self) -> None:
        """The head alone: a body will come later."""
        head, self._head = self._head, b""
        if head:
            await self._incoming.writer.write(head)

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
        self._head = b""
        await self._incoming.writer.write(data)

    async def end(self) -> None:
        """There is no more."""
        data = self._head + (b"0\r\n\r\n" if self._chunked else b"")
        self._head, self._chunked = b"", False
        if data:
            await self._incoming.writer.write(data)

    def cut(self) -> None:
        """The connection ends after what was sent, without an end of the answer."""
        self._stays = False
        transport = self._incoming.transport
        if transport is not None:
            transport.close()

    @property
    def keep_alive(self) -> bool | None:
        return self._stays

    async def prepare(self, request: web.BaseRequest) -> Any:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None
