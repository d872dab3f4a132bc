"""A terminal with a screen that can be read: a pseudo-terminal and an emulator."""

import os
import re
import time
from types import TracebackType

import pexpect
import pyte

from tests.cli.conftest import HAWK


class Terminal:
    """Runs `hawk` on a terminal of a size."""

    def __init__(
        self,
        *args: str,
        env: dict[str, str],
        columns: int = 100,
        rows: int = 30,
        term: str = "xterm-256color",
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        # Set, these would win over the size that the terminal itself says it has.
        bare = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
        self.process = pexpect.spawn(
            HAWK[0], [*HAWK[1:], *args], env={**bare, "TERM": term}, dimensions=(rows, columns), timeout=30
        )

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.close(force=True)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, pattern: str, seconds: float = 100.0) -> str:
        """The screen, once it matches."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, f"{pattern!r} never came:\n{self.text}\n{self.raw[-2000:]!r}"
            self._read()
        return self.text

    def resize(self, columns: int, rows: int) -> None:
        self.process.setwinsize(rows, columns)
        self.screen.resize(rows, columns)

    def end(self, seconds: float = 20.0) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < deadline, self.text
        self.process.wait()
        return self.process.exitstatus if self.process.exitstatus is not None else -self.process.signalstatus

    def _read(self) -> bool:
        try:
            data = os.read(self.process.child_fd, 65536) if self._readable() else b""
        except OSError:
            return False
        if data:
            self.raw += data
            self._stream.feed(data)
            return True
        return bool(self.process.isalive()) or self._readable()

    def _readable(self) -> bool:
        import select

        return bool(select.select([self.process.child_fd], [], [], 0.1)[0])
