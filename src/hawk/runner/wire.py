"""What supervisor and zygote say to each other: length-prefixed JSON over a stream socket."""

from __future__ import annotations

import socket
import struct
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

ENUMERATE = "enumerate"
RUN = "run"


class ForkRequest(msgspec.Struct):
    """One worker to start. `environ` is complete: nothing is inherited from the zygote."""

    mode: str  # ENUMERATE or RUN
    run_dir: str
    index: int
    environ: dict[str, str]
    cwd: str


class Forked(msgspec.Struct):
    """The answer: the worker's pid, or why there is none."""

    pid: int = 0
    error: str = ""


def send(sock: socket.socket, message: Any) -> None:
    """Raises: OSError when the other side is gone."""
    data = msgspec.json.encode(message)
    sock.sendall(struct.pack("!I", len(data)) + data)


def receive(sock: socket.socket, type_: type[T]) -> T | None:
    """The next message, or None when the other side is gone."""
    head = _exactly(sock, 4)
    body = None if head is None else _exactly(sock, struct.unpack("!I", head)[0])
    return None if body is None else msgspec.json.decode(body, type=type_)


def _exactly(sock: socket.socket, n: int) -> bytes | None:
    chunks = bytearray()
    while len(chunks) < n:
        try:
            chunk = sock.recv(n - len(chunks))
        except ConnectionError:
            return None
        if not chunk:
            return None
        chunks += chunk
    return bytes(chunks)
