"""Commands in pods, by WebSocket: with a deadline on our side, input, output, and an end that is noticed.

The API has several ways not to end: a background process holds the streams, a node is gone, a proxy forgets the
connection. So a command is over when the wrapper around it says so (`hawk.kube.command`) or when its deadline passes;
then, and when its caller is cancelled, what it started is killed by a second command.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shlex
import time
from collections.abc import AsyncIterable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from hawk.errors import ClusterError
from hawk.kube import command as wrapping
from hawk.kube.kinds import path_of
from hawk.kube.output import Collected, Done
from hawk.kube.problems import Reason, error, reason_of
from hawk.kube.sockets import Channels, Outcome, dial

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

__all__ = ["LIMIT", "OPENING", "ByteStream", "Done", "ExecTimeoutError", "open_stream", "run"]

LIMIT = 10 << 20
"""Bytes of each output stream that are kept; the last ones."""

OPENING = 20.0
"""Seconds in which a stream must be open."""

_LONGEST_ADDRESS = 200_000  # characters of a command in an address; API servers take a megabyte, proxies less
_SILENCE = 1.0  # seconds for which the streams may stay open, silent, when the command has ended
_KILLING = 10.0
_PART = 1 << 16  # bytes of input in one message


class ExecTimeoutError(TimeoutError):
    """The deadline passed; the command was killed. Holds what it had written."""

    def __init__(self, seconds: float, stdout: bytes, stderr: bytes) -> None:
        super().__init__(f"The command took longer than {seconds:g} seconds and was ended.")
        self.stdout, self.stderr = stdout, stderr


async def run(
    cluster: Cluster,
    pod: str,
    command: Sequence[str],
    *,
    container: str | None = None,
    stdin: bytes | AsyncIterable[bytes] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109  # it kills what it times out, which a caller can't
    limit: int = LIMIT,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    namespace: str | None = None,
    patience: float = OPENING,
) -> Done:
    """Run a command in a container that has a POSIX shell.

    Args:
        timeout: Seconds; then it and everything it started are killed.
        limit: Bytes of each output stream that are kept.
        cwd, env, user: Where, with which variables and as whom; the container's own when left out. Another user needs
            root in the container.
        patience: Seconds for which an API that is away or busy is tried again: the command has not begun then.

    Raises:
        ExecTimeoutError: It took too long.
        ClusterError: It could not be started, or the connection was lost while it ran (`reason`: exec; it is not known
            then what it did). Whether the pod is to blame is for the caller to see.
    """
    where = _Where(cluster, pod, container, namespace or cluster.namespace, patience)
    mark = wrapping.new_mark()
    words = list(command)
    if stdin is not None and not isinstance(stdin, bytes) and not cluster.stdin_closes:
        stdin = b"".join([part async for part in stdin])
    source = stdin or None
    if len(quote_plus(" ".join(words))) > _LONGEST_ADDRESS:
        words, source = await _shortened(where, words, source, user, mark)
    count = len(source) if isinstance(source, bytes) and not cluster.stdin_closes else None
    argv = wrapping.wrapped(words, mark, cwd=cwd, env=env, user=user, stdin_bytes=count)
    collected = Collected(mark, limit)
    try:
        async with asyncio.timeout(timeout):
            async with await _open(where, argv, stdin=source is not None) as channels:
                await _exchange(channels, source, collected)
    except TimeoutError:
        await _kill(where, mark, user)
        raise ExecTimeoutError(timeout or 0, *collected.output()) from None
    except ClusterError as ex:
        if ex.fields.get("started"):
            _behind(_kill(where, mark, user))
        raise
    except BaseException:  # cancelled, or its input's source failed
        _behind(_kill(where, mark, user))
        raise
    return collected.done()


async def open_stream(
    cluster: Cluster,
    pod: str,
    command: Sequence[str],
    *,
    container: str | None = None,
    namespace: str | None = None,
    stdin: bool = True,
) -> ByteStream:
    """Start a command, as it is, and join its input and output.

    Args:
        stdin: Whether it has an input.

    Raises:
        ClusterError: It could not be started.
    """
    where = _Where(cluster, pod, container, namespace or cluster.namespace)
    return ByteStream(await _open(where, list(command), stdin=stdin))


class ByteStream:
    """Input and output of a command that lives long.

    Attributes:
        stderr: The last bytes that it wrote there.
        outcome: How it ended; None while it runs.
    """

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self.stderr = b""
        self.outcome: Outcome | None = None

    async def read(self) -> bytes:
        """The next bytes; empty at the end.

        Raises:
            ClusterError: The connection was lost.
        """
        while self.outcome is None:
            message = await self._channels.receive()
            if isinstance(message, Outcome):
                self.outcome = message
            elif message[0] == Channels.STDOUT and message[1]:
                return bytes(message[1])
            elif message[0] == Channels.STDERR:
                self.stderr = (self.stderr + message[1])[-4096:]
        return b""

    async def write(self, data: bytes) -> None:
        """Send bytes to its input.

        Raises:
            ClusterError: The connection was lost.
        """
        for at in range(0, len(data), _PART):
            await self._channels.send(data[at : at + _PART])

    async def end_input(self) -> None:
        """Say that no more input comes (of an old cluster it is not told)."""
        await self._channels.end_input()

    async def close(self) -> None:
        """End it: the command's input and output are closed, which it should take as its end."""
        await self._channels.close()


