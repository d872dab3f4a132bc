"""HTTP/1.1 as the fake provider and the load generator need it, cheap enough to share two cores with what is measured."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

END = b"\r\n\r\n"
LAST = b"0\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
WORDS = "One provider, one model, many small questions; the answer is always the same and says nothing. "


class Target(NamedTuple):
    """Where calls go.

    Attributes:
        host: Address.
        port: Port.
        path: Path of chat completions.
        token: What the client sends as its API key.
    """

    host: str
    port: int
    path: str
    token: str


Orders = Mapping[str, Any]


def target(raw: list[Any]) -> Target:
    """A target from a load generator's orders."""
    return Target(*raw)


def tell(value: Any) -> None:
    """One line for whoever gave the orders."""
    print(json.dumps(value), flush=True)


async def told() -> str:
    """Wait for a line of standard input, or for its end."""
    return await asyncio.to_thread(sys.stdin.readline)


def body(model: str, *, stream: bool = False, size: int = 1000) -> bytes:
    """A request for a chat completion, about `size` bytes long."""
    question = (WORDS * (size // len(WORDS) + 1))[: max(size - 200, 1)]
    wish: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": "Answer in one sentence."},
            {"role": "user", "content": question},
        ],
        "temperature": 0.7,
        "max_tokens": 256,
    }
    if stream:
        wish |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(wish, separators=(",", ":")).encode()


def request(target: Target, content: bytes, more: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a call, with the headers that a provider's SDK sends."""
    return post(target, target.path, content, more)


def post(target: Target, path: str, content: bytes, more: Mapping[str, str] | None = None) -> bytes:
    """The same to any path of the target."""
    headers = {
        "Host": f"{target.host}:{target.port}",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "OpenAI/Python",
        "Authorization": f"Bearer {target.token}",
        "x-stainless-retry-count": "0",
        **(more or {}),
        "Content-Length": str(len(content)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + content


_HEAD, _CHUNKED = -2, -1  # instead of the bytes of the body that are still to come


class Connection(asyncio.Protocol):
    """A client's keep-alive connection, one exchange at a time; override `head`, `data`, `end` and `lost`."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._left = _HEAD
        self._kept = b""
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.open = True

    def data_received(self, data: bytes) -> None:
        while self._left == _HEAD:
            if self._kept:
                data, self._kept = self._kept + data, b""
            at = data.find(END)
            if at < 0:
                self._kept = data
                return
            status = int(data[9:12])
            if status >= 200:  # the others are signs of life, without a body
                found = LENGTH.search(data, 0, at)
                self._left = int(found[1]) if found else _CHUNKED
                self.head(status, data[:at])
            data = data[at + 4 :]
        if data:
            self.data(data)
        if self._left >= 0:
            self._left -= len(data)
            if self._left > 0:
                return
        else:
            # Nothing that the fake provider says ends like a last chunk, so that reading sizes would be a waste.
            self._kept = self._kept[-7:] + data if len(data) < 7 else data[-7:]
            if not (self._kept.endswith(b"\r\n" + LAST) or self._kept == LAST):
                return
        self._left, self._kept = _HEAD, b""
        self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self.lost()

    def head(self, status: int, head: bytes) -> None:
        """The head of an answer is there."""

    def data(self, data: bytes) -> None:
        """Bytes of its body, with the framing of chunks when it is chunked."""

    def end(self) -> None:
        """The answer is complete."""

    def lost(self) -> None:
        """The connection is closed, by whomever."""


class Answer(NamedTuple):
    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name.encode():
                return value.strip().decode()
        return None


class Caller(Connection):
    """A connection for coroutines: `await call(…)`."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: asyncio.Future[Answer] | None = None
        self._status, self._top, self._parts = 0, b"", list[bytes]()

    async def call(self, content: bytes) -> Answer:
        """The answer to a request.

        Raises:
            ConnectionError: The connection ended before the answer did.
        """
        self._answer = asyncio.get_running_loop().create_future()
        self._parts = []
        self.transport.write(content)
        return await self._answer

    def head(self, status: int, head: bytes) -> None:
        self._status, self._top = status, head

    def data(self, data: bytes) -> None:
        self._parts.append(data)

    def end(self) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_result(Answer(self._status, self._top, b"".join(self._parts)))

    def lost(self) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("closed before the answer's end"))


async def caller(target: Target) -> Caller:
    """A new connection for coroutines."""
    _, made = await asyncio.get_running_loop().create_connection(Caller, target.host, target.port)
    return made


async def call_once(target: Target, content: bytes) -> Answer:
    """One call on a connection of its own."""
    connection = await caller(target)
    try:
        return await connection.call(content)
    finally:
        connection.transport.close()
