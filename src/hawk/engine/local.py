"""Runs jobs as local processes: one detached supervisor a job, which outlives the server.

Importing Inspect takes longer than anything else at the start of a job, so one template has imported it all, and
supervisors start as copies of it. When this process ends, so does the template; supervisors do not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil

from hawk.config.settings import Settings
from hawk.core.recorder.stacks import StackRecord
from hawk.core.states import StopAction
from hawk.engine.protocol import Liveness
from hawk.engine.starts import Start, Template
from hawk.sandbox.layerdirs import LayerDirs
from hawk.sandbox.layertidy import remove_leftovers
from hawk.sandbox.names import store_path
from hawk.sandbox.sweep import sweep as sweep_sandboxes
from hawk.store import desk, marks, stoprequests
from hawk.store.locks import holder
from hawk.store.rundir import RunDir

_log = logging.getLogger(__name__)

AGAIN_AFTER, AGAIN_BY, AGAIN_LOOK = 3.0, 20.0, 1.0
"""A template that is no longer of use is replaced between so many seconds after a launch, as soon as a core is idle:
its imports must not compete with the job's start. It looks once a second."""
STARTUP = 15.0
"""Seconds a supervisor may take to hold its lock before it counts as dead."""


class LocalEngine:
    """See `engine.protocol.Engine`."""

    name = "local"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = store_path(settings)
        self._lock = threading.Lock()
        self._environ = {name: value for name, value in os.environ.items() if name != "HAWK_TEMPLATE"}
        self._template: Template | None = None
        self._starts: dict[str, Start] = {}
        self._timer: threading.Timer | None = None
        self._closed = False
        self._make_template()

    def close(self) -> None:
        """End the template. Jobs run on, also those that waited for it."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            template, self._template = self._template, None
        for start in list(self._starts.values()):
            start.hurry()
        if template is not None:
            template.close()

    def launch(self, job_id: str, secrets: Mapping[str, str]) -> None:
        run_dir = self._run_dir(job_id)
        line = msgspec.json.encode({"run_dir": str(run_dir.path), "secrets": dict(secrets)}) + b"\n"
        with self._lock:
            if run_dir.supervisor_pid() is not None or self._starting(job_id):
                return
            start = self._starts[job_id] = Start(line, self._environ, self._socket())
        if start.refusal is not None:
            _log.warning("started without the template: %s", start.refusal)

    def liveness(self, job_id: str) -> Liveness:
        pid = self._run_dir(job_id).supervisor_pid()
        start = self._starts.get(job_id)
        code = start.status if start is not None else None
        if pid is not None:
            return Liveness(alive=True, pid=pid)
        if code is not None:
            detail = (
                f"its supervisor was killed by {_signal_name(-code)}"
                if code < 0
                else (f"its supervisor exited with code {code}" if code else None)
            )
            return Liveness(alive=False, detail=detail)
        if self._starting(job_id):
            return Liveness(alive=True, pid=start.pid if start else None)
        return Liveness(alive=False, detail="its supervisor died")

    def settle(self, job_id: str) -> None:
        detail = self.liveness(job_id).detail or "its supervisor died"
        command = [sys.executable, "-m", "hawk.runner.supervisor", "--settle"]
        subprocess.run(
            [*command, str(self._run_dir(job_id).path), detail], check=False, stdin=subprocess.DEVNULL
        )

    def stop(self, job_id: str, action: StopAction, sample_uuid: str | None) -> str:
        return stoprequests.request(self._run_dir(job_id), action, sample_uuid).id

    def kill(self, job_id: str) -> None:
        run_dir = self._run_dir(job_id)
        start = self._starts.get(job_id)
        if start is not None:
            start.cancel()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            doomed = self._processes(run_dir)
            if not doomed:
                break
            for process in doomed:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            if start is not None:
                start.wait(5)
            psutil.wait_procs(doomed, timeout=5)
        self._remove_links(run_dir)
        self.sweep()

    def sweep(self) -> None:
        sweep_sandboxes(self._store)
        try:
            remove_leftovers(LayerDirs(self._store))
        except OSError as ex:
            _log.warning("what was left of unfinished layers in %s can't be removed: %s", self._store, ex)

    def report(self, job_id: str) -> dict[str, Any]:
        run_dir = self._run_dir(job_id)
        rows = []
        for process in self._processes(run_dir):
            with contextlib.suppress(psutil.Error), process.oneshot():
                times = process.cpu_times()
                rows.append(
                    {
                        "pid": process.pid,
                        "name": process.name(),
                        "role": _role(process, run_dir),
                        "state": process.status(),
                        "cpu_seconds": round(times.user + times.system, 2),
                        "memory_bytes": process.memory_info().rss,
                        "started_at": process.create_time(),
                    }
                )
        return {"engine": self.name, "processes": sorted(rows, key=lambda row: row["started_at"])}

    def stacks(self, job_id: str, *, native: bool) -> list[StackRecord] | None:
        return desk.ask(self._settings.run_base, self._run_dir(job_id), desk.Question(native))

    # --- supervisors ----------------------------------------------------------------------------------

    def _run_dir(self, job_id: str) -> RunDir:
        return RunDir(self._settings.root / job_id)

    def _starting(self, job_id: str) -> bool:
        start = self._starts.get(job_id)
        if start is None or start.ended():
            return False
        return start.waiting() or time.monotonic() - start.since < STARTUP

    # --- the template ---------------------------------------------------------------------------------

    def _socket(self) -> Path | None:
        """Where to ask for a supervisor."""
        if self._settings.template is not None:
            return self._settings.template
        if self._template is None:
            return None
        path = self._template.path
        if not self._template.alive() or any(s.asked == path and s.refusal for s in self._starts.values()):
            self._replace_later()
            return None
        return path

    def _make_template(self) -> None:
        with self._lock:
            if not self._settings.warm or self._settings.template is not None or self._closed:
                return
            if self._template is not None:
                self._template.close()
            try:
                self._template = Template(self._settings.run_base.parent, self._environ)
            except OSError as ex:
                self._template = None
                _log.warning("jobs will start slowly: %s", ex)

    def _replace_later(self) -> None:
        psutil.cpu_percent()
        self._arm(AGAIN_AFTER, time.monotonic() + AGAIN_BY)

    def _arm(self, delay: float, by: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(delay, self._replace_if_idle, [by])
        self._timer.daemon = True
        self._timer.start()

    def _replace_if_idle(self, by: float) -> None:
        idle = (100.0 - psutil.cpu_percent()) / 100 * (os.cpu_count() or 1)
        if idle >= 0.8 or time.monotonic() >= by:
            self._make_template()
        else:
            with self._lock:
                if not self._closed:
                    self._arm(AGAIN_LOOK, by)

    def _remove_links(self, run_dir: RunDir) -> None:
        """Remove the short paths to a job's sockets, which its supervisor had no time to."""
        base = self._settings.run_base
        with contextlib.suppress(OSError):
            desk.address(base, run_dir).unlink(missing_ok=True)
            for link in base.iterdir():
                if link.is_symlink() and link.readlink().is_relative_to(run_dir.path):
                    link.unlink()
            base.rmdir()

    def _processes(self, run_dir: RunDir) -> list[psutil.Process]:
        """The supervisor, its workers, and everything that they started."""
        pids = {run_dir.supervisor_pid()}
        pids |= {holder(lock) for lock in (run_dir.path / "workers").glob("*/lock")}
        start = self._starts.get(run_dir.job_id)
        if start is not None and not start.ended():
            pids.add(start.pid)
        found: dict[int, psutil.Process] = {}
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                if pid is not None and pid > 0:
                    process = psutil.Process(pid)
                    for member in (process, *process.children(recursive=True)):
                        found[member.pid] = member
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if marks.belongs(process.environ(), run_dir):
                    found[process.pid] = process
        return [p for p in found.values() if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _role(process: psutil.Process, run_dir: RunDir) -> str:
    for lock in Path(run_dir.path / "workers").glob("*/lock"):
        if holder(lock) == process.pid:
            return f"worker {lock.parent.name}"
    return "supervisor" if run_dir.supervisor_pid() == process.pid else "child"
