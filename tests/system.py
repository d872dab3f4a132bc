"""A whole Hawk in a directory of its own: a real server process, real jobs, and the means to kill any of it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from hawk.bridge.keptsample import find_samples
from hawk.client import HawkClient
from hawk.core.snapshot import Snapshot
from hawk.engine.starts import Template
from hawk.errors import HawkError
from hawk.store.attempts import read_results
from hawk.store.locks import holder
from hawk.store.marks import belongs
from hawk.store.rundir import RunDir

T = TypeVar("T")
TASKS = Path(__file__).with_name("counted.py")


def until(what: str, probe: Callable[[], T | None], timeout: float = 60.0, period: float = 0.05) -> T:
    """Poll until the probe gives something true; fail with `what` when it does not in time."""
    deadline = time.monotonic() + timeout
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(period)


def safe(run: RunDir) -> dict[str, str]:
    """Uuids of attempts, by `task/sample/attempt`, whose result is in a run directory and whose record is in its logs."""
    logged = find_samples(run.logs)
    results, _ = read_results(run)
    return {
        f"{r.pair.task}/{r.pair.sample}/{r.attempt}": r.uuid
        for r in results
        if r.uuid is not None and r.uuid in logged
    }


@functools.cache
def shared_template() -> str:
    """Socket of the process that has imported everything, for all servers of this test process.

    `HAWK_TEMPLATE`, where it is set, is another one, or none when it is empty.
    """
    if "HAWK_TEMPLATE" in os.environ:
        return os.environ["HAWK_TEMPLATE"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HAWK_")}
    template = Template(Path(tempfile.gettempdir()), environ)
    atexit.register(template.close)
    return str(template.path)


class System:
    """One `HAWK_HOME` and its server.

    Args:
        base: Directory for everything.
        home: `HAWK_HOME`, when it should be elsewhere.
        root: Parent of the run directories, when it should be elsewhere.
        environ: More variables.
    """

    def __init__(
        self, base: Path, *, home: Path | None = None, root: Path | None = None, **environ: str
    ) -> None:
        self.home = home or base / "home"
        self.root = root or self.home / "runs"
        self.links = Path(tempfile.gettempdir()) / f"hawk-{secrets.token_hex(6)}"  # short: sockets live below
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HAWK_")},
            "HAWK_HOME": str(self.home),
            "HAWK_ROOT": str(self.root),
            "HAWK_RUN_BASE": str(self.links),
            "HAWK_MIDDLEMAN": "0",  # a process more, for tests that say so
            "HAWK_WARM": "0",  # a template each imports for seconds, which tests on a small machine feel
            "HAWK_TEMPLATE": shared_template(),
            **environ,
        }
        self.server: subprocess.Popen[bytes] | None = None

    # --- the server -----------------------------------------------------------------------------------

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        log = (self.home / "server.log").open("ab")
        with log:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "hawk.server", "--port", "0"],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        pid = self.server.pid
        until("the server is up", lambda: self._record().get("pid") == pid and self.client().alive())

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def stop(self) -> None:
        """End the server politely, then whatever jobs are left."""
        if self.server is not None and self.server.poll() is None:
            self.server.terminate()
            self.server.wait(timeout=30)
        until("its jobs are gone", self._kill_jobs, 30)

    def _kill_jobs(self) -> bool:
        """Kill what there is; True when there was nothing. A worker that has just been forked holds no lock yet."""
        found = [process for run in self.run_dirs() for process in self.processes(run.job_id)]
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if "hawk.runner" in " ".join(process.cmdline()) and self._is_ours(process):
                    found.append(process)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=5)
        return not found

    def _is_ours(self, process: psutil.Process) -> bool:
        """By its environment; by where its errors go, when it is a copy of the shared template, with its environment."""
        if process.environ().get("HAWK_HOME") == str(self.home):
            return True
        errors = Path(f"/proc/{process.pid}/fd/2")
        return errors.exists() and any(errors.readlink().is_relative_to(p) for p in (self.home, self.root))

    def client(self) -> HawkClient:
        return HawkClient(self._record()["url"], (self.home / "token").read_text().strip())

    def _record(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode((self.home / "server.json").read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.DecodeError):
            return {}

    def hawk(
        self, *args: str, check: bool = True, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line against this home."""
        done = subprocess.run(
            [sys.executable, "-m", "hawk.cli", *args],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"hawk {' '.join(args)} exited {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done

    # --- jobs -----------------------------------------------------------------------------------------

    def run_dir(self, job_id: str) -> RunDir:
        return RunDir(self.root / job_id)

    def run_dirs(self) -> list[RunDir]:
        return [RunDir(p) for p in self.root.glob("*") if p.is_dir()]

    def ledger(self, job_id: str) -> Path:
        return self.home / f"{job_id}.ledger"

    def submit(
        self,
        job_id: str,
        *,
        samples: int = 4,
        seconds: float = 0.6,
        runs: int = 2,
        gate: str = "",
        **more: Any,
    ) -> str:
        args = {"ledger": str(self.ledger(job_id)), "samples": samples, "seconds": seconds, "gate": gate}
        config = {
            "tasks": [{"file": str(TASKS), "items": [{"name": n, "args": args} for n in ("left", "right")]}],
            "models": [{"file": str(TASKS), "items": [{"name": "counted/m"}]}],
            "epochs": runs,
            **more.pop("config", {}),
        }
        with self.client() as client:
            body = {"eval_set_config": config, "eval_set_id": job_id, "base_dir": str(TASKS.parent), **more}
            return client.submit(body).eval_set_id

    def status(self, job_id: str) -> Snapshot:
        with self.client() as client:
            return client.status(job_id).data

    def finish(self, job_id: str, timeout: float = 120.0) -> Snapshot:
        """The status once the job has ended and its supervisor with it."""

        def ended() -> Snapshot | None:
            with contextlib.suppress(HawkError):
                status = self.status(job_id)
                if status.status.terminal and self.run_dir(job_id).supervisor_pid() is None:
                    return status
            return None

        return until(f"{job_id} has ended", ended, timeout)

    def uuid_of(self, job_id: str, sample_id: str = "s0") -> str:
        """The uuid of an attempt at a sample, once one runs whose uuid is known."""

        def found() -> str | None:
            samples = (sample for task in self.status(job_id).tasks for sample in task.samples)
            return next((s.uuid for s in samples if s.phase == "running" and s.id == sample_id), None)

        return until(f"an attempt at {sample_id} runs and has a uuid", found)

    def lines(self, job_id: str, word: str) -> list[str]:
        """Names of attempts that wrote `begin` or `done` into the ledger, in order."""
        try:
            text = self.ledger(job_id).read_text()
        except FileNotFoundError:
            return []
        return [line.split()[1] for line in text.splitlines() if line.startswith(f"{word} ")]

    def completed(self, job_id: str) -> list[str]:
        """Attempts that the job's last snapshot calls completed."""
        snapshot = self.run_dir(job_id).read_snapshot()
        if snapshot is None:
            return []
        return [
            f"{t.task_name}/{s.id}/{s.epoch}"
            for t in snapshot.tasks
            for s in t.samples
            if s.phase == "completed"
        ]

    # --- processes ------------------------------------------------------------------------------------

    def supervisor(self, job_id: str) -> int | None:
        return self.run_dir(job_id).supervisor_pid()

    def workers(self, job_id: str) -> list[int]:
        locks = (self.run_dir(job_id).path / "workers").glob("[0-9]*/lock")
        return [pid for pid in map(holder, locks) if pid is not None]

    def processes(self, job_id: str) -> list[psutil.Process]:
        """Every living process that belongs to the job."""
        run, pids = self.run_dir(job_id), {self.supervisor(job_id), *self.workers(job_id)}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                marked = belongs(process.environ(), run)
                if (marked or process.pid in pids) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def leftovers(self, job_id: str) -> list[str]:
        """What a job that has ended should not leave: processes, socket links, temporary files."""
        run = self.run_dir(job_id).path
        temporary = [
            str(p) for p in run.rglob(".*") if p.is_file() and p.name.count(".") > 1 and p.suffix != ".keep"
        ]
        sockets = [str(p) for p in run.rglob("*.sock")]
        links = [str(p) for p in self.links.glob("*")] if self.links.exists() else []
        return [*map(str, self.processes(job_id)), *temporary, *sockets, *links]


def kill(pid: int | None) -> None:
    """kill -9, as an operator or the kernel does it."""
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def repeated(names: list[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


@contextlib.contextmanager
def running(
    base: Path, *, home: Path | None = None, root: Path | None = None, **environ: str
) -> Iterator[System]:
    system = System(base, home=home, root=root, **environ)
    system.start()
    try:
        yield system
    finally:
        system.stop()
