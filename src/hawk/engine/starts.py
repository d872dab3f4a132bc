"""How supervisors start: as a copy of a template, in milliseconds, or else by a fresh interpreter.

The template (`python -m hawk.runner.template`, where the protocol is) belongs to a server and ends with it. Whatever
keeps it from starting a supervisor, a fresh interpreter does it instead, and nothing of the job is lost.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

import hawk
from hawk.store.sockets import listening

_log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds that a template may take to answer: it may have to finish its imports on a busy machine."""
AT_ONCE = 0.5
"""Of those, how many are waited for before the start goes on in the background."""
LAST_WORD = 5.0
"""Seconds to wait for the template to say how a supervisor ended that is gone: it may be importing."""


class _Told(msgspec.Struct):
    """What a template says: see there."""

    pid: int = 0
    error: str = ""
    status: int | None = None


class Template:
    """A template process and its socket; `close` ends it, and so does the end of this process.

    Args:
        base: Parent of the directory made for the socket. Its path must be short.
        environ: The template's environment.
    """

    def __init__(self, base: Path, environ: Mapping[str, str]) -> None:
        base.mkdir(parents=True, exist_ok=True)
        self._directory = Path(tempfile.mkdtemp(prefix="hawk-t-", dir=base))  # for its owner alone
        self.path = self._directory / "s"
        try:
            with listening(self.path, 128) as listener:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "hawk.runner.template", str(listener.fileno())],
                    pass_fds=(listener.fileno(),),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                    env=dict(environ),
                )
        except OSError:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End it; what it has started runs on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        if self.alive():
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


class Start:
    """One supervisor, from the moment that it is asked for to its end.

    Args:
        line: What it is told on its standard input.
        environ: Its environment.
        template: Socket of the template to ask; None: a fresh interpreter.

    Attributes:
        pid: None while the template has not answered.
        since: When it was started, on the monotonic clock.
        asked: The template.
        refusal: Why the template did not start it; None when it was not asked, or did.
    """

    def __init__(self, line: bytes, environ: Mapping[str, str], template: Path | None) -> None:
        self._line = line
        self._environ = environ
        self._lock = threading.RLock()
        self._heard = b""
        self._connection: socket.socket | None = None
        self._stdin: int | None = None
        self._process: subprocess.Popen[bytes] | psutil.Process | None = None
        self._status: int | None = None
        self._over = False
        self.pid: int | None = None
        self.since = time.monotonic()
        self.asked = template
        self.refusal: str | None = None
        if template is None:
            self._afresh()
            return
        try:
            self._ask(template)
        except (OSError, ValueError) as ex:  # nobody there; an environment that is no text
            self._refused(str(ex))
        else:
            self._listen(AT_ONCE)

    # --- what has become of it ------------------------------------------------------------------------

    def waiting(self) -> bool:
        """The template has not answered yet."""
        with self._lock:
            self._listen(0)
            return self.pid is None and not self._over

    def ended(self) -> bool:
        with self._lock:
            self._listen(0)
            if isinstance(self._process, subprocess.Popen):
                self._status = self._process.poll()
                self._over = self._status is not None
            elif self.pid is not None and not self._over and not _runs(self._process):
                self._listen(LAST_WORD)
                self._over = True
            return self._over

    @property
    def status(self) -> int | None:
        """How it ended: its exit code, or less than zero, the signal; None when it has not, or nobody knows."""
        with self._lock:
            return self._status if self.ended() else None

    def wait(self, timeout: float) -> bool:
        """Whether it ends within so many seconds."""
        deadline = time.monotonic() + timeout
        while not self.ended():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def hurry(self) -> None:
        """Wait for the template no longer."""
        with self._lock:
            if self.waiting():
                self._refused("there is no time to wait for it")

    def cancel(self) -> None:
        """Unless it has been told its job, it never will be."""
        with self._lock:
            if self.waiting():
                self._drop()
                self._over = True

    # --- asking the template --------------------------------------------------------------------------

    def _ask(self, template: Path) -> None:
        request = {
            "version": hawk.__version__,
            "python": sys.executable,
            "package": str(Path(hawk.__file__).parent),
            "environ": self._environ,
        }
        data = msgspec.json.encode(request) + b"\n"
        theirs, self._stdin = os.pipe()
        try:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._connection.settimeout(5)
            self._connection.connect(str(template))
            sent = socket.send_fds(self._connection, [data], [theirs, 2])
            self._connection.sendall(data[sent:])
        finally:
            os.close(theirs)

    def _listen(self, seconds: float) -> None:
        """Take up what the template has said, or that it is gone, or silent for too long."""
        with self._lock:
            deadline = time.monotonic() + seconds
            while self._connection is not None and _readable(self._connection, deadline):
                try:
                    data = self._connection.recv(4096)
                except OSError:
                    data = b""
                if not data:
                    self._lost("it ended")
                    return
                self._heard += data
                while b"\n" in self._heard:
                    line, self._heard = self._heard.split(b"\n", 1)
                    self._told(msgspec.json.decode(line, type=_Told))
                    deadline = 0.0
            if self.pid is None and self._connection is not None and time.monotonic() > self.since + PATIENCE:
                self._lost("it does not answer")

    def _told(self, answer: _Told) -> None:
        if answer.error:
            self._refused(answer.error)
        elif answer.pid:
            self.pid, self.since = answer.pid, time.monotonic()
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process = psutil.Process(self.pid)
            assert self._stdin is not None
            with contextlib.suppress(BrokenPipeError), os.fdopen(self._stdin, "wb") as stdin:
                self._stdin = None
                stdin.write(self._line)  # when it is dead already, its status says so
            self._line = b""
        else:
            self._status, self._over = answer.status, True
            self._drop()

    def _lost(self, reason: str) -> None:
        if self.pid is None:
            self._refused(reason)
        else:
            self._drop()

    def _refused(self, reason: str) -> None:
        self._drop()
        self.refusal = reason
        try:
            self._afresh()
        except OSError as ex:
            _log.error("no supervisor can be started: %s", ex)
            self._over = True

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    # --- without it -----------------------------------------------------------------------------------

    def _afresh(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "hawk.runner.supervisor", "--told"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=self._environ,
        )
        self._process, self.pid, self.since = process, process.pid, time.monotonic()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(self._line)
        self._line = b""


def _readable(connection: socket.socket, deadline: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(max(deadline - time.monotonic(), 0.0) * 1000))


def _runs(process: psutil.Process | None) -> bool:
    try:
        return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
