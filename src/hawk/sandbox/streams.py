"""A command's standard streams at the worker's end: fed, collected and drained without a thread."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os

_PIECE = 1 << 20
_PAUSE = 0.01  # seconds between pieces of output that nobody will see: a flood must not fill the event loop


class Output:
    """Collects the last `limit` bytes of a pipe, and goes on reading for as long as anybody writes.

    A process that a command left in the background may go on writing to the command's output: were nobody to read,
    it would hang or die of a broken pipe.
    """

    def __init__(self, fd: int, limit: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0
        self._wanted = True
        self._wide = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.truncated = False
        self.ended = self._loop.create_future()
        self._loop.add_reader(fd, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        if self._wanted:
            self._keep(data)
        if self.truncated or not self._wanted:
            self._widen()
            self._loop.remove_reader(self._fd)
            self._timer = self._loop.call_later(_PAUSE, self._again)

    def _widen(self) -> None:
        """Let the pipe hold what a writer has to say during a pause, so that its command takes no longer for it."""
        if not self._wide:
            self._wide = True
            with contextlib.suppress(OSError):  # this user's pipes hold enough already
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIECE)

    def _again(self) -> None:
        self._timer = None
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._readable)

    def _keep(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        while self._size - len(self._chunks[0]) >= self._limit:
            self._size -= len(self._chunks.pop(0))
            self.truncated = True

    def take(self) -> bytes:
        """What was written so far, its last `limit` bytes; later output is read and dropped."""
        while self._fd >= 0 and self._wanted:
            try:
                data = os.read(self._fd, _PIECE)
            except OSError:
                break
            if not data:
                self.close()
                break
            self._keep(data)
            if self.truncated:
                break  # a background process that floods would keep us here
        self._wanted = False
        result = b"".join(self._chunks)
        self._chunks.clear()
        if len(result) > self._limit:
            self.truncated = True
            result = result[-self._limit :]
        return result

    def close(self) -> None:
        if self._fd < 0:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        if not self.ended.done():
            self.ended.set_result(None)


class Input:
    """Feeds bytes to a pipe as its reader takes them."""

    def __init__(self, fd: int, data: bytes) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._rest = memoryview(data)
        self._loop = asyncio.get_running_loop()
        if data:
            self._loop.add_writer(fd, self._writable)
        else:
            self.close()

    def _writable(self) -> None:
        try:
            self._rest = self._rest[os.write(self._fd, self._rest[: 1 << 20]) :]
        except BlockingIOError:
            return
        except OSError:  # the command does not want it
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1
