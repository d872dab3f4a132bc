"""The wire of the scriptable provider: HTTP/1 by hand, so that every byte that arrives is kept and any byte can be sent.

No HTTP library: those would mend what a test wants broken (two lengths, a body cut in its middle, silence).
"""

from __future__ import annotations

import asyncio
import enum
import math
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

Headers = list[tuple[str, str]]


class Act(enum.Enum):
    """What an answer can do beside sending bytes."""

    SILENCE = "say nothing more, and keep the connection"
    CLOSE = "close the connection here"
    RESET = "end the connection by RST"


Part = bytes | float | Act
"""Bytes to send (one HTTP chunk where the framing is chunked), seconds to wait, or an act."""


class Framing(enum.Enum):
    """How the end of a body is told."""

    LENGTH = "content-length"
    CHUNKED = "chunked"
    CLOSE = "close"


@dataclass
class Answer:
    """What the provider says to one request.

    Attributes:
        parts: The body, byte for byte.
        delay: Seconds before the status line; `math.inf`: never.
        after: An event that the status line waits for.
        declared: Content-Length to claim instead of the true one.
        keep: Leave the connection open for another request.
        raw: Sent as it is, instead of status line, headers and framed body.
        early: Answer as soon as the request's head is read, without its body (and without 100 Continue).
    """

    parts: Sequence[Part] = ()
    status: int = 200
    headers: Headers = field(default_factory=list)
    framing: Framing = Framing.LENGTH
    version: str = "HTTP/1.1"
    reason: str = "Whatever"
    delay: float = 0.0
    after: threading.Event | None = None
    declared: int | None = None
    keep: bool = True
    raw: bool = False
    early: bool = False

    def head(self) -> bytes:
        """Status line and headers as they go out."""
        lines = [f"{self.version} {self.status} {self.reason}", *(f"{k}: {v}" for k, v in self.headers)]
        if self.framing is Framing.CHUNKED:
            lines.append("Transfer-Encoding: chunked")
        elif self.framing is Framing.LENGTH and self.status not in (204, 304):
            length = sum(len(p) for p in self.parts if isinstance(p, bytes))
            lines.append(f"Content-Length: {length if self.declared is None else self.declared}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@dataclass
class Received:
    """One request, as it came; times are of `time.monotonic()`.

    Attributes:
        head: Request line and headers with the blank line, verbatim.
        wire: The body verbatim, chunk sizes included.
        body: The body without framing.
        connection: Number of the connection that it came over.
        gone_at: When the client was noticed to have hung up before the answer was complete.
        done_at: When the answer's last byte was handed to the kernel.
    """

    head: bytes
    at: float
    connection: int
    wire: bytes = b""
    body: bytes = b""
    answer: Answer | None = None
    gone_at: float | None = None
    done_at: float | None = None

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode("latin-1")

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode("latin-1")

    @property
    def path(self) -> str:
        return self.target.split("?", 1)[0]

    @cached_property
    def headers(self) -> Headers:
        """Names in lower case, in their order, duplicates kept."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return [(name.lower(), value.strip()) for name, _, value in pairs]

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers if k == name), None)

    def json(self) -> dict[str, Any]:
        """The body as an object; an empty one when it is none."""
        try:
            decoded = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return {}
        return decoded if isinstance(decoded, dict) else {}


Answerer = Callable[[Received, bool], Awaitable[Answer | None]]
"""Asked twice for each request: once its head is there (True: only an `early` answer may come), and with its body."""


class Connection(asyncio.Protocol):
    """One client: reads requests one after the other, and does what the answers say."""

    count = 0

    def __init__(
        self,
        answerer: Answerer,
        received: Callable[[Received], None],
        finished: Callable[[Received], None],
        opened: Callable[[Connection], None],
    ) -> None:
        Connection.count += 1
        self.number = Connection.count
        self._answerer = answerer
        self._received = received
        self._finished = finished
        self._opened = opened
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._current: Received | None = None
        self.gone = asyncio.Event()

    # --- callbacks of the loop ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._opened(self)
        self._task = asyncio.ensure_future(self._serve())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._news.set()

    def eof_received(self) -> bool:
        self._hung_up()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._hung_up()

    def pause_writing(self) -> None:
        self._flowing.clear()

    def resume_writing(self) -> None:
        self._flowing.set()

    def _hung_up(self) -> None:
        if not self.gone.is_set():
            self.gone.set()
            self._flowing.set()
            self._news.set()
            current = self._current
            if current is not None and current.done_at is None:
                current.gone_at = time.monotonic()

    # --- requests -------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            while not self.gone.is_set():
                end = await self._find(b"\r\n\r\n")
                request = Received(bytes(self._take(end + 4)), time.monotonic(), self.number)
                self._current = request
                self._received(request)
                request.answer = await self._answerer(request, True)
                if request.answer is None:
                    await self._read_body(request)
                    request.answer = await self._answerer(request, False)
                assert request.answer is not None
                keep = await self._say(request, request.answer) and not request.answer.early
                self._finished(request)
                self._current = None
                if not keep:
                    break
        except EOFError:
            if self._current is not None:
                self._finished(self._current)
        finally:
            self.transport.close()

    async def _read_body(self, request: Received) -> None:
        if (request.header("expect") or "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in (request.header("transfer-encoding") or "").lower():
            wire, body = bytearray(), bytearray()
            while True:
                line = self._take(await self._find(b"\r\n") + 2)
                size = int(line.split(b";")[0], 16)
                data = await self._exactly(size + 2) if size else bytearray()
                wire += line + data
                body += data[:-2]
                if not size:
                    break
            while True:  # trailers
                line = self._take(await self._find(b"\r\n") + 2)
                wire += line
                if line == b"\r\n":
                    break
            request.wire, request.body = bytes(wire), bytes(body)
        else:
            request.wire = request.body = bytes(
                await self._exactly(int(request.header("content-length") or 0))
            )

    async def _find(self, mark: bytes) -> int:
        start = 0
        while (at := self._buffer.find(mark, start)) < 0:
            start = max(0, len(self._buffer) - len(mark))
            await self._more()
        return at

    async def _exactly(self, size: int) -> bytearray:
        while len(self._buffer) < size:
            await self._more()
        return self._take(size)

    def _take(self, size: int) -> bytearray:
        taken = self._buffer[:size]
        del self._buffer[:size]
        return taken

    async def _more(self) -> None:
        if self.gone.is_set():
            raise EOFError
        self._news.clear()
        await self._news.wait()

    # --- answers --------------------------------------------------------------------------------------

    async def _say(self, request: Received, answer: Answer) -> bool:
        """Send an answer; tells whether the connection may be used again."""
        if not await self._wait(answer.delay):
            return False
        while answer.after is not None and not answer.after.is_set():
            if not await self._wait(0.05):
                return False
        chunked = answer.framing is Framing.CHUNKED and not answer.raw
        parts = () if request.method == "HEAD" else answer.parts
        if not answer.raw:
            head = answer.head()
            if not chunked and parts and isinstance(parts[0], bytes):
                head, parts = head + parts[0], parts[1:]
            self.transport.write(head)
        for part in parts:
            if isinstance(part, bytes):
                await self._flowing.wait()
                self.transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked and part else part)
            elif not await self._act(part):
                return False
            if self.gone.is_set():
                return False
        if chunked:
            self.transport.write(b"0\r\n\r\n")
        request.done_at = time.monotonic()
        return answer.keep and not answer.raw and answer.framing is not Framing.CLOSE

    async def _act(self, act: float | Act) -> bool:
        if act is Act.RESET:
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
            return False
        if act is Act.CLOSE:
            return False
        return await self._wait(math.inf if isinstance(act, Act) else act)

    async def _wait(self, seconds: float) -> bool:
        """Pass time; False when the client hung up meanwhile."""
        if seconds <= 0:
            return not self.gone.is_set()
        try:
            await asyncio.wait_for(self.gone.wait(), None if seconds == math.inf else seconds)
        except TimeoutError:
            return True
        return False


def spread(data: bytes, sizes: Iterable[int], pause: float = 0.0) -> list[Part]:
    """The same bytes in pieces of these sizes (the last one repeats), with pauses between them."""
    parts: list[Part] = []
    sizes = iter(sizes)
    size = 1
    while data:
        size = next(sizes, size)
        parts += [data[:size]] + ([pause] if pause else [])
        data = data[size:]
    return parts
