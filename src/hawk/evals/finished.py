"""The finished sandbox, as `EVAL.py` sees it.

What is in it was left by an agent that would like to pass: every path may be a link, a pipe or a device, every program
may never end, every output may be huge. So nothing here raises for what an agent can do, nothing waits for ever, and
nothing touches this machine's own files: commands and reads run inside, as the sandbox's user.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxUnavailableError,
)

from hawk.evals.errors import ScorerError
from hawk.evals.judge import Judge
from hawk.evals.placing import workspace_of
from hawk.evals.verdict import Judged

COMMAND_TIMEOUT = 60
MAX_READ = 1 << 20
MAX_NAMES = 1 << 20  # bytes of file names that are listed

_NOT_STARTED, _TIMED_OUT = 126, 124
_READ = 'test -f "$1" && exec head -c "$2" -- "$1"'
_FIND = 'find . -type f -print0 2>/dev/null | head -c "$1"'

T = TypeVar("T")


@dataclass(frozen=True)
class Ran:
    """How a command ended.

    Attributes:
        ok: It ended with 0.
        code: Its exit code; 124 when it took too long, 126 when it could not be started.
        stdout, stderr: Its output; of very much only a part.
    """

    ok: bool
    code: int
    stdout: str
    stderr: str

    @property
    def timed_out(self) -> bool:
        return self.code == _TIMED_OUT

    @property
    def output(self) -> str:
        """Both, without what surrounds them: for notes."""
        return f"{self.stdout}\n{self.stderr}".strip()


@dataclass
class Records:
    """What happened while one attempt was scored: who scores looks at it whatever the author's code made of it."""

    judged: list[Judged] = field(default_factory=list)
    lost: SandboxUnavailableError | None = None
    over: bool = False


class FinishedSandbox:
    """What an agent left. `EVAL.py` gets one: `async def score(sandbox)`.

    Attributes:
        workspace: The agent's working directory, where relative paths begin; empty where the provider does not say.
        tests: Where the eval's `tests/` are, outside the workspace.
    """

    def __init__(
        self,
        sandboxes: Mapping[str, SandboxEnvironment],
        *,
        tests: str,
        judge: Judge,
        home: asyncio.AbstractEventLoop,
        records: Records,
        name: str = "default",
    ) -> None:
        self._sandbox = sandboxes[name]
        self.workspace = workspace_of(self._sandbox)
        self.tests = tests
        self._sandboxes = sandboxes
        self._judge = judge
        self._home = home
        self._records = records

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float = COMMAND_TIMEOUT,  # noqa: ASYNC109 - the provider kills what takes longer
    ) -> Ran:
        """Run a command in the workspace.

        Args:
            command: Words; or text, which a shell runs.
            input: What it reads.
            cwd: Another directory.
            env: More variables.
            user: Another user, where the sandbox has one.
            timeout: Seconds; then it is killed, and the code is 124.
        """
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)

        def run() -> Coroutine[Any, Any, ExecResult[str]]:
            return self._sandbox.exec(
                words,
                input=input,
                cwd=posixpath.join(self.workspace, cwd or "") or None,
                env=dict(env or {}),
                user=user,
                timeout=max(1, round(timeout)),
                timeout_retry=False,
            )

        try:
            done = await self._on_home(run)
        except TimeoutError:
            return Ran(False, _TIMED_OUT, "", f"did not end within {timeout:g} s")
        except OutputLimitExceededError as ex:
            return Ran(False, _NOT_STARTED, ex.truncated_output or "", "its output was too long")
        except PermissionError as ex:
            return Ran(False, _NOT_STARTED, "", f"{words[0]}: {ex.strerror or ex}")
        return Ran(done.success, done.returncode, done.stdout, done.stderr)

    async def read(self, path: str, *, limit: int = MAX_READ) -> str | None:
        """A file's text; None when there is no such file (or it is a directory, a pipe, unreadable).

        Args:
            limit: Bytes that are read; what comes after is left out. Bytes that are no UTF-8 become `U+FFFD`.
        """
        ran = await self.exec(["sh", "-c", _READ, "sh", path, str(limit)])
        return ran.stdout if ran.ok else None

    async def read_bytes(self, path: str) -> bytes | None:
        """A file's content; None when there is no such file, or it is larger than what Inspect reads."""
        if not (await self.exec(["test", "-f", path])).ok:
            return None
        full = posixpath.join(self.workspace, path)
        try:
            return await self._on_home(lambda: self._sandbox.read_file(full, text=False))
        except (OSError, OutputLimitExceededError):
            return None

    async def exists(self, path: str) -> bool:
        """Whether there is anything at a path."""
        return (await self.exec(["test", "-e", path])).ok

    async def files(self, directory: str = ".") -> list[str]:
        """Regular files below a directory, relative to it, in order; links are not followed. At most 1 MiB of names."""
        ran = await self.exec(["sh", "-c", _FIND, "sh", str(MAX_NAMES)], cwd=directory)
        *names, _ = ran.stdout.split("\0")  # the last one may have been cut
        return sorted(name.removeprefix("./") for name in names)

    async def write(self, path: str, content: str | bytes) -> None:
        """Write a file, making its directories: an input to try the agent's program with.

        Raises:
            OSError: It can't be written.
        """
        full = posixpath.join(self.workspace, path)
        await self._on_home(lambda: self._sandbox.write_file(full, content))

    async def judge(self, rubric: str, text: str) -> Judged:
        """Ask the judge whether a text meets a rubric: `passed` and `notes`.

        Raises:
            ScorerError: There is no judge, or it gave no answer.
        """
        judged = await self._on_home(lambda: self._judge(rubric, text))
        self._records.judged.append(judged)
        return judged

    def service(self, name: str) -> FinishedSandbox:
        """One of the attempt's services.

        Raises:
            ScorerError: There is none of that name.
        """
        if name not in self._sandboxes:
            raise ScorerError(f"there is no service {name!r}; there are: {', '.join(self._sandboxes)}")
        return FinishedSandbox(
            self._sandboxes,
            tests=self.tests,
            judge=self._judge,
            home=self._home,
            records=self._records,
            name=name,
        )

    async def _on_home(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something in the loop that sandboxes and models belong to, and wait for it in ours."""
        if self._records.over:
            raise ScorerError("the scorer went on after its time")
        future = asyncio.run_coroutine_threadsafe(make(), self._home)
        try:
            return await asyncio.wrap_future(future)
        except SandboxUnavailableError as ex:
            self._records.lost = ex
            raise
