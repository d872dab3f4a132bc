"""Starting what is measured: commands timed from outside, and a Hawk with a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

from hawk.client import HawkClient
from hawk.config.settings import Settings, load_settings

T = TypeVar("T")
BIN = Path(sys.executable).parent
CALM_WAIT = 30  # seconds


def environment(**more: str) -> dict[str, str]:
    """The surroundings of every measured process: no Hawk of this machine, compiled modules allowed."""
    dropped = ("HAWK_", "INSPECT_", "PYTHONDONTWRITEBYTECODE")
    return {**{k: v for k, v in os.environ.items() if not k.startswith(dropped)}, **more}


def timed(command: Iterable[str | Path], env: dict[str, str], cwd: Path | None = None) -> float:
    """Seconds that a command takes; it must end with 0."""
    words = [str(part) for part in command]
    began = time.perf_counter()
    done = subprocess.run(
        words,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    took = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}:\n{done.stdout.decode()[-2000:]}")
    return took


def until(what: str, probe: Callable[[], T | None], timeout: float = 60, period: float = 0.02) -> T:
    """Poll until the probe gives something."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = probe()
        if found is not None:
            return found
        time.sleep(period)
    raise TimeoutError(f"not within {timeout:g} s: {what}")


def calm() -> None:
    """Wait for the machine to have little to do, but not for long."""
    psutil.cpu_percent()
    for _ in range(CALM_WAIT):
        if psutil.cpu_percent(1.0) < 25:
            return
    print("  the machine is busy: the figures are worse than they could be", file=sys.stderr, flush=True)


class Hawk:
    """One `HAWK_HOME`; its server and its jobs live until `hawk()` ends."""

    def __init__(self, home: Path, **more: str) -> None:
        self.env = environment(HAWK_HOME=str(home), HAWK_RUN_BASE=str(home / "l"), **more)
        self.command = BIN / "hawk"

    @property
    def settings(self) -> Settings:
        return load_settings(self.env)

    def start(self) -> None:
        timed([self.command, "server", "start"], self.env)

    def client(self) -> HawkClient:
        record = subprocess.run(
            [self.command, "server", "status", "--json"], env=self.env, capture_output=True, check=True
        )
        return HawkClient(json.loads(record.stdout)["url"], self.settings.token_file.read_text().strip())


@contextmanager
def hawk(home: Path, **more: str) -> Iterator[Hawk]:
    instance = Hawk(home, **more)
    try:
        yield instance
    finally:
        for run in instance.settings.root.glob("[!.]*"):
            subprocess.run(
                [instance.command, "delete", run.name, "-y"],
                env=instance.env,
                capture_output=True,
                check=False,
            )
        subprocess.run(
            [instance.command, "server", "stop"], env=instance.env, capture_output=True, check=False
        )
