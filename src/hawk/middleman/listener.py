"""The client's side: HTTP/1.1 on an asyncio transport, parsed by llhttp (strict), one request after the other.

A server library costs a request here more than everything that the middleman itself does with it (measured, see
`benchmarks/results/middleman.md`), adds fields to answers, and sends head and body apart.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

import httptools

from hawk.middleman.reply import Reply
from hawk.middleman.request import Request

MAX_HEAD = 1 << 17
MAX_FIELDS = 256
"""Bytes and fields that the head of a request may have."""

AHEAD = 8
"""Requests that a client may send before the first is answered."""

IDLE, HEAD, BODY = 75.0, 30.0, 300.0
"""Seconds that a connection may be idle, that a head may take, and a body may stand still."""

LINGER = 5.0
"""Seconds for which the rest of a body that nobody wants is taken."""

_log = logging.getLogger(__name__)


Handler = Callable[[Request, Reply], Awaitable[None]]
Complaint = Callable[[str], bytes]


class ClientConnection(asyncio.Protocol):
    """One client's connection. Made by `Listener`."""

    __slots__ = ("_fields", "_handler", "_head_size", "_last", "_listener", "_parser", "_paused", "_queue", "_reading",
                 "_task", "_transport", "_url", "full", "loop", "since")  # fmt: skip

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._handler = listener.handler
        self.loop = listener.loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._reading: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._url = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._paused = self._last = False
        self.full: asyncio.Future[None] | None = None
        """Set while the client does not take what is sent."""
        self.since = self.loop.time()
        """When something came last."""

    # --- asyncio's side -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.since = self.loop.time()
        if self._reading is None:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._complain("This server speaks HTTP/1.1 and switches to nothing else.")
        except httptools.HttpParserError as ex:
            self._complain(f"This is not a well-formed HTTP request: {ex}")
        if self._reading is None and self._head_size > MAX_HEAD:
            self._complain("The head of the request is too large.")
        self._next()  # now and not when the head was complete: mostly the body has come with it

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.connections.discard(self)
        self._transport = None
        self._queue.clear()
        if self.full is not None and not self.full.done():
            self.full.set_exception(ConnectionResetError("the client has gone"))
            self.full.exception()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self.full = self.loop.create_future()

    def resume_writing(self) -> None:
        waiting, self.full = self.full, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # --- llhttp's side ------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url, self._fields = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading is None:  # what follows the body is not passed on
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        method = parser.get_method().decode("ascii", "replace")
        target = self._url.decode("utf-8", "surrogateescape")
        request = Request(self, method, target, parser.get_http_version(), parser.should_keep_alive())
        for name, value in self._fields:
            field = (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
            request.fields.append(field)
            request.headers.setdefault(field[0].lower(), field[1])
        self._head_size = 0
        self._reading = request
        if len(self._fields) > MAX_FIELDS:
            self._complain("The request has too many header fields.")
        elif "host" not in request.headers and request.version != "1.0":
            self._complain("The request has no Host field.")
        elif self._transport is not None:
            self._queue.append(request)
            if len(self._queue) >= AHEAD:
                self._pause()

    def on_body(self, body: bytes) -> None:
        if self._reading is not None and self._reading.fed(body):
            self._pause()

    def on_message_complete(self) -> None:
        if self._reading is not None:
            self._reading.ended()
            self._reading = None

    # --- one after the other ------------------------------------------------------------------------------

    def _next(self) -> None:
        if self._task is None and self._queue:
            self._task = self.loop.create_task(self._serve(self._queue.popleft()))

    async def _serve(self, request: Request) -> None:
        reply = Reply(self, request)
        try:
            await self._handler(request, reply)
        except asyncio.CancelledError:
            self.abort()
        except ConnectionError:
            self.abort()
        except Exception:
            _log.exception("a request ended in a fault")
            self.abort()
        if not request.whole:
            await self._linger(request, reply)
        self._task = None
        self.since = self.loop.time()
        if self._last or not reply.stays or not request.whole or self._listener.closing:
            self.close()
            return
        self.read_on()
        self._next()

    async def _linger(self, request: Request, reply: Reply) -> None:
        """Take the rest of a body that nobody wants: closing on it would lose the answer on its way to the client."""
        if self._transport is None or self._transport.is_closing():
            return
        if "expect" in request.headers and not request.expected:
            return  # it waits for the answer before it sends
        try:
            async with asyncio.timeout(LINGER):
                async for _ in request.parts():
                    pass
        except TimeoutError:
            reply.stays = False

    # --- for requests and replies -------------------------------------------------------------------------

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._transport

    @property
    def busy(self) -> bool:
        """A request is being answered."""
        return self._task is not None

    def stalled(self, now: float) -> bool:
        """Whether it has taken too long for what it does, as far as that is the client's part."""
        if self._reading is not None:
            return not self._paused and now - self.since > BODY
        if self.busy or self._queue:
            return False
        return now - self.since > (HEAD if self._head_size else IDLE)

    def write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the client has gone")
        self._transport.write(data)

    def interim(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def read_on(self) -> None:
        """What was read has been taken."""
        if self._paused and self._transport is not None and len(self._queue) < AHEAD:
            self._paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """After what was written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()

    def _complain(self, why: str) -> None:
        if self._transport is None or self._transport.is_closing() or self._last:
            return
        self._last = True
        self._queue.clear()
        self._reading = None
        if self._task is None:
            body = self._listener.complain(why)
            head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            self._transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
            self.close()
        else:
            self._pause()


class Listener:
    """Takes connections.

    Args:
        complain: The body of an answer to what is not HTTP.

    Attributes:
        closing: No connection is kept for another request.
    """

    def __init__(self, handler: Handler, complain: Complaint) -> None:
        self.handler = handler
        self.complain = complain
        self.loop = asyncio.get_running_loop()
        self.connections: set[ClientConnection] = set()
        self.closing = False
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> ClientConnection:
        if self._timer is None:
            self._timer = self.loop.call_later(5.0, self._look)
        return ClientConnection(self)

    def _look(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            if connection.stalled(now):
                connection.close()
        self._timer = self.loop.call_later(5.0, self._look) if self.connections else None

    def close_idle(self) -> None:
        """No request is taken any more on connections that have none."""
        self.closing = True
        for connection in list(self.connections):
            if not connection.busy:
                connection.close()

    def abort(self) -> None:
        """Every connection ends now."""
        for connection in list(self.connections):
            connection.abort()
