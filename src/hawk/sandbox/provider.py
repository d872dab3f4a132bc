"""The sandbox provider `bubblewrap` as Inspect sees it."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import PurePosixPath
from typing import Any, ClassVar, Literal, NoReturn, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel
from typing_extensions import override

from hawk.bridge.sandboxtools import share_root_access
from hawk.sandbox import pool, troubles
from hawk.sandbox.box import Box, BoxGoneError, Done
from hawk.sandbox.config import CONFIG_FILES, load
from hawk.sandbox.errors import KeeperRefusedError
from hawk.sandbox.group import Group, open_group
from hawk.sandbox.options import Common
from hawk.sandbox.registry import registry
from hawk.sandbox.sweep import sweep


@sandboxenv(name="bubblewrap")
class BubblewrapSandbox(SandboxEnvironment):
    """One sandbox, or one service of a sandbox."""

    _first: ClassVar[dict[Common, BubblewrapSandbox]] = {}
    """By configuration, the first that was made with it."""

    def __init__(self, box: Box, group: Group | None = None) -> None:
        super().__init__()
        self.box = box
        self._group = group

    # --- lifecycle

    @override
    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Check that the machine can do it, and prepare what all sandboxes of the task share."""
        from hawk.sandbox.prepare import prepare

        pool.hold()
        try:
            await prepare(load(config))
        except BaseException:
            await pool.release()  # without a cleanup: Inspect has none for what did not begin
            raise

    @override
    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool
    ) -> None:
        """End the keeper with the last task that has sandboxes: the process may go on to other evals, or to none."""
        await pool.release()

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        parsed = load(config)
        with registry.starting((parsed, *parsed.services.values())) as tell:
            group = await open_group(parsed, name=secrets.token_hex(4))
            tell(group)
        made = {name: cls(box, group) for name, box in group.boxes.items()}
        for name, sandbox in made.items():
            kind = parsed.services.get(name, parsed)
            share_root_access(cls._first.setdefault(kind, sandbox), sandbox)
        return dict(made)

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        groups = {id(e._group): e._group for e in environments.values() if isinstance(e, cls) and e._group}
        for group in groups.values():
            try:
                await group.close()
            finally:
                registry.closed(group)

    @override
    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        sweep()

    @override
    @classmethod
    def config_files(cls) -> list[str]:
        return list(CONFIG_FILES)

    @override
    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return load(config)

    @override
    def default_polling_interval(self) -> float:
        return 0.2

    @property
    def group(self) -> Group:
        """The sandboxes of its attempt."""
        assert self._group is not None
        return self._group

    # --- commands and files

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        stdin = input.encode() if isinstance(input, str) else input or b""
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            done = await self.box.run(
                cmd, stdin=stdin, cwd=cwd, env=env, user=user, timeout=timeout, limit=limit
            )
        except KeeperRefusedError as ex:
            return _not_started(ex, cmd[0])
        except BoxGoneError as ex:
            raise SandboxUnavailableError(troubles.explain_loss(self.box, str(ex))) from ex
        return _result(done)

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        content = contents.encode() if isinstance(contents, str) else contents
        try:
            await self.box.write(file, content)
        except KeeperRefusedError as ex:
            _raise(ex, file)
        except BoxGoneError as ex:
            raise SandboxUnavailableError(troubles.explain_loss(self.box, str(ex))) from ex

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            content = await self.box.read(file, limit=limit)
        except KeeperRefusedError as ex:
            _raise(ex, file)
        except BoxGoneError as ex:
            raise SandboxUnavailableError(troubles.explain_loss(self.box, str(ex))) from ex
        if content is None:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return content.decode() if text else content

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        if self.box.lost is not None:
            raise ConnectionError(self.box.lost)
        who = f" --user {user}" if user else ""
        return SandboxConnection(type="bubblewrap", command=f"hawk sandbox shell {self.box.label}{who}")


def _result(done: Done) -> ExecResult[str]:
    stderr = done.stderr.decode(errors="replace")
    said = troubles.told(stderr, done.troubles)
    return ExecResult(done.code == 0, done.code, done.stdout.decode(errors="replace"), said)


def _not_started(ex: KeeperRefusedError, name: str) -> ExecResult[str]:
    """A command that could not be started, as a shell would say it; raises what Inspect has an error for."""
    match ex.stage:
        case "single":
            raise SandboxUserUnsupportedError(
                f"There is one user in this sandbox, so nothing runs as {ex.detail!r}: "
                "more need root, which started Hawk here without."
            )
        case "user":
            text = f"unable to find user {ex.detail}: no matching entries in passwd file"
            return ExecResult(False, 126, "", text + "\n")
        case "exec" if ex.number == errno.EACCES:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        case "exec" if ex.number in (errno.ENOENT, errno.ENOTDIR):
            return ExecResult(False, 127, "", f"{name}: not found\n")
        case "exec" | "cwd":
            what = name if ex.stage == "exec" else f"working directory {ex.detail}"
            return ExecResult(False, 126, "", f"{what}: {os.strerror(ex.number)}\n")
    raise SandboxUnavailableError(f"the sandbox could not start a command: {ex.message}")


def _raise(ex: KeeperRefusedError, file: str) -> NoReturn:
    """The operating system's error for a file, as if it had been opened here."""
    path = str(PurePosixPath(file))
    number = errno.ENOENT if ex.number == errno.ENOTDIR else ex.number
    raise OSError(number, os.strerror(number), path) from ex
