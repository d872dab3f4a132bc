"""The file format of a cassette: one exchange with a provider a line, readable, in the order in which they ended.

    {"v": 1, "at": "2026-…", "task": "t", "sample": "1", "attempt": "1", "provider": "openai",
     "path": "/v1/chat/completions", "request": {…canonical…}, "status": 200,
     "headers": [["content-type", "text/event-stream"]], "chunks": [{"t": 0.31, "s": "data: …"}], "complete": true}

Several processes may append to one file. A line that was cut by a kill or a full disk is passed over.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

VERSION = 1

KEPT = frozenset(
    {"content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id"}
)
KEPT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
"""Response headers that are recorded: those that clients act on. No cookie, no credential, no account."""


class Chunk(msgspec.Struct, omit_defaults=True):
    """A piece of a body, `t` seconds after the request was sent: text (`s`), or base64 where it is no UTF-8 (`b`)."""

    t: float = 0.0
    s: str | None = None
    b: str | None = None

    def data(self) -> bytes:
        """The bytes."""
        return self.s.encode() if self.s is not None else base64.b64decode(self.b or "")


class Identity(msgspec.Struct, frozen=True):
    """Whose request it is: the task, the sample's id and the number of the epoch, empty where they are unknown."""

    task: str = ""
    sample: str = ""
    attempt: str = ""

    def writable(self) -> Identity:
        """The same one, as JSON can hold it: names come out of headers, where any byte may be."""
        return Identity(writable(self.task), writable(self.sample), writable(self.attempt))


class Line(msgspec.Struct, kw_only=True):
    """One exchange.

    Attributes:
        path: Path and query at the provider, without credentials.
        request: Canonical form of the request's body.
        status: The provider's; 0 when it gave no answer.
        complete: The answer had its end; otherwise the connection was cut.
    """

    v: int = VERSION
    at: str = ""
    task: str = ""
    sample: str = ""
    attempt: str = ""
    provider: str = ""
    path: str
    request: Any
    status: int
    headers: list[tuple[str, str]] = []
    chunks: list[Chunk] = []
    complete: bool = True

    @property
    def identity(self) -> Identity:
        return Identity(self.task, self.sample, self.attempt)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


class Found(NamedTuple):
    """A line and where it is in the file."""

    offset: int
    length: int
    line: Line


def chunk_of(seconds: float, data: bytes) -> Chunk:
    """A piece of a body as it is written."""
    try:
        return Chunk(round(seconds, 6), s=data.decode())
    except UnicodeDecodeError:
        return Chunk(round(seconds, 6), b=base64.b64encode(data).decode())


def writable(text: str) -> str:
    """The text with a question mark for each half of a character."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def kept_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers that are recorded, their names in lower case."""
    lower = ((name.lower(), value) for name, value in headers)
    return [
        (name, writable(value)) for name, value in lower if name in KEPT or name.startswith(KEPT_PREFIXES)
    ]


def decoded(encoding: str, chunks: list[tuple[float, bytes]]) -> list[tuple[float, bytes]] | None:
    """The same chunks without gzip or deflate; None when they can't be read (then they stay as they are)."""
    if encoding in ("gzip", "x-gzip"):
        bits = [31]
    elif encoding == "deflate":
        bits = [15, -15]  # RFC 9110 means zlib's format; some servers send bare deflate
    else:
        return None
    for wbits in bits:
        with contextlib.suppress(zlib.error):
            return _unzipped(wbits, chunks)
    return None


def _unzipped(wbits: int, chunks: list[tuple[float, bytes]]) -> list[tuple[float, bytes]]:
    unzip = zlib.decompressobj(wbits)
    result = []
    for at, data in chunks:
        plain = unzip.decompress(data)
        while unzip.eof and unzip.unused_data:  # one member after the other is one body
            rest = unzip.unused_data
            unzip = zlib.decompressobj(wbits)
            plain += unzip.decompress(rest)
        if plain:
            result.append((at, plain))
    return result


def append(path: Path, line: Line) -> None:
    """Add a line in one piece, whoever else appends at the same time.

    Raises:
        OSError: It was not added: the disk is full, the directory gone. What was written of it is taken back.
    """
    data = _encoder.encode(line) + b"\n"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":  # a writer was killed in the middle of its line
            data = b"\n" + data
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def lines(path: Path) -> Iterator[Found]:
    """Every whole exchange of a cassette, in order.

    Raises:
        OSError: The file can't be read.
    """
    offset = 0
    with path.open("rb") as file:
        for raw in file:
            found = read(raw)
            if found is not None:
                yield Found(offset, len(raw), found)
            offset += len(raw)


def read(raw: bytes) -> Line | None:
    """The exchange in a line; None when there is none, or one of a later version."""
    try:
        line = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return line if line.v == VERSION else None
