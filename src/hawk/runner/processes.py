"""The supervisor's processes: the zygote, the workers it forks, and who has ended.

The supervisor is a subreaper, so every worker and every orphan that a dead worker leaves is its child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hawk.runner.wire import Forked, ForkRequest, receive, send
from hawk.sandbox.sweep import sweep as sweep_sandboxes
from hawk.store import marks
from hawk.store.locks import holder
from hawk.store.rundir import RunDir

_PR_SET_CHILD_SUBREAPER = 36

KILL = "SIGUSR2"
"""What SIGKILL is for a worker that has a pod of its own: its stand-in must live to have the pod deleted."""


def become_subreaper() -> bool:
    """Adopt orphaned descendants (Linux). False elsewhere: exit codes then come from `exit.json` alone."""
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


class Zygote:
    """The other end of `hawk.runner.zygote`.

    Args:
        python: The interpreter to start it with.
        there: The socket to one that the template has made for this process: none is started.
    """

    def __init__(self, python: str = sys.executable, *, there: socket.socket | None = None) -> None:
        if there is not None:
            self._sock = there
            return
        self._sock, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [python, "-m", "hawk.runner.zygote", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        finally:
            theirs.close()

    def fork(self, request: ForkRequest, timeout: float = 120.0) -> int:
        """Start a worker.

        Args:
            timeout: Seconds; the first answer waits for the import of Inspect.

        Returns:
            The worker's pid.

        Raises:
            RuntimeError: The zygote died or could not fork.
        """
        self._sock.settimeout(timeout)
        try:
            send(self._sock, request)
            answer = receive(self._sock, Forked)
        except OSError as ex:
            raise RuntimeError(f"the process that starts workers is gone ({ex})") from ex
        if answer is None:
            raise RuntimeError("the process that starts workers ended; see supervisor.log")
        if answer.error:
            raise RuntimeError(answer.error)
        return answer.pid

    def close(self) -> None:
        """End the zygote; workers run on."""
        self._sock.close()


class Reaper:
    """Collects the exit status of every child, whoever waits for it."""

    def __init__(self) -> None:
        self._statuses: dict[int, int] = {}

    def collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._statuses[pid] = status

    def status(self, pid: int) -> int | None:
        """The wait status of a child that ended, once."""
        return self._statuses.pop(pid, None)


@dataclass
class Worker:
    """A worker process: our child, or adopted from an earlier supervisor.

    Attributes:
        home: Its directory in the run directory.
        data_home: Short path to its data directory, for sockets.
        remote: It runs in a pod of its own: `pid` is its stand-in's, good for signals and for its end only.
        held_by: Where its event loop stands still, while it does.
        control: What its control socket did at the last look: `ok`, `busy`, `gone`, `unknown`.
        control_since: Since when that is so, ISO 8601.
        answered: It was `ok` once.
    """

    index: int
    home: Path
    data_home: Path
    identifiers: tuple[str, ...]
    pid: int
    started: float = field(default_factory=time.monotonic)
    adopted: bool = False
    busy_since: str | None = None
    held_by: str | None = None
    control: str = "unknown"
    control_since: str | None = None
    control_error: str = ""
    answered: bool = False
    remote: bool = False

    def ended(self, reaper: Reaper) -> tuple[bool, int | None]:
        """Whether it has ended, and its wait status where the kernel told us."""
        status = reaper.status(self.pid)
        if status is not None:
            return True, status
        if self.adopted:
            return holder(self.home / "lock") is None, None
        return False, None

    def wrote(self, pid: int) -> bool:
        """Whether a process that names itself in a file of the worker's directory is this one, not the one before."""
        return self.remote or pid == self.pid

    def signal(self, name: str) -> None:
        if self.remote and name == "SIGKILL":
            name = KILL
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, getattr(signal, name))


class Wakeup:
    """Lets a wait end as soon as a child ends or a signal arrives."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def wait(self, seconds: float) -> None:
        select.select([self._read], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass


def describe_status(status: int) -> str:
    """A wait status in words; empty for exit code 0."""
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return ""
    if code > 0:
        return f"exited with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def sweep(run_dir: RunDir, worker: int | None = None, *, spare: Collection[int] = ()) -> int:
    """Kill every process that a job's workers (or one of them) left behind, and wait for the end of each.

    They are known by the environment that workers hand to what they start. What ended sandboxes leave beside
    processes goes too.

    Args:
        spare: Workers whose processes stay.

    Returns:
        How many there were.
    """
    left = []
    me = os.getpid()
    spared = {str(index) for index in spare}
    for process in psutil.process_iter():
        if process.pid == me:
            continue
        try:
            env = process.environ()
        except (psutil.Error, OSError):
            continue
        its = env.get(marks.WORKER)
        if marks.belongs(env, run_dir) and its not in spared and (worker is None or its == str(worker)):
            left.append(process)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=5)
    sweep_sandboxes()
    return len(left)
