"""One container of a sandbox as its worker holds it: commands, files, and how its end is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import posixpath
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hawk.core.cluster_why import End, PodEnd
from hawk.errors import ClusterError
from hawk.sandbox.pod.options import Common
from hawk.sandbox.pod.tracking import Tracked

if TYPE_CHECKING:
    from hawk.kube.api import Cluster
    from hawk.kube.exec import ByteStream
    from hawk.kube.output import Done

_T = TypeVar("_T")

FILE_TIME = 600.0
"""Seconds that reading or writing one file may take."""

CONTAINERS = ""
"""The user that a container itself runs as."""

_AWAY = 600.0  # seconds for which an API that is away is waited for before a command begins
_TELLING = 4.0  # seconds in which the cluster says why a command's connection ended

# $1 path, $2 bytes
_READ = r"""
LC_ALL=C; export LC_ALL
if [ -d "$1" ]; then exit 21; fi
exec head -c "$2" "$1"
"""

_WRITE = r"""
LC_ALL=C; export LC_ALL
if [ -d "$1" ]; then exit 21; fi
d=${1%/*}
if [ -n "$d" ] && [ "$d" != "$1" ] && ! [ -d "$d" ]; then mkdir -p "$d" || exit 1; fi
exec cat >"$1"
"""

_ERRNOS = (
    ("no such file", errno.ENOENT),
    ("nonexistent directory", errno.ENOENT),
    ("not a directory", errno.ENOENT),
    ("permission denied", errno.EACCES),
    ("is a directory", errno.EISDIR),
    ("read-only file system", errno.EROFS),
    ("no space left", errno.ENOSPC),
    ("file name too long", errno.ENAMETOOLONG),
    ("symbolic link", errno.ELOOP),
)


class BoxGoneError(Exception):
    """The sandbox is not there any more; the text says why."""


class PodBox:
    """A container of a pod.

    Attributes:
        label: Its name, for people.
        container: Its name in the pod.
        lost: Why it ended without being asked to.
        troubles: Every limit that was hit so far, by name: how often.
    """

    def __init__(
        self, cluster: Cluster, tracked: Tracked, container: str, options: Common, namespace: str
    ) -> None:
        self.cluster, self.tracked, self.options, self.namespace = cluster, tracked, options, namespace
        self.container = container
        self.label = tracked.name if container == "default" else f"{tracked.name}/{container}"
        self.lost: str | None = None
        self.troubles: dict[str, int] = {}
        self._ooms = 0
        self._ended = asyncio.get_running_loop().create_future()
        tracked.listeners.append(self._look)

    def close(self) -> None:
        """It is not used any more."""
        if self._look in self.tracked.listeners:
            self.tracked.listeners.remove(self._look)
        if not self._ended.done():
            self._ended.set_result("its attempt has ended")

    async def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes | AsyncIterable[bytes] = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # it kills what it times out, which a caller can't
        limit: int = 10 << 20,
    ) -> tuple[Done, tuple[str, ...]]:
        """Run a command: how it ended, and the limits that were hit meanwhile.

        Args:
            user: Whoever runs commands in it when left out; `CONTAINERS`: the container's own.

        Raises:
            ExecTimeoutError: It took too long; it and what it started are killed.
            BoxGoneError: The sandbox is gone, or the connection to it.
        """
        done = await self._guarded(
            self.cluster.exec(
                self.tracked.name,
                list(command),
                container=self.container,
                stdin=stdin or None,
                timeout=timeout,
                limit=limit,
                cwd=cwd,
                env=dict(env or {}),
                user=self.options.user if user is None else user or None,
                namespace=self.namespace,
                patience=_AWAY,
            )
        )
        if done.note == "cut":  # the wrapper was killed: by its container's end, or by the command itself
            await self._expect_end()
        return done, self._noted(done.note)

    @contextlib.asynccontextmanager
    async def stream(self, command: Sequence[str]) -> AsyncIterator[ByteStream]:
        """A command's output as it comes, in memory at no time; it has no input, and ends with the block.

        Raises:
            BoxGoneError: The sandbox is gone, or the connection to it.
        """
        opening = self.cluster.open_exec(
            self.tracked.name,
            list(command),
            container=self.container,
            namespace=self.namespace,
            stdin=False,
        )
        opened = await self._guarded(opening)
        try:
            yield opened
        except ClusterError as ex:
            raise BoxGoneError(self.lost or ex.message) from ex
        finally:
            await opened.close()

    async def read(self, path: str, *, limit: int) -> bytes | None:
        """The bytes of a file; None when there are more than `limit`.

        Raises:
            OSError: It can't be read.
            BoxGoneError: The sandbox is gone.
        """
        script = ["/bin/sh", "-c", _READ, "hawk", self._absolute(path), str(limit + 1)]
        done, _ = await self.run(script, timeout=FILE_TIME, limit=limit + 1)
        if done.code:
            raise _os_error(done.code, done.stderr, path)
        return None if len(done.stdout) > limit else done.stdout

    async def write(self, path: str, content: bytes) -> None:
        """Write a file, making its directories.

        Raises:
            OSError: It can't be written.
            BoxGoneError: The sandbox is gone.
        """
        script = ["/bin/sh", "-c", _WRITE, "hawk", self._absolute(path)]
        done, _ = await self.run(script, stdin=content, timeout=FILE_TIME, limit=4096)
        if done.code:
            raise _os_error(done.code, done.stderr, path)

    # --- in detail

    def _absolute(self, path: str) -> str:
        """The path as a shell can't take for an option; relative ones begin where commands do."""
        return path if path.startswith("/") else "./" + posixpath.normpath(path) if path else "."

    async def _guarded(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a command, no longer than its container lives."""
        if self.lost is not None:
            work.close()
            raise BoxGoneError(self.lost)
        running = asyncio.ensure_future(work)
        try:
            await asyncio.wait({running, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                async with asyncio.timeout(1):  # its end may say more
                    await asyncio.wait({running})
        except TimeoutError:
            pass
        finally:
            if not running.done():
                running.cancel()
        if running.done() and not running.cancelled():
            failed = running.exception()
            if failed is None:
                return running.result()
            if not isinstance(failed, ClusterError):
                raise failed
            await self._expect_end()
            raise BoxGoneError(f"{failed.message}") from failed
        raise BoxGoneError(str(self._ended.result()))

    async def _expect_end(self) -> None:
        """Give the cluster time to say that the container has ended, and why.

        Raises:
            BoxGoneError: It has.
        """
        until = asyncio.get_running_loop().time() + _TELLING
        while self.lost is None and (left := until - asyncio.get_running_loop().time()) > 0:
            await self.tracked.changed(left)
        if self.lost is not None:
            raise BoxGoneError(self.lost)

    def _look(self) -> None:
        """The pod has changed."""
        if self.lost is not None or self.tracked.ending:
            return
        over = self.tracked.ended(self.container)
        if over is None:
            return
        self.lost = f"it {over.words}"
        trouble = _trouble(over)
        if trouble is not None:
            self.troubles[trouble] = self.troubles.get(trouble, 0) + 1
        if not self._ended.done():
            self._ended.set_result(self.lost)

    def _noted(self, note: str) -> tuple[str, ...]:
        """Whether the memory limit killed something since the last look."""
        words = note.split()
        if len(words) != 2 or words[0] != "oom" or not words[1].isdecimal():
            return ()
        before, self._ooms = self._ooms, max(self._ooms, int(words[1]))
        if self._ooms == before:
            return ()
        self.troubles["oom_killed"] = self.troubles.get("oom_killed", 0) + self._ooms - before
        return ("oom_killed",)


def _trouble(over: PodEnd) -> str | None:
    """The limit that was hit, if one was."""
    if over.end is End.MEMORY:
        return "oom_killed"
    if over.reason == "DeadlineExceeded":
        return "wall_time"
    return "disk_full" if over.reason == "Evicted" and "ephemeral" in over.words else None


def _os_error(code: int, stderr: bytes, path: str) -> OSError:
    """The operating system's error, as if the file had been opened here."""
    said = stderr.decode(errors="replace").strip()
    number = (
        errno.EISDIR if code == 21 else next((n for text, n in _ERRNOS if text in said.lower()), errno.EIO)
    )
    text = os.strerror(number) if number != errno.EIO else (said[-300:] or f"exit code {code}")
    return OSError(number, text, path)
