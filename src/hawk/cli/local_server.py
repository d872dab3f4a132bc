"""The server of this machine: found, started when none runs, stopped.

A server that runs has written `server.json`, holds `server.lock` and answers `/health/live`. To start one,
a command first takes a lock of its own kind (`server.start`), so that two commands at once start one server
between them.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hawk.cli.text import clean
from hawk.config.settings import Settings
from hawk.errors import HawkError, ServerUnavailableError, StorageError

if TYPE_CHECKING:
    import subprocess

PROBE = 1.0  # seconds a healthy server on this machine needs at most to say so
START = 30.0  # seconds until a server must listen: a cold disk and a migration included
STOP = 20.0
POLL = 0.05


class ServerRecord(NamedTuple):
    """What a running server says about itself in `server.json`."""

    url: str
    pid: int
    version: str
    started_at: str


def read_record(settings: Settings) -> ServerRecord | None:
    """The record of the last server, running or not; None when there is none to be read."""
    try:
        record = json.loads(settings.server_file.read_bytes())
        return ServerRecord(
            str(record["url"]),
            int(record["pid"]),
            str(record["version"]),
            str(record.get("started_at") or ""),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def recorded(settings: Settings) -> ServerRecord | None:
    """The server that should be running, by what it left on disk: not asked whether it answers."""
    record = read_record(settings)
    if record is None or not process_lives(record.pid) or not lock_held(settings.server_lock):
        return None
    return record


def find(settings: Settings, *, timeout: float = PROBE) -> ServerRecord | None:
    """The server that runs and answers, or None."""
    record = read_record(settings)
    if record is None or not process_lives(record.pid) or not _answers(record.url, timeout):
        return None
    return record


def ensure(settings: Settings) -> ServerRecord:
    """The running server, started if there is none.

    Raises:
        ServerUnavailableError: It did not start, or runs and does not answer.
        StorageError: HAWK_HOME can't be written.
    """
    found = find(settings)
    if found is not None:
        return found
    _make_home(settings)
    with _start_lock(settings):
        found = find(settings)
        if found is not None:
            return found
        if lock_held(settings.server_lock):
            return _wait_for_busy(settings)
        return _start(settings)


def stop(settings: Settings) -> ServerRecord | None:
    """End the server gracefully; jobs run on. Returns the one that was ended, None when none ran.

    Raises:
        HawkError: It did not end in time.
    """
    import signal

    record = read_record(settings)
    if record is None or not lock_held(settings.server_lock) or not process_lives(record.pid):
        return None
    os.kill(record.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP
    while lock_held(settings.server_lock) and process_lives(record.pid):
        if time.monotonic() > deadline:
            raise HawkError(
                f"The server (process {record.pid}) did not end within {STOP:.0f} s.",
                remedy=f"kill -9 {record.pid} is safe: jobs run on, and the next server adopts them.",
            )
        time.sleep(POLL)
    return record


def process_lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def lock_held(path: Path) -> bool:
    """Whether a living process holds this lock. A crash releases it, whatever else it leaves behind."""
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def log_tail(path: Path, start: int = 0, lines: int = 8) -> str:
    """The last lines that were written to a log since a position."""
    try:
        with path.open("rb") as f:
            size = f.seek(0, os.SEEK_END)
            f.seek(max(start, size - 8192))
            text = f.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(clean(line) for line in text.splitlines()[-lines:])


def _answers(url: str, timeout: float) -> bool:
    from hawk.client import HawkClient

    with suppress(HawkError), HawkClient(url, None, timeout=timeout) as client:
        return client.alive()
    return False


def _make_home(settings: Settings) -> None:
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(settings.home, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as ex:
        raise _storage(settings.home, ex) from ex


def _storage(path: Path, ex: OSError) -> StorageError:
    return StorageError(
        f"{path}: {ex.strerror or ex}.",
        remedy="Set HAWK_HOME to a directory that you can write.",
        path=str(path),
    )


@contextmanager
def _start_lock(settings: Settings) -> Iterator[None]:
    path = settings.home / "server.start"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as ex:
        raise _storage(path, ex) from ex
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _wait_for_busy(settings: Settings) -> ServerRecord:
    """A server holds the lock and does not answer: it starts just now, or has its hands full."""
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        found = find(settings, timeout=5.0)
        if found is not None:
            return found
        if not lock_held(settings.server_lock):
            return _start(settings)
        time.sleep(POLL)
    record = read_record(settings)
    who = f"process {record.pid}" if record else "an unknown process"
    raise ServerUnavailableError(
        f"The local server ({who}) runs and does not answer.",
        remedy=f"Run 'hawk server stop' and try again; its log is {settings.server_log}.",
        url=record.url if record else None,
    )


def _start(settings: Settings) -> ServerRecord:
    """Start a server that outlives this command, and wait until it listens."""
    import subprocess

    try:
        log = settings.server_log.open("ab")
    except OSError as ex:
        raise _storage(settings.server_log, ex) from ex
    reader, writer = os.pipe()
    try:
        with log:
            begin = log.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "hawk.server",
                    "--port",
                    str(settings.port),
                    "--ready-fd",
                    str(writer),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
                cwd=settings.home,
                env=_environment(settings),
            )
        os.close(writer)
        writer = -1
        ready, _, _ = select.select([reader], [], [], START)
        if ready and os.read(reader, 256):
            return _started(settings)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    raise _start_failure(settings, process, begin)


def _started(settings: Settings) -> ServerRecord:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = find(settings)
        if found is not None:
            return found
        time.sleep(POLL)
    raise ServerUnavailableError(
        "The local server started and does not answer.", remedy=f"Its log is {settings.server_log}."
    )


def _start_failure(
    settings: Settings, process: subprocess.Popen[bytes], begin: int
) -> ServerUnavailableError:
    import subprocess

    try:
        code: int | None = process.wait(2)
    except subprocess.TimeoutExpired:
        code = None
        process.terminate()
    what = f"did not listen within {START:.0f} s" if code is None else f"ended with exit code {code}"
    tail = log_tail(settings.server_log, begin)
    message = f"The local server {what}." + (f" It said:\n{tail}" if tail else "")
    return ServerUnavailableError(
        message, remedy=f"Mend that and try again; the whole log is {settings.server_log}."
    )


def _environment(settings: Settings) -> dict[str, str]:
    """Its directories spelt absolutely: the server works in another directory than this command."""
    env = dict(os.environ)
    env["HAWK_HOME"] = str(settings.home)
    env["HAWK_ROOT"] = str(settings.root)
    env["HAWK_RUN_BASE"] = str(settings.run_base.absolute())
    return env
