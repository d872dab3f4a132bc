"""One connection to a provider: HTTP/1.1 on an asyncio transport, parsed by llhttp.

The client of aiohttp costs more here than everything else of a request together (measured in
`benchmarks/results/middleman.md`). What is needed is little: one request at a time, the answer's pieces as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import httptools

HIGH, LOW = 1 << 18, 1 << 16
"""Bytes waiting to be taken at which reading pauses, and goes on."""

MAX_HEAD = 1 << 18
"""Bytes that the head of an answer may have."""

_SLICE = 1 << 16


class AnswerError(ConnectionError):
    """The provider went away, or said what is not HTTP. `begun`: after the head of its answer. `silent`: without a byte."""

    def __init__(self, message: str, *, begun: bool, protocol: bool = False, silent: bool = False) -> None:
        super().__init__(message)
        self.begun = begun
        self.protocol = protocol
        self.silent = silent


class Answer:
    """An answer whose head is there. `headers`: all, as sent; `low`: by name in lower case, the first of several."""

    __slots__ = ("_connection", "headers", "low", "reason", "status")

    def __init__(
        self,
        connection: Connection,
        status: int,
        reason: str,
        headers: list[tuple[str, str]],
        low: dict[str, str],
    ) -> None:
        self._connection = connection
        self.status = status
        self.reason = reason
        self.headers = headers
        self.low = low

    def get(self, name: str, default: str = "") -> str:
        """A header by its name in lower case; the first of several."""
        return self.low.get(name, default)

    @property
    def ended(self) -> bool:
        """Everything of it has been taken."""
        return self._connection.taken

    @property
    def ready(self) -> bool:
        """Some of its body, or its end, is there."""
        return self._connection.ready

    async def part(self) -> bytes:
        """What has come since, at least a byte; empty at the end.

        Raises:
            AnswerError: It breaks off.
        """
        return await self._connection.part()

    def release(self) -> bool:
        """Let go. Returns whether the connection may be used again."""
        return self._connection.release()


class Connection(asyncio.Protocol):
    """See the module. Made by `pool.Pool`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._head: asyncio.Future[Answer] | None = None
        self._body: list[bytes] = []
        self._size = self._head_size = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._begun = False
        self._bodiless = False
        self._until_close = False
        self._reusable = False
        self._error: AnswerError | None = None
        self.used = False
        """It has had a request before this one."""
        self._writable: asyncio.Future[None] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self.idle = False

    # --- asking -------------------------------------------------------------------------------------------

    async def ask(
        self,
        method: str,
        target: str,
        host: str,
        headers: Iterable[tuple[str, str]],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> Answer:
        """Send a request, return when the head of its answer is there.

        Args:
            headers: Without Host and Transfer-Encoding; with Content-Length where the length of the body is known.

        Raises:
            AnswerError: There is no answer.
            ValueError: A header has a line break in it.
        """
        assert self.transport is not None
        lines = [
            f"{method} {target} HTTP/1.1",
            f"host: {host}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        chunked = (
            body is not None
            and not isinstance(body, bytes)
            and not any(name.lower() == "content-length" for name, _ in headers)
        )
        if chunked:
            lines.append("transfer-encoding: chunked")
        text = "\r\n".join([*lines, "", ""])
        if text.count("\r") != len(lines) + 1 or text.count("\n") != len(lines) + 1:
            raise ValueError("a line break in a header")
        head = text.encode("utf-8", "surrogateescape")
        self._parser = httptools.HttpResponseParser(self)
        self._head = self._loop.create_future()
        self._body, self._headers, self._reason = [], [], b""
        self._size = self._head_size = 0
        self._ended = self._begun = self._until_close = self._reusable = False
        self._bodiless = method == "HEAD"
        self.idle = False
        if body is None:
            self.transport.write(head)
        elif isinstance(body, bytes) and len(body) <= _SLICE:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self._sender = self._loop.create_task(self._send(body, chunked=chunked))
        try:
            return await self._head
        except BaseException:
            self.close()
            raise

    async def _send(self, body: bytes | AsyncIterator[bytes], *, chunked: bool) -> None:
        assert self.transport is not None
        try:
            if isinstance(body, bytes):
                view = memoryview(body)
                for start in range(0, len(body), _SLICE):
                    await self._drained()
                    self.transport.write(view[start : start + _SLICE])
                return
            async for piece in body:
                await self._drained()
                self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                self.transport.write(b"0\r\n\r\n")
        except asyncio.CancelledError:
            raise
        except Exception as ex:  # the client's upload broke off: what was sent must not look whole
            self._break(f"the upload broke off: {type(ex).__name__}")

    async def _drained(self) -> None:
        if self._writable is not None:
            await self._writable

    # --- taking -------------------------------------------------------------------------------------------

    @property
    def taken(self) -> bool:
        return self._ended and not self._body

    @property
    def ready(self) -> bool:
        return bool(self._body) or self._ended

    async def part(self) -> bytes:
        while not self._body:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        parts, self._body = self._body, []
        self._size = 0
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def release(self) -> bool:
        if self._sender is not None:
            if not self._sender.done():
                self._sender.cancel()
                self._reusable = False
            self._sender = None
        if self.taken and self._reusable and self._error is None and not self.closing:
            self.idle = self.used = True
            return True
        self.close()
        return False

    @property
    def closing(self) -> bool:
        return self.transport is None or self.transport.is_closing()

    def close(self) -> None:
        """At once, whatever is on its way."""
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None
        if self.transport is not None:
            self.transport.abort()

    # --- asyncio's side -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.idle or self._parser is None or self._ended:
            self._reusable = False
            self.close()  # nobody asked
            return
        if not self._begun:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("it switches protocols", protocol=True)
        except httptools.HttpParserError as ex:
            self._break(str(ex) or "not HTTP", protocol=True)
        if not self._begun and self._head_size > MAX_HEAD:
            self._break("the head of its answer is too large", protocol=True)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.idle:
            if self._begun and self._until_close and exc is None:
                self._finish()
            elif not self._ended:
                self._break("it closed the connection")
        self.transport = None
        self.resume_writing()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # --- llhttp's side ------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers, self._reason = [], b""

    def on_status(self, status: bytes) -> None:
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._begun:  # what follows the body is not passed on
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        assert self._head is not None
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._begun = True
        headers = [(_text(name), _text(value)) for name, value in self._headers]
        low: dict[str, str] = {}
        for name, value in headers:
            low.setdefault(name.lower(), value)
        framed = "content-length" in low or "chunked" in low.get("transfer-encoding", "").lower()
        self._until_close = not framed and status not in (204, 304) and not self._bodiless
        if not self._head.done():
            self._head.set_result(Answer(self, status, _text(self._reason), headers, low))
        if self._bodiless:
            self._finish()

    def on_body(self, body: bytes) -> None:
        if self._ended:
            return
        self._body.append(body)
        self._size += len(body)
        if self._size > HIGH and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if not self._begun or self._ended:
            return  # an interim answer, or one that has no body
        if not self._until_close:
            assert self._parser is not None
            self._reusable = self._parser.should_keep_alive()
            self._finish()

    # --- the end of an answer -----------------------------------------------------------------------------

    def _finish(self) -> None:
        self._ended = True
        self._wake()

    def _break(self, message: str, *, protocol: bool = False) -> None:
        if self._error is None:
            silent = not self._head_size
            self._error = AnswerError(message, begun=self._begun, protocol=protocol, silent=silent)
        if self._head is not None and not self._head.done():
            self._head.set_exception(self._error)
        self._wake()
        self.close()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
