"""Where the middleman of this HAWK_HOME is, and starting one. Light: whoever starts jobs may import it.

It belongs to nobody: a server that finds none starts one, and so does a supervisor whose own went away. Two can't be
there, since each holds a lock; the next one takes the same port, which is in the environment of workers.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from hawk.config.settings import Settings
from hawk.errors import ServerUnavailableError, StorageError
from hawk.store.locks import holder
from hawk.store.rundir import read_json

START = 20.0
"""Seconds that a start may take, its imports included, on a machine that is busy."""


class Presence(msgspec.Struct):
    """`<home>/middleman.json`."""

    url: str
    pid: int
    instance: str
    version: str = ""


def presence_file(home: Path) -> Path:
    return home / "middleman.json"


def lock_file(home: Path) -> Path:
    return home / "middleman.lock"


def log_file(home: Path) -> Path:
    return home / "middleman.log"


def known(home: Path) -> Presence | None:
    """The one that is there or was there last; None when there has been none."""
    try:
        return read_json(presence_file(home), Presence)
    except StorageError:
        return None  # damaged: the next one writes it again


def living(home: Path) -> Presence | None:
    """The one that runs."""
    found = known(home)
    return found if found is not None and holder(lock_file(home)) == found.pid else None


def start(settings: Settings) -> subprocess.Popen[bytes]:
    """Start one, detached. It ends at once when another one holds the lock."""
    before = known(settings.home)
    port = before.url.rsplit(":", 1)[-1] if before is not None else "0"
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = os.open(log_file(settings.home), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "hawk.middleman", "--port", port, "--embedded"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(log)


def ensure(settings: Settings, *, timeout: float = START) -> Presence:
    """The middleman that runs; started if there is none.

    Raises:
        ServerUnavailableError: It does not come up. Field: `url`, of its log.
    """
    process: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = living(settings.home)
        if found is not None:
            return found
        if process is None and holder(lock_file(settings.home)) is None:
            process = start(settings)
        elif process is not None and process.poll() not in (None, 0):
            break
        time.sleep(0.02)
    raise ServerUnavailableError(
        "The middleman, through which workers reach models, did not start.",
        remedy=f"Its log says why: {log_file(settings.home)}. `middleman: off` in the eval set does without it.",
        url=str(log_file(settings.home)),
    )


def stop(settings: Settings, *, timeout: float = 10.0) -> bool:
    """End the one that runs; requests on their way may finish. False: there was none."""
    found = living(settings.home)
    if found is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(found.pid, 15)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and living(settings.home) is not None:
        time.sleep(0.02)
    return True
