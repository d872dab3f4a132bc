"""Frames: a header, which is JSON, and a body of plain bytes, with the length of both before them.

Whatever comes from the other side is hostile until it is read: lengths are bounded before anything is kept, and what
can't be a frame is a `ProtocolError`.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Protocol

import msgspec

from hawk.errors import ClusterError, HawkError

PROTOCOL = 1
"""Of the frames; sides of different ones do not talk."""

MOST_HEADER = 256 * 1024
MOST_BODY = 1024 * 1024
MOST_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer, which comes in as many frames as it needs."""

_LENGTHS = struct.Struct(">4sII")
_MAGIC = b"HwkL"


class ProtocolError(HawkError):
    """The other side of a link sent what it may not. The link ends."""

    http_status = 400
    title = "Link"


class LinkLost(HawkError):  # noqa: N818  # no fault of anybody's: it is made again
    """The other side went away, or says nothing any more."""

    http_status = 503
    title = "Link"


class Known(msgspec.Struct, array_like=True, frozen=True):
    """A file as one side has it.

    Attributes:
        mtime: As the writer's file has it, in nanoseconds.
        check: CRC of the last bytes (`rules.TAIL_CHECKED`) of a file that grows.
        lines: Of the journal: digests of its last lines, oldest first.
    """

    path: str
    size: int
    mtime: int
    check: int = 0
    lines: tuple[str, ...] = ()


class Hello(msgspec.Struct, tag="hello"):
    """The pod's first word.

    Attributes:
        empty: It has no run directory yet, and wants all of it.
        shared: Its run directory is the server's own: no file is carried.
        spans: The middleman beside it writes the spans of the job there.
    """

    protocol: int
    version: str
    job: str
    generation: int
    token: str
    empty: bool = False
    shared: bool = False
    spans: bool = False


class Welcome(msgspec.Struct, tag="welcome"):
    """The server's answer."""

    protocol: int
    version: str


class Refused(msgspec.Struct, tag="refused"):
    """Instead of it. `final`: to ask again is of no use."""

    reason: str
    final: bool = False


class Have(msgspec.Struct, tag="have"):
    """Files that the sender has; `more` of these frames follow."""

    files: list[Known]
    more: bool = False


class File(msgspec.Struct, tag="file", omit_defaults=True):
    """A part of a file that takes the place of what is there, from `offset` on; the last one makes it count.

    Attributes:
        keep: So many bytes at the beginning are those of the file that is there, which has `base` (size, mtime).
        digest: Of all parts together, with the last one.
        durable: It must survive a power cut once it is acknowledged.
    """

    seq: int
    path: str
    size: int
    mtime: int
    offset: int = 0
    keep: int = 0
    base: tuple[int, int] | None = None
    digest: str | None = None
    durable: bool = False


class Tail(msgspec.Struct, tag="tail"):
    """What a file that only grows has from `offset` on."""

    seq: int
    path: str
    offset: int
    mtime: int


class Lines(msgspec.Struct, tag="lines"):
    """Whole lines of the journal, which both sides write: they are added to it."""

    seq: int
    path: str


class Remove(msgspec.Struct, tag="remove"):
    """The file is gone."""

    seq: int
    path: str


class Ack(msgspec.Struct, tag="ack"):
    """Everything up to this number is in its place."""

    seq: int


class Ready(msgspec.Struct, tag="ready"):
    """Everything that the pod needs to begin has been sent, and acknowledged."""


class Held(msgspec.Struct, tag="held"):
    """Locks that processes beside the pod's side hold now: path to pid."""

    locks: dict[str, int]


class Ask(msgspec.Struct, tag="ask"):
    """A question. `what`: `stacks`."""

    id: int
    what: str
    native: bool = False


class Answer(msgspec.Struct, tag="answer"):
    """A part of the answer to one, in the body; `known` False: nobody is there to answer."""

    id: int
    known: bool
    more: bool = False


class Bye(msgspec.Struct, tag="bye"):
    """Of the pod: the job has ended and everything is sent. Of the server: everything is in its place."""

    reason: str = ""


class Beat(msgspec.Struct, tag="beat"):
    """Still there."""


Header = (
    Hello
    | Welcome
    | Refused
    | Have
    | File
    | Tail
    | Lines
    | Remove
    | Ack
    | Ready
    | Held
    | Ask
    | Answer
    | Bye
    | Beat
)
DATA = (File, Tail, Lines, Remove)
"""Frames that are acknowledged."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Header)


class Frame(NamedTuple):
    """A header and its body."""

    header: Header
    body: bytes = b""


class ByteStream(Protocol):
    """A connection, whatever it runs on."""

    async def read(self) -> bytes:
        """Some bytes; none at the end. Raises: OSError, ClusterError, LinkLost."""

    async def write(self, data: bytes) -> None:
        """Returns when the other side keeps up. Raises: OSError, ClusterError, LinkLost."""

    async def close(self) -> None: ...


def encode(frame: Frame) -> bytes:
    """A frame as bytes."""
    header = _encoder.encode(frame.header)
    assert len(header) <= MOST_HEADER, "a header is never that long"
    assert len(frame.body) <= MOST_BODY, "a body is never that long"
    return _LENGTHS.pack(_MAGIC, len(header), len(frame.body)) + header + frame.body


class FrameReader:
    """Takes frames out of a stream."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def read(self) -> Frame | None:
        """The next one; None where the stream ends between two.

        Raises:
            ProtocolError: It is none, or ends in the middle of one.
            LinkLost: The stream broke.
        """
        while (frame := self.taken()) is None:
            try:
                data = await self._stream.read()
            except (OSError, ClusterError) as ex:
                raise LinkLost(f"the connection broke: {ex}") from ex
            if not data:
                if self._buffer:
                    raise ProtocolError("the connection ended in the middle of a frame")
                return None
            self._buffer += data
        return frame

    def taken(self) -> Frame | None:
        """The next one that has come already. Raises: ProtocolError."""
        if len(self._buffer) < _LENGTHS.size:
            if not _MAGIC.startswith(bytes(self._buffer[:4])):
                raise ProtocolError("what came is no frame")
            return None
        magic, header, body = _LENGTHS.unpack_from(self._buffer)
        if magic != _MAGIC:
            raise ProtocolError("what came is no frame")
        if header > MOST_HEADER or body > MOST_BODY:
            raise ProtocolError(f"a frame of {header:,} + {body:,} bytes is too large")
        end = _LENGTHS.size + header + body
        if len(self._buffer) < end:
            return None
        text = bytes(self._buffer[_LENGTHS.size : _LENGTHS.size + header])
        content = bytes(self._buffer[_LENGTHS.size + header : end])
        del self._buffer[:end]
        return Frame(_header(text), content)


def _header(text: bytes) -> Header:
    try:
        found: Header = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as ex:
        raise ProtocolError(f"a frame's header is not valid: {str(ex)[:200]}") from ex
    return found
