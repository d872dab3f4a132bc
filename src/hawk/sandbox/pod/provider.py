"""The sandbox provider `pod` as Inspect sees it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, overload

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
from hawk.sandbox import troubles
from hawk.sandbox.pod.config import CONFIG_FILES, load
from hawk.sandbox.pod.options import Common, PodConfig
from hawk.sandbox.registry import registry

if TYPE_CHECKING:  # the cluster's client loads only where it is used
    from pathlib import Path

    from hawk.kube.output import Done
    from hawk.sandbox.export import Exported
    from hawk.sandbox.pod.box import PodBox
    from hawk.sandbox.pod.group import About, PodGroup


@sandboxenv(name="pod")
class PodSandbox(SandboxEnvironment):
    """One sandbox, or one service of a sandbox: a container of a pod."""

    _first: ClassVar[dict[Common, PodSandbox]] = {}
    """By configuration, the first that was made with it."""

    def __init__(self, box: PodBox, group: PodGroup | None = None) -> None:
        super().__init__()
        self.box = box
        self._group = group

    # --- lifecycle

    @override
    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Check that the cluster answers, and begin the pods that are kept warm."""
        from hawk.sandbox.pod import site as sites
        from hawk.sandbox.pod.warm import WarmPool

        parsed = load(config)
        sites.hold()
        try:
            site = await sites.current()
            await site.network(parsed.network)
            if parsed.warm and parsed not in site.pools:
                site.pools[parsed] = WarmPool(site, parsed)
        except BaseException:
            await sites.release()  # without a cleanup: Inspect has none for what did not begin
            raise

    @override
    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool
    ) -> None:
        """End the connection with the last task that has sandboxes, and delete what was kept warm."""
        from hawk.sandbox.pod import site as sites

        await sites.release()

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        from hawk.sandbox.pod import site as sites

        parsed = load(config)
        name = secrets.token_hex(5)
        with registry.starting((name,)) as tell, _Saying(name) as saying:
            site = await sites.current()
            about = _about(task_name)
            pool = site.pools.get(parsed)
            group = pool.take(about) if pool is not None else None
            if group is None:
                from hawk.sandbox.pod.group import open_group

                group = await open_group(site, parsed, name=name, about=about, say=saying.say)
            tell(group)
        return cls._of(parsed, group)

    @classmethod
    def _of(cls, config: PodConfig, group: PodGroup) -> dict[str, SandboxEnvironment]:
        made = {name: cls(box, group) for name, box in group.boxes.items()}
        for name, sandbox in made.items():
            kind = config.services.get(name, config)
            share_root_access(cls._first.setdefault(kind, sandbox), sandbox)
        if config.default is not None:
            made = {config.default: made.pop("default"), **made}
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
        from hawk.kube.api import connect
        from hawk.sandbox.pod.sweep import remove, sweep_dead

        async with await connect() as cluster:
            if id is None:
                await sweep_dead(cluster)
            else:
                await remove(cluster, id)

    @override
    @classmethod
    def config_files(cls) -> list[str]:
        return list(CONFIG_FILES)

    @override
    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return load(config)

    @property
    def group(self) -> PodGroup:
        """The sandboxes of its attempt."""
        assert self._group is not None
        return self._group

    async def keep_workspace(self, target: Path, *, max_bytes: int, seconds: float) -> Exported:
        """Write what the agent left in its working directory: see `hawk.sandbox.pod.workspace`."""
        from hawk.sandbox.pod.workspace import keep_workspace

        box = self.group.boxes["default"]
        return await keep_workspace(box, target, max_bytes=max_bytes, seconds=seconds)

    async def put_back(self, archive: Path, *, whole: bool, seconds: float) -> None:
        """Put back what was kept of an earlier one: see `hawk.sandbox.pod.workspace`."""
        from hawk.sandbox.pod.workspace import put_back

        await put_back(self.group.boxes["default"], archive, whole=whole, seconds=seconds)

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
        from hawk.kube.exec import ExecTimeoutError

        stdin = input.encode() if isinstance(input, str) else input or b""
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        with self._explained():
            try:
                done, hit = await self.box.run(
                    cmd, stdin=stdin, cwd=cwd, env=env, user=user or None, timeout=timeout, limit=limit
                )
            except ExecTimeoutError as ex:
                written = (ex.stdout + ex.stderr).decode(errors="replace")
                if written:
                    ex.truncated_output = written  # type: ignore[attr-defined]  # where Inspect looks for it
                raise
        return _result(done, hit, cmd, cwd, user or self.box.options.user)

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        content = contents.encode() if isinstance(contents, str) else contents
        with self._explained():
            await self.box.write(file, content)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        with self._explained():
            content = await self.box.read(file, limit=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        if content is None:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return content.decode() if text else content

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        box = self.box
        if box.lost is not None:
            raise ConnectionError(box.lost)
        command = ["kubectl", "exec", "-it", "-n", box.namespace, box.tracked.name, "-c", box.container, "--"]
        shell = ["su", "-s", "/bin/sh", user] if user else ["/bin/sh"]
        return SandboxConnection(
            type="pod", command=shlex.join([*command, *shell]), container=box.tracked.name
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """A sandbox that is gone, as Inspect has an error for it: the attempt is begun again."""
        from hawk.sandbox.pod.box import BoxGoneError

        try:
            yield
        except BoxGoneError as ex:
            raise SandboxUnavailableError(f"the sandbox {self.box.label} is gone: {ex}") from ex


class _Saying:
    """What an attempt waits for, shown by the registry; each word takes the place of the last."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._now = contextlib.ExitStack()

    def __enter__(self) -> _Saying:
        return self

    def __exit__(self, *_: object) -> None:
        self._now.close()

    def say(self, text: str) -> None:
        self._now.close()
        self._now.enter_context(registry.working(self._key, text))


def _about(task: str) -> About:
    """The attempt for which this code runs, named as the registry names it: `<sample>/<epoch>@<eval>`."""
    from hawk.sandbox.pod.group import About

    attempt = (registry.attempt() or "").rpartition("@")[0]
    sample, _, epoch = attempt.rpartition("/")
    return About(task, sample, epoch)


def _result(
    done: Done, hit: tuple[str, ...], cmd: list[str], cwd: str | None, user: str | None
) -> ExecResult[str]:
    stderr = done.stderr.decode(errors="replace")
    if done.code == 125 and done.note in ("cwd", "env", "user", "single"):
        return _not_started(done.note, cwd, user)
    if done.code == 126 and "permission denied" in stderr.lower()[-300:]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), cmd[0])
    said = troubles.told(stderr, hit)
    return ExecResult(done.code == 0, done.code, done.stdout.decode(errors="replace"), said)


def _not_started(stage: str, cwd: str | None, user: str | None) -> ExecResult[str]:
    """A command that could not be started, as a shell would say it."""
    if stage == "single":
        _no_other_user(user)
    texts = {
        "user": f"unable to find user {user}: no matching entries in passwd file",
        "cwd": f"working directory {cwd}: {os.strerror(errno.ENOENT)}",
        "env": "a variable of the environment could not be set",
    }
    return ExecResult(False, 126, "", f"{texts[stage]}\n")


def _no_other_user(user: str | None) -> NoReturn:
    raise SandboxUserUnsupportedError(
        f"Nothing runs as {user!r} in this sandbox: its container is not root's, or its image has no program to "
        "change users (setpriv, runuser, su)."
    )
