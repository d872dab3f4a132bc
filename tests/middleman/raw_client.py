"""A client that sends any bytes and keeps all that it gets: no HTTP library between a test and the wire."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tests.middleman.provider_raw import Headers


@dataclass
class Reply:
    """An answer as it came.

    Attributes:
        body: Without framing.
        wire: The body verbatim.
        complete: It had its end; otherwise the connection was cut before.
        interim: Status lines of 1xx answers before it.
        chunks: Sizes of its chunks.
    """

    status: int
    version: str
    headers: Headers
    body: bytes
    wire: bytes
    complete: bool
    interim: list[bytes]
    chunks: list[int]

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers if k == name), None)

    def all(self, name: str) -> list[str]:
        return [v for k, v in self.headers if k == name]

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error_type(self) -> str | None:
        """`error.type`, as each dialect has it."""
        try:
            return str(self.json()["error"]["type"])
        except (msgspec.DecodeError, KeyError, TypeError):
            return None


class Wire:
    """One connection."""

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self.host = f"{parts.hostname}:{parts.port}"
        self.socket = socket.create_connection((parts.hostname, parts.port or 80), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self.closed = False

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> float:
        """Hang up; returns when."""
        self.socket.close()
        return time.monotonic()

    def fill(self) -> bool:
        """Read what there is; False at the end of the connection."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        self._buffer += data
        self.closed = self.closed or not data
        return bool(data)

    def read_until(self, mark: bytes) -> bytes:
        """Everything up to a mark, with it."""
        while (at := self._buffer.find(mark)) < 0:
            if not self.fill():
                raise EOFError(bytes(self._buffer))
        return self._take(at + len(mark))

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        while self.fill():
            pass
        return self._take(len(self._buffer))

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def reply(self, method: str = "POST") -> Reply:
        """Read one answer."""
        interim: list[bytes] = []
        while True:
            head = self.read_until(b"\r\n\r\n")
            first, *fields = head[:-4].decode("latin-1").split("\r\n")
            version, status = first.split(" ")[:2]
            if not status.startswith("1"):
                break
            interim.append(first.encode())
        headers = [(k.lower(), v.strip()) for k, _, v in (field.partition(":") for field in fields)]
        reply = Reply(int(status), version, headers, b"", b"", True, interim, [])
        if method == "HEAD" or status in ("204", "304"):
            return reply
        self._read_body(reply)
        return reply

    def _read_body(self, reply: Reply) -> None:
        if reply.header("transfer-encoding") == "chunked":
            body, wire = bytearray(), bytearray()
            try:
                while True:
                    line = self.read_until(b"\r\n")
                    wire += line
                    size = int(line.split(b";")[0], 16)
                    data = self._exactly(size + 2)
                    wire += data
                    body += data[:-2]
                    reply.chunks.append(size)
                    if not size:
                        break
            except EOFError:
                reply.complete = False
            reply.body, reply.wire = bytes(body), bytes(wire)
        elif (length := reply.header("content-length")) is not None:
            try:
                reply.body = reply.wire = self._exactly(int(length))
            except EOFError:
                reply.body = reply.wire = self._take(len(self._buffer))
                reply.complete = False
        else:
            reply.body = reply.wire = self.rest()

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not self.fill():
                raise EOFError
        return self._take(size)


@contextmanager
def wire(url: str, timeout: float = 30.0) -> Iterator[Wire]:
    """A connection for the duration of a block."""
    connection = Wire(url, timeout)
    try:
        yield connection
    finally:
        connection.close()


def request_bytes(
    method: str,
    target: str,
    headers: Headers,
    body: bytes = b"",
    *,
    host: str = "hawk",
    version: str = "HTTP/1.1",
    length: bool = True,
) -> bytes:
    """A request as it goes over the wire; header names and order as given."""
    lines = [f"{method} {target} {version}", f"Host: {host}", *(f"{k}: {v}" for k, v in headers)]
    if length and (body or method in ("POST", "PUT", "PATCH")):
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def ask(
    url: str,
    target: str,
    token: str | None,
    body: Any = None,
    *,
    method: str | None = None,
    headers: Headers | None = None,
    timeout: float = 30.0,
    version: str = "HTTP/1.1",
) -> Reply:
    """One request over a connection of its own.

    Args:
        body: Bytes as they are; anything else as JSON.
        token: Goes into `Authorization`, unless None.
    """
    data = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    method = method or ("POST" if body is not None else "GET")
    fields: Headers = [] if token is None else [("Authorization", f"Bearer {token}")]
    if body is not None and not isinstance(body, bytes):
        fields.append(("Content-Type", "application/json"))
    with wire(url, timeout) as connection:
        connection.send(request_bytes(method, target, [*fields, *(headers or [])], data, version=version))
        return connection.reply(method)
