"""One connection of a link, from the greeting to its end: files both ways, questions, and who still lives.

Both sides run the same: a loop that reads and applies, and a loop that looks for changes and sends them. What is small and
urgent goes between the parts of what is large; no more is on its way than the other side has time to put in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

from hawk.errors import ClusterError, HawkError
from hawk.link import copies, rules
from hawk.link.apply import Applier
from hawk.link.changes import Scanner
from hawk.link.frames import (
    DATA,
    MOST_ANSWER,
    MOST_BODY,
    Ack,
    Answer,
    Ask,
    Beat,
    Bye,
    ByteStream,
    Frame,
    FrameReader,
    Have,
    Header,
    Held,
    Known,
    LinkLost,
    ProtocolError,
    Ready,
    encode,
)
from hawk.link.outbox import Outbox

T = TypeVar("T")

BEAT = 5.0
"""Seconds without a word after which one is said."""

SILENCE = 40.0
"""Seconds of silence after which the other side counts as gone: its node may be, without a last packet."""

WINDOW = 8 * 1024 * 1024
"""Bytes that may be on their way without being acknowledged."""

BATCH = 512 * 1024
"""Bytes that are read from files, or applied, between two looks at what else there is to do."""

MOST_KNOWN = 1_000_000


class Connection:
    """A stream of bytes as one of frames."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._reader = FrameReader(stream)
        self._lock = asyncio.Lock()
        self.heard = self.said = time.monotonic()

    async def send(self, *frames: Frame) -> None:
        """Raises: LinkLost."""
        data = b"".join(map(encode, frames))
        try:
            async with self._lock:
                await self._stream.write(data)
        except (OSError, ClusterError) as ex:
            raise LinkLost(f"the connection broke: {ex}") from ex
        self.said = time.monotonic()

    async def read(self) -> Frame:
        """The next frame.

        Raises:
            LinkLost: The other side ended the connection, or is silent for too long.
            ProtocolError: What came is none.
        """
        try:
            async with asyncio.timeout(SILENCE):
                frame = await self._reader.read()
        except TimeoutError as ex:
            raise LinkLost(f"the other side said nothing for {SILENCE:.0f} s") from ex
        if frame is None:
            raise LinkLost("the other side ended the connection")
        self.heard = time.monotonic()
        return frame

    def taken(self) -> Frame | None:
        """The next frame, where it has come already. Raises: ProtocolError."""
        return self._reader.taken()

    async def close(self) -> None:
        with contextlib.suppress(OSError, HawkError, asyncio.TimeoutError):
            async with asyncio.timeout(5):
                await self._stream.close()


