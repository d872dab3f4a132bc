"""The supervisor as a child of the pod's command, which adopts whatever is left of it and its workers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping

import msgspec
import psutil

from hawk.runner.processes import become_subreaper
from hawk.store.rundir import RunDir


class SupervisorProcess:
    """Started with the object; told its job by pipe, as the engine of one machine tells it."""

    def __init__(self, run_dir: RunDir, secrets: Mapping[str, str], environ: Mapping[str, str]) -> None:
        become_subreaper()
        self.status: int | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hawk.runner.supervisor", "--told"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=dict(environ),
        )
        line = msgspec.json.encode({"run_dir": str(run_dir.path), "secrets": dict(secrets)}) + b"\n"
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin:
            self._process.stdin.write(line)

    def ended(self) -> bool:
        """Whether it has; how is in `status`. Buries adopted processes on the way."""
        while self.status is None:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                found = None
            if found is None:
                break
            if found.si_pid == self._process.pid:
                self.status = self._process.wait()
            else:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(found.si_pid, os.WNOHANG)
        return self.status is not None

    def kill_all(self) -> None:
        """End it and everything that it started, and wait for the end of each."""
        for _ in range(20):
            family = psutil.Process().children(recursive=True)
            if not family:
                break
            for process in family:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            if self.status is None:
                self.status = self._process.wait()
            psutil.wait_procs(family, timeout=1.0)
