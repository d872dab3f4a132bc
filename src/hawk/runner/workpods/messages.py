"""What a stand-in and its worker's pod say to each other: a JSON document a line. And the streams between them, by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from hawk.link.frames import ByteStream, ProtocolError

T = TypeVar("T")

LONGEST = 4 * 1024 * 1024
"""Bytes of one message: variables of an environment may be long."""


class Stream(StrEnum):
    """What a stream between the two is for."""

    ORDERS = "orders"
    FILES = "files"
    BUFFERS = "buffers"
    CONTROL = "control"  # to the worker's control socket
    RECORDER = "recorder"  # to its recorder's
    STACKS = "stacks"  # its stacks, taken from outside too
    MODELS = "models"  # from the pod: to the job's middleman


class Begin(msgspec.Struct, tag="begin"):
    """To the pod: run the worker.

    Attributes:
        environ: The worker's variables, secrets among them, without those that say where things are.
        cwd: Its directory.
        middleman: Address of a middleman that only the supervisor's pod reaches; None: the worker reaches its models itself.
    """

    environ: dict[str, str]
    cwd: str
    middleman: str | None = None


class Signal(msgspec.Struct, tag="signal"):
    """To the pod: signal the worker. `name`: `SIGINT`, `SIGTERM`."""

    name: str


class Done(msgspec.Struct, tag="done"):
    """To the pod: everything has come; it may go."""


class Phase(StrEnum):
    """How far a worker's pod is."""

    NEW = "new"  # it has no files yet, or was not told to begin
    PREPARING = "preparing"
    RUNNING = "running"
    ENDED = "ended"


class State(msgspec.Struct, tag="state"):
    """Of the pod, whenever it changes.

    Attributes:
        pid: Of the worker, in its pod.
        answers: Its control socket is there.
        code: How it ended: an exit code, or minus a signal's number.
        reason: Why, where it can't say so itself.
        settled: Every file that it has written was sent.
    """

    phase: Phase = Phase.NEW
    version: str = ""
    pid: int = 0
    answers: bool = False
    code: int | None = None
    reason: str = ""
    remedy: str = ""
    settled: bool = False


class Question(msgspec.Struct):
    """On a stream for stacks."""

    why: str
    native: bool = False


class Rows(msgspec.Struct):
    """On the stream for buffers: what is new in one of them.

    Attributes:
        buffer: `<directory>/<file>` below the directory of buffers.
        samples: Rows that are new or have changed (id, epoch, data); `left`: keys of those that are not there any more.
        events: New rows (id, event id, sample id, epoch, data).
        gone: It is not there any more.
    """

    buffer: str
    samples: list[tuple[str, int, str]] = []
    left: list[tuple[str, int]] = []
    events: list[tuple[int, str, str, int, str]] = []
    gone: bool = False


Order = Begin | Signal | Done

TOLD_TO_END = "its pod was told to end"
"""The reason of a worker that was ended with its pod; only the cluster knows why that was."""


async def say(stream: ByteStream, message: Any) -> None:
    """Raises: LinkLost."""
    await stream.write(msgspec.json.encode(message) + b"\n")


async def heard(stream: ByteStream, type_: type[T] | Any, longest: int = LONGEST) -> AsyncIterator[T]:
    """Every message until the stream ends.

    Raises:
        LinkLost: The connection broke.
        ProtocolError: What came is none.
    """
    decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type_)
    buffer = bytearray()
    while data := await stream.read():
        buffer += data
        *lines, rest = buffer.split(b"\n")
        buffer = bytearray(rest)
        if len(buffer) > longest:
            raise ProtocolError("a message is too long")
        for line in lines:
            try:
                yield decoder.decode(bytes(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as ex:
                raise ProtocolError(f"what came is no such message: {str(ex)[:200]}") from ex