class Session:
    """What runs on a connection once both sides have greeted each other.

    Args:
        threads: Where files are read and written; None: the loop's own.
        period: Seconds between looks for changes.
        answer: Answers a question of the other side; None: nobody is there.
        heed: Is told every frame that is not the session's own business (`Ready`, `Held`, `Bye`).

    Attributes:
        applier: Takes what comes; None: nothing may.
        outbox: Has what goes; None: nothing does.
        skips: Whether a frame is only acknowledged.
        ended: Nothing is carried any more.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        threads: Executor | None = None,
        period: float = 0.5,
        answer: Callable[[Ask], Awaitable[bytes | None]] | None = None,
        heed: Callable[[Header], None] | None = None,
    ) -> None:
        self._connection, self._threads, self._period = connection, threads, period
        self._answer, self._heed = answer, heed
        self.applier: Applier | None = None
        self.outbox: Outbox | None = None
        self.skips: Callable[[Header], bool] = lambda _: False
        self.ended = asyncio.Event()
        self._files = threading.Lock()  # of the outbox: both loops use it
        self._applying = threading.Lock()
        self._urgent: deque[Frame] = deque()
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._unacknowledged: deque[tuple[int, int]] = deque()
        self._on_way = 0
        self._draining = False
        self._ids = itertools.count(1)
        self._asked: dict[int, tuple[asyncio.Future[bytes | None], bytearray]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Carry until the connection ends.

        Raises:
            LinkLost: It broke.
            ProtocolError: The other side did what it may not.
            StorageError: A file can't be written here.
        """
        loops = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.ended.set()
            for task in (*loops, *self._answering):
                task.cancel()
            await asyncio.gather(*loops, *self._answering, return_exceptions=True)
            for future, _ in self._asked.values():
                if not future.done():
                    future.set_result(None)
            await self._connection.close()
            await self._in_thread(self._let_go)

    def say(self, header: Header, body: bytes = b"") -> None:
        """Send a frame before everything that waits."""
        self._urgent.append(Frame(header, body))
        self._wake.set()

    async def ask(self, what: str, *, native: bool = False) -> bytes | None:
        """Ask the other side; None: nobody there can answer, or the connection ends before."""
        number = next(self._ids)
        future: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = future, bytearray()
        self.say(Ask(number, what, native))
        try:
            return await future
        finally:
            self._asked.pop(number, None)

    async def drained(self) -> None:
        """Return when everything that there is to send has been acknowledged."""
        self._draining = True
        self._drained.clear()
        self._wake.set()
        try:
            await self._drained.wait()
        finally:
            self._draining = False

    # --- reading --------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            frame: Frame | None = await self._connection.read()
            batch: list[Frame] = []
            size = 0
            while frame is not None and isinstance(frame.header, DATA):
                batch.append(frame)
                size += len(frame.body)
                frame = self._connection.taken() if size < BATCH else None
            if batch:
                await self._in_thread(self._apply, batch)
                last = batch[-1].header
                assert isinstance(last, DATA)
                self.say(Ack(last.seq))
            if frame is not None:
                self._take(frame)

    def _apply(self, frames: list[Frame]) -> None:
        if self.applier is None:
            raise ProtocolError("the other side may not send files now")
        for frame in frames:
            assert isinstance(frame.header, DATA)
            with self._applying:
                if self.ended.is_set():
                    return  # the next connection goes by what is there now
                if self.skips(frame.header) or not self.applier.apply(frame):
                    continue
            with self._files:
                if self.outbox is not None:
                    self.outbox.received(frame.header.path)

    def _take(self, frame: Frame) -> None:
        match frame.header:
            case Ack(seq=seq):
                self._acknowledged(seq)
            case Ask() as asked:
                if len(self._answering) >= 16:
                    raise ProtocolError("too many questions at once")
                task = asyncio.create_task(self._reply(asked))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case Answer() as answer:
                self._answered(answer, frame.body)
            case Beat():
                pass
            case Ready() | Held() | Bye() as other:
                if self._heed is not None:
                    self._heed(other)
            case _:
                raise ProtocolError(f"{type(frame.header).__name__} is not expected now")

    def _acknowledged(self, seq: int) -> None:
        while self._unacknowledged and self._unacknowledged[0][0] <= seq:
            self._on_way -= self._unacknowledged.popleft()[1]
        self._wake.set()

    async def _reply(self, asked: Ask) -> None:
        found = await self._answer(asked) if self._answer is not None else None
        if found is None or len(found) > MOST_ANSWER:
            self.say(Answer(asked.id, False))
            return
        for at in range(0, max(len(found), 1), MOST_BODY):
            part = found[at : at + MOST_BODY]
            self.say(Answer(asked.id, True, more=at + MOST_BODY < len(found)), part)

    def _answered(self, answer: Answer, body: bytes) -> None:
        future, parts = self._asked.get(answer.id, (None, bytearray()))
        if future is None or future.done():
            return
        parts += body
        if len(parts) > MOST_ANSWER:
            raise ProtocolError("an answer is too long")
        if not answer.known:
            future.set_result(None)
        elif not answer.more:
            future.set_result(bytes(parts))

    # --- writing --------------------------------------------------------------------------------------

    async def _write(self) -> None:
        next_look = 0.0
        while True:
            self._wake.clear()
            await self._send_urgent()
            now = time.monotonic()
            if self.outbox is not None and (now >= next_look or self._draining):
                await self._look(self.outbox)
                next_look = time.monotonic() + self._period
            while self.outbox is not None and self.outbox.pending and self._on_way < WINDOW:
                frames = await self._in_thread(self._collect, self.outbox)
                if not frames:
                    break
                self._count(frames)
                await self._connection.send(*frames)
                await self._send_urgent()
            if self._draining and self._is_settled():
                self._drained.set()
            if time.monotonic() - self._connection.said > BEAT:
                await self._connection.send(Frame(Beat()))
            wait = min(BEAT / 2, max(0.0, next_look - time.monotonic()) if self.outbox is not None else BEAT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def _is_settled(self) -> bool:
        return not self._on_way and (self.outbox is None or self.outbox.settled)

    async def _look(self, outbox: Outbox) -> None:
        def look() -> None:
            with self._files:
                outbox.look(everything=self._draining)

        try:
            await self._in_thread(look)
        except FileNotFoundError as ex:
            raise LinkLost("the run directory is gone") from ex

    async def _send_urgent(self) -> None:
        while self._urgent:
            frames = [self._urgent.popleft() for _ in range(min(len(self._urgent), 16))]
            await self._connection.send(*frames)

    def _collect(self, outbox: Outbox) -> list[Frame]:
        frames: list[Frame] = []
        size = 0
        with self._files:
            while size < BATCH and (frame := outbox.take()) is not None:
                size += len(frame.body) + 256
                frames.append(frame)
        return frames

    def _count(self, frames: list[Frame]) -> None:
        for frame in frames:
            assert isinstance(frame.header, DATA)
            length = len(frame.body) + 256
            self._unacknowledged.append((frame.header.seq, length))
            self._on_way += length

    # --- help -----------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def _let_go(self) -> None:
        with self._applying, self._files:
            if self.applier is not None:
                self.applier.close()
            if self.outbox is not None:
                self.outbox.close()


async def exchange_lists(
    connection: Connection, root: Path, threads: Executor | None, wanted: Callable[[str], bool]
) -> list[Known]:
    """Tell the other side which files are here, and hear which are there.

    Raises:
        LinkLost, ProtocolError: See `Connection.read`.
    """
    send = asyncio.create_task(_tell(connection, root, threads, wanted))
    try:
        theirs: list[Known] = []
        while True:
            frame = await connection.read()
            if not isinstance(frame.header, Have):
                raise ProtocolError("a list of files was expected")
            for known in frame.header.files:
                rules.check_path(known.path)
            theirs += frame.header.files
            if len(theirs) > MOST_KNOWN:
                raise ProtocolError("there are too many files")
            if not frame.header.more:
                break
        await send
        return theirs
    finally:
        send.cancel()
        await asyncio.gather(send, return_exceptions=True)


async def _tell(
    connection: Connection, root: Path, threads: Executor | None, wanted: Callable[[str], bool]
) -> None:
    loop = asyncio.get_running_loop()
    frames: Iterable[Have] = await loop.run_in_executor(threads, _listed, root, wanted)
    for frame in frames:
        await connection.send(Frame(frame))


def _listed(root: Path, wanted: Callable[[str], bool]) -> list[Have]:
    scanner = Scanner(root, lambda path: rules.carried(path) and wanted(path))
    scanner.look()
    return list(copies.have(root, sorted(scanner.stamps().items())))
