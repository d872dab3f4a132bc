"""Running the command as a person does: as a process, with a home of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.serving import TOKEN, Canned, serving

Run = Callable[..., subprocess.CompletedProcess[str]]
HAWK = [sys.executable, "-m", "hawk.cli"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing of this machine's Hawk is seen."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HAWK_", "NO_COLOR", "XDG_"))}
    home = tmp_path / "hawk-home"
    return {**kept, "HAWK_MIDDLEMAN": "0", "HAWK_HOME": str(home), "HOME": str(tmp_path), "PYTHONUTF8": "1"}


@pytest.fixture
def canned() -> Canned:
    return Canned()


@pytest.fixture
def remote(canned: Canned, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of someone who uses the canned server."""
    Path(env["HAWK_HOME"]).mkdir()
    with serving(canned) as url:
        yield {**env, "HAWK_API_URL": url, "HAWK_ACCESS_TOKEN": TOKEN}


@pytest.fixture
def run() -> Run:
    """Run `hawk` to its end."""

    def run(*args: str, env: dict[str, str], encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HAWK, *args],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding=encoding,
            timeout=60,
            check=False,
        )

    return run
