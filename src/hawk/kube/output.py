"""What a command has written so far, and how it ended as soon as that is known."""

from __future__ import annotations

from dataclasses import dataclass

from hawk.kube import command as wrapping
from hawk.kube.problems import Reason, error
from hawk.kube.sockets import Channels, Outcome

_PART = 1 << 16  # bytes
_TRAILER = 512  # bytes in which the wrapper's last words fit


@dataclass(frozen=True)
class Done:
    """How a command ended.

    Attributes:
        code: Exit code; 128 + n after signal n.
        stdout, stderr: Its output, the last part where it was longer than the limit.
        truncated: Whether it was.
        note: Why it did not start (`cwd`, `env`, `user`, `single`); after SIGKILL `oom N`, how often the container's
            memory limit has killed so far.
    """

    code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    note: str = ""


class Collected:
    """The output so far, and how the command ended as soon as that is known."""

    def __init__(self, mark: str, limit: int) -> None:
        self.outcome: Outcome | None = None
        self.trailer: tuple[int, str] | None = None
        self._mark = mark
        self._streams = {Channels.STDOUT: Last(limit), Channels.STDERR: Last(limit + _TRAILER)}
        self._window = b""
        self._limit = limit

    @property
    def ended(self) -> bool:
        """Whether the command itself is over."""
        return self.trailer is not None

    def add(self, channel: int, data: bytes) -> None:
        if channel not in self._streams:
            return
        self._streams[channel].add(data)
        if channel == Channels.STDERR and self.trailer is None:
            self._window += data
            found = wrapping.trailer(self._mark, self._window)
            if found is not None:
                self.trailer = found[0], found[1]
            self._window = self._window[-_TRAILER:]

    def output(self) -> tuple[bytes, bytes]:
        stderr = self._streams[Channels.STDERR].join()
        found = wrapping.trailer(self._mark, stderr)
        if found is not None:
            stderr = stderr[: found[2]] + stderr[found[3] :]
        return self._streams[Channels.STDOUT].join(), stderr[-self._limit :] if self._limit else b""

    def done(self) -> Done:
        """The result.

        Raises:
            ClusterError: The command did not run, by what the API says.
        """
        stdout, stderr = self.output()
        truncated = any(stream.cut for stream in self._streams.values())
        if self.trailer is not None:
            return Done(self.trailer[0], stdout, stderr, truncated, self.trailer[1])
        assert self.outcome is not None
        if self.outcome.code is None:
            raise error(
                Reason.EXEC,
                f"The command could not be run: {self.outcome.message}",
                said=self.outcome.message,
            )
        # the wrapper was killed before it could say anything
        return Done(self.outcome.code, stdout, stderr, truncated, "cut")


class Last:
    """The last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._parts: list[bytes] = []
        self.cut = False

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > 2 * self._limit + _PART:
            self.join()

    def join(self) -> bytes:
        whole = b"".join(self._parts)
        if len(whole) > self._limit:
            self.cut = True
            whole = whole[len(whole) - self._limit :]
        self._parts, self._size = [whole], len(whole)
        return whole
