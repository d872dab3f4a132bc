"""One sandbox as its worker holds it: commands, files, export, end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import posixpath
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hawk.sandbox.client import Keeper
from hawk.sandbox.errors import KeeperGoneError, KeeperRefusedError
from hawk.sandbox.killing import MARK
from hawk.sandbox.streams import Input, Output
from hawk.sandbox.troubles import TEXTS


@dataclass(frozen=True)
class Done:
    """How a command ended.

    Attributes:
        code: Exit code; 128 + n after signal n.
        stdout, stderr: Its output, the last part where it was longer than the limit.
        troubles: Limits of the sandbox that were hit meanwhile: `oom_killed`, `disk_full`, `too_many_processes`,
            `file_size`, `cpu_time`.
    """

    code: int
    stdout: bytes
    stderr: bytes
    troubles: tuple[str, ...] = ()
    truncated: bool = False


class BoxGoneError(Exception):
    """The sandbox is not there any more; the text says why."""


@dataclass
class Box:
    """A sandbox.

    Attributes:
        label: Its name.
        workspace: Directory in which commands start.
        environment: Variables of every command.
        lost: Why it ended without being asked to.
        troubles: Every limit that was hit so far, by name: how often.
    """

    keeper: Keeper
    label: str
    workspace: str
    environment: dict[str, str] = field(default_factory=dict)
    kept_by: dict[str, str] = field(default_factory=dict)
    lost: str | None = None
    troubles: dict[str, int] = field(default_factory=dict)
    _outputs: list[Output] = field(default_factory=list)
    _count: int = 0
    _closed: bool = False

    def __post_init__(self) -> None:
        self.keeper.when_dead(self.label, self._died)

    def _died(self, reason: str) -> None:
        if self.lost is None:
            self.lost = reason
            self._note([reason] if reason in TEXTS else [])

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # it kills what it times out, which a caller can't
        limit: int = 10 << 20,
    ) -> Done:
        """Run a command.

        Args:
            cwd: Directory, relative to the workspace.
            timeout: Seconds; then it and everything it started are killed.
            limit: Bytes of each output stream that are kept.

        Raises:
            TimeoutError: It took too long.
            KeeperRefusedError: It did not start (`stage`: exec, cwd, user, single, …).
            BoxGoneError: The sandbox is gone.
        """
        job = {"kind": "exec", "argv": list(argv), "env": {**self.environment, **(env or {})}}
        return await self._job(job, stdin, cwd, user, timeout, limit)

    async def read(self, path: str, *, limit: int, user: str | None = None) -> bytes | None:
        """The bytes of a file; None when there are more than `limit`.

        Raises:
            KeeperRefusedError: It can't be read.
        """
        # One byte more shows that there is more.
        job = {"kind": "read", "path": path, "env": {}, "limit": limit + 1}
        done = await self._job(job, b"", None, user, None, limit + 1)
        _check_code(done, path)
        return None if len(done.stdout) > limit else done.stdout

    async def write(self, path: str, content: bytes, *, user: str | None = None) -> None:
        """Write a file, making its directories.

        Raises:
            KeeperRefusedError: It can't be written.
        """
        done = await self._job({"kind": "write", "path": path, "env": {}}, content, None, user, None, 4096)
        _check_code(done, path)

    async def unpack(self, archive: bytes, *, user: str | None = None) -> None:
        """Unpack a tar into the sandbox's root directory.

        Raises:
            KeeperRefusedError: It can't be unpacked.
        """
        done = await self._job({"kind": "unpack", "path": "/", "env": {}}, archive, None, user, None, 4096)
        _check_code(done, "/")

    async def lay_over(self, fd: int, *, user: str | None = None) -> None:
        """Unpack a tar of changes over the sandbox's root directory: names that begin with `.wh.` say what goes.

        Args:
            fd: Where it is read from. It is taken over: who feeds a pipe is told when nobody reads it any more.

        Raises:
            KeeperRefusedError: It can't be unpacked; a part of it may have been.
            BoxGoneError: The sandbox is gone.
        """
        try:
            self._check()
        except BoxGoneError:
            os.close(fd)
            raise
        done = await self._job({"kind": "layer", "path": "/", "env": {}}, fd, None, user, None, 4096)
        _check_code(done, "/")

    async def _job(
        self,
        job: dict[str, Any],
        stdin: bytes | int,
        cwd: str | None,
        user: str | None,
        patience: float | None,
        limit: int,
    ) -> Done:
        self._check()
        self._count += 1
        mark = f"{self.label}.{self._count}"
        message = {
            **job,
            "op": "exec",
            "label": self.label,
            "cwd": posixpath.normpath(posixpath.join(self.workspace, cwd or "")),
            "user": user,
            "mark": mark,
        }
        message["env"] = {**message["env"], MARK: mark}
        with contextlib.ExitStack() as ours:
            with contextlib.ExitStack() as theirs:
                fds, feeding = [], -1
                if isinstance(stdin, int):
                    read = stdin
                elif stdin:
                    read, feeding = os.pipe()
                    ours.callback(os.close, feeding)
                else:
                    read = os.open(os.devnull, os.O_RDONLY)
                theirs.callback(os.close, read)
                collecting = []
                for _ in ("output", "errors"):
                    end, write = os.pipe()
                    ours.callback(os.close, end)
                    theirs.callback(os.close, write)
                    collecting.append(end)
                    fds.append(write)
                try:
                    number, answer = await self.keeper.send(message, [read, *fds])
                except KeeperGoneError as ex:
                    raise BoxGoneError(str(ex)) from ex
            ours.pop_all()
        feed = Input(feeding, stdin) if isinstance(stdin, bytes) and stdin else None
        outputs = Output(collecting[0], limit), Output(collecting[1], limit)
        try:
            reply = await self._await(number, answer, patience)
        finally:
            if feed is not None:
                feed.close()
            collected = [output.take() for output in outputs]
            self._keep(outputs)
        return self._done(reply, outputs, collected)

    async def _await(
        self, number: int, answer: asyncio.Future[dict[str, Any]], patience: float | None
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(answer)
        except KeeperGoneError as ex:
            raise BoxGoneError(str(ex)) from ex
        except (TimeoutError, asyncio.CancelledError):
            await asyncio.shield(self._kill(number, answer))
            raise

    async def _kill(self, number: int, answer: asyncio.Future[dict[str, Any]]) -> None:
        """Kill a command and all it started; a sandbox in which that fails is ended whole."""
        with contextlib.suppress(KeeperGoneError, KeeperRefusedError):
            reply = await self.keeper.ask({"op": "kill", "label": self.label, "target": number})
            if not reply["ok"]:
                self.lost = "a command could not be killed"
                await self.keeper.ask({"op": "destroy", "label": self.label})
            await answer

    def _keep(self, outputs: tuple[Output, Output]) -> None:
        """Go on draining for background processes until the sandbox ends."""
        self._outputs = [o for o in (*self._outputs, *outputs) if not o.ended.done()]

    def _done(self, reply: dict[str, Any], outputs: tuple[Output, Output], collected: list[bytes]) -> Done:
        troubles = list(reply.get("troubles", ()))
        if "lost" in reply:
            self._died(reply["lost"])
            self._check()
        if "errno" in reply:
            self._note(troubles)
            self._check()  # it had ended before the command came
            raise KeeperRefusedError(reply["errno"], reply["stage"], reply.get("detail", ""))
        code = reply["code"]
        if code < 0:
            code = 128 - code
        troubles += _signs(code, collected[1], troubles)
        self._note(troubles)
        return Done(
            code, collected[0], collected[1], tuple(troubles), outputs[0].truncated or outputs[1].truncated
        )

    def _note(self, troubles: list[str]) -> None:
        for trouble in troubles:
            self.troubles[trouble] = self.troubles.get(trouble, 0) + 1

    def _check(self) -> None:
        if self.lost is not None:
            raise BoxGoneError(self.lost)
        if self._closed:
            raise BoxGoneError("it was ended with its attempt")
        if self.keeper.gone:
            raise BoxGoneError("the process that keeps the sandboxes has ended")

    async def usage(self) -> dict[str, Any]:
        """Memory, processes, CPU seconds and workspace bytes, where they can be known."""
        self._check()
        return await self.keeper.ask({"op": "usage", "label": self.label})

    async def export(self, fd: int, *, prefix: str = "", max_bytes: int | None = None) -> dict[str, Any]:
        """Write a tar of what changed to a file descriptor: `files`, `bytes`, `skipped`, `truncated`."""
        message = {"op": "export", "label": self.label, "prefix": prefix, "max_bytes": max_bytes}
        return await self.keeper.ask(message, [fd])

    async def close(self) -> None:
        """End it; nothing of it is left afterwards."""
        self._closed = True
        self.keeper.forget(self.label)
        with contextlib.suppress(KeeperGoneError, KeeperRefusedError):  # it may have ended already
            await self.keeper.ask({"op": "destroy", "label": self.label})
        for output in self._outputs:
            output.close()
        self._outputs.clear()


def _check_code(done: Done, path: str) -> None:
    """Work on a file that was killed has done an unknown part of it: what runs in the sandbox can do that."""
    if done.code != 0:
        raise KeeperRefusedError(errno.EIO, "file", f"{path}: who was at work on it was killed")


def _signs(code: int, stderr: bytes, known: list[str]) -> list[str]:
    """Limits that show in how a command ended, also when a shell reports it for its child."""
    signs = {128 + signal.SIGXFSZ: "file_size", 128 + signal.SIGXCPU: "cpu_time"}
    found = [signs[code]] if code in signs else []
    if code != 0 and b"No space left on device" in stderr and "disk_full" not in known:
        found.append("disk_full")  # space that was freed again since
    return found