# --- one command


@dataclass(frozen=True)
class _Where:
    cluster: Cluster
    pod: str
    container: str | None
    namespace: str
    patience: float = OPENING


async def _open(where: _Where, argv: list[str], *, stdin: bool) -> Channels:
    """Open the stream, again and again while the API is only busy.

    Raises:
        ClusterError: It does not open.
    """
    query = [("command", word) for word in argv]
    query += [("container", where.container)] if where.container else []
    query += [("stdout", "true"), ("stderr", "true"), *([("stdin", "true")] if stdin else [])]
    path = path_of("Pod", where.namespace, where.pod, subresource="exec")
    began = time.monotonic()
    tried = 0
    while True:
        try:
            channels = await dial(
                where.cluster.requests, path, query, what=f"run a command in pod {where.pod}"
            )
        except ClusterError as ex:
            pause = min(0.2 * 2 ** min(tried, 6), 3.0) * random.uniform(0.6, 1.2)  # noqa: S311  # no secret
            if time.monotonic() + pause > began + _patience(ex, where.patience, tried):
                raise
            if reason_of(ex) == Reason.UNAUTHORIZED:
                await where.cluster.requests.access.renew()
            tried += 1
            await asyncio.sleep(pause)
        else:
            where.cluster.stdin_closes = channels.stdin_closes
            return channels


def _patience(ex: ClusterError, most: float, tried: int) -> float:
    """Seconds for which it is worth trying again."""
    match reason_of(ex):
        case Reason.UNREACHABLE:
            return most
        case Reason.BUSY if ex.fields.get("status") != 500:
            return most
        case Reason.BUSY:  # it says so of containers that are not there too
            return min(most, OPENING)
        case Reason.UNAUTHORIZED if not tried:
            return most
    return 0.0


async def _exchange(
    channels: Channels, source: bytes | AsyncIterable[bytes] | None, collected: Collected
) -> None:
    feeding = asyncio.ensure_future(_feed(channels, source)) if source is not None else None
    try:
        while True:
            try:
                async with asyncio.timeout(_SILENCE if collected.ended else None):
                    message = await channels.receive()
            except TimeoutError:
                if collected.ended:  # somebody in the background holds the streams
                    return
                raise
            if isinstance(message, Outcome):
                collected.outcome = message
                return
            collected.add(*message)
    except ClusterError:
        if collected.ended:
            return
        raise
    finally:
        if feeding is not None:
            feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClusterError):
                await feeding


async def _feed(channels: Channels, source: bytes | AsyncIterable[bytes]) -> None:
    try:
        await _feed_whole(channels, source)
    except Exception:
        _behind(channels.close())  # a command must not wait for the rest, nor take this for the end
        raise


async def _feed_whole(channels: Channels, source: bytes | AsyncIterable[bytes]) -> None:
    if isinstance(source, bytes):
        view = memoryview(source)
        for at in range(0, len(view), _PART):
            await channels.send(view[at : at + _PART])
    else:
        async for part in source:
            for at in range(0, len(part), _PART):
                await channels.send(part[at : at + _PART])
    await channels.end_input()


async def _shortened(
    where: _Where, words: list[str], source: bytes | AsyncIterable[bytes] | None, user: str | None, mark: str
) -> tuple[list[str], bytes | AsyncIterable[bytes] | None]:
    """A command too long for an address: its words go in as input, or by a file where there is other input."""
    line = shlex.join(words).encode()
    if source is None:
        return wrapping.from_words(line), line
    path = f"/tmp/.{mark}"  # noqa: S108  # the container's own
    done = await run(
        where.cluster,
        where.pod,
        [wrapping.SHELL, "-c", 'cat >"$0" && chmod 644 "$0"', path],
        container=where.container,
        stdin=line,
        timeout=60,
        user=user,
        namespace=where.namespace,
        patience=where.patience,
    )
    if done.code:
        said = done.stderr.decode(errors="replace")
        raise error(
            Reason.EXEC, f"A command of {len(line):,} bytes could not be brought into the pod: {said}"
        )
    return [wrapping.SHELL, "-c", 'w=$(cat "$0"); rm -f "$0"; eval "exec $w"', path], source


async def _kill(where: _Where, mark: str, user: str | None) -> None:
    """Kill what a command started; what can't be reached is left to the end of the pod.

    Without a capability that containers lack, root does not see the environment of another user's processes: that user
    does.
    """
    ways = [wrapping.killing(mark)]
    if user is not None:
        ways.append(wrapping.wrapped(ways[0], wrapping.new_mark(), user=user))

    async def one(argv: list[str]) -> None:
        async with await _open(where, argv, stdin=False) as channels:
            while not isinstance(await channels.receive(), Outcome):
                pass

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILLING):
            await asyncio.gather(*(one(argv) for argv in ways), return_exceptions=True)


_background: set[asyncio.Future[None]] = set()


def _behind(work: Coroutine[Any, Any, None]) -> None:
    """Go on with it after the caller has gone."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
