"""The `hawk` command with a home of its own, as a person on a fresh machine runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.system import shared_template

EXAMPLES = Path(__file__).parents[1] / "examples"


class CommandLine:
    """Runs commands that share one `HAWK_HOME`; the server that they start ends with `close`."""

    def __init__(self, base: Path, **environ: str) -> None:
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HAWK_")},
            "HAWK_HOME": str(base / "home"),
            "HAWK_RUN_BASE": str(base / "links"),
            "HAWK_MIDDLEMAN": "0",
            "HAWK_WARM": "0",
            "HAWK_TEMPLATE": shared_template(),
            **environ,
        }

    def run(self, *args: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hawk.cli", *map(str, args)],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def ok(self, *args: str | Path, timeout: float = 300) -> str:
        """The output of a command that must end with 0."""
        done = self.run(*args, timeout=timeout)
        assert done.returncode == 0, (
            f"hawk {args[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def snapshot(self) -> dict[str, Any]:
        """The last job's state."""
        data: dict[str, Any] = json.loads(self.ok("watch", "--json"))["data"]
        return data

    def close(self) -> None:
        self.run("server", "stop")


@contextmanager
def command_line(base: Path, **environ: str) -> Iterator[CommandLine]:
    hawk = CommandLine(base, **environ)
    try:
        yield hawk
    finally:
        hawk.close()
