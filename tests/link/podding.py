"""A whole Hawk whose runners are "pods": processes with directories of their own, which know nothing but their Secret."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.system import TASKS, System, until


class LocalPod:
    """One pod: empty directories, and the pod's command. `remove` is what a lost node does to it."""

    def __init__(self, secret: Path, name: str, **more: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=f"hawk-pod-{name}-"))
        self.base = Path(tempfile.mkdtemp(prefix="hb-"))  # short: sockets
        (secret / "base").write_text(str(self.base))
        shutil.rmtree(secret / "source", ignore_errors=True)
        environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HAWK_")},
            "HAWK_POD_ROOT": str(secret),
            "HAWK_HOME": str(self.root / "home"),
            "HAWK_ROOT": str(self.root / "runs"),
            "HAWK_RUN_BASE": str(self.base),
            "HAWK_WARM": "0",
            "HAWK_MARK": str(self.root),
            **more,
        }
        self.log = self.root / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hawk.runner.pod"],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9 of everything in it, at once."""
        self.process.kill()
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()
        until("the pod's processes are gone", lambda: not self._family())

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.base, ignore_errors=True)

    def terminate(self) -> int:
        """What an eviction does. Returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def _family(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                ours = process.environ().get("HAWK_MARK") == str(self.root)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


class Pods(System):
    """A server, and the means to run its pods."""

    def __init__(self, base: Path, *, attach: bool = False, **environ: str) -> None:
        super().__init__(base, **environ)
        self.attach = attach
        self.pods = base / "pods"
        self.source = base / "source"
        self.source.mkdir(parents=True)
        shutil.copy(TASKS, self.source)
        self.port = _free_port()
        self.environ["HAWK_TEST_URL"] = f"http://127.0.0.1:{self.port}"
        self.running: dict[str, LocalPod] = {}
        self.made: list[LocalPod] = []

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "server.log").open("ab") as log:
            mode = ["attach"] if self.attach else []
            self.server = subprocess.Popen(
                [sys.executable, "-m", "tests.link.serve", str(self.pods), *mode, "--port", str(self.port)],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        pid = self.server.pid
        until("the server is up", lambda: self._record().get("pid") == pid and self.client().alive())

    def stop(self) -> None:
        for pod in self.made:
            pod.remove()
        super().stop()

    def submit(self, job_id: str, **more: object) -> str:  # type: ignore[override]
        return super().submit(
            job_id,
            base_dir=str(self.source),
            engine="kubernetes",
            **{"config": self._config(job_id, more), **more},
        )

    def _config(self, job_id: str, more: dict[str, object]) -> dict[str, object]:
        args = {
            "ledger": str(self.ledger(job_id)),
            "samples": more.get("samples", 4),
            "seconds": more.get("seconds", 0.6),
        }
        if (gate := more.pop("gate", None)) is not None:
            args["gate"] = str(gate)
        items = [{"name": name, "args": args} for name in ("left", "right")]
        return {
            "tasks": [{"file": TASKS.name, "items": items}],
            "models": [{"file": TASKS.name, "items": [{"name": "counted/m"}]}],
            **dict(more.pop("config", {})),  # type: ignore[call-overload]
        }

    def pod(self, job_id: str, **environ: str) -> LocalPod:
        """Run a pod for a job, in empty directories."""
        secret = self.pods / job_id
        until("the job is launched", lambda: (secret / "job" / "start.json").exists())
        pod = self.running[job_id] = LocalPod(secret, job_id, **environ)
        self.made.append(pod)
        return pod

    def ended(self, job_id: str, timeout: float = 120.0) -> int:
        """Wait for the pod's end, and let the engine know it as a cluster would. Returns the exit code."""
        pod = self.running[job_id]
        code = pod.process.wait(timeout)
        (self.pods / job_id / "ended").write_text(str(code))
        return code


@contextlib.contextmanager
def pods(base: Path, **options: object) -> Iterator[Pods]:
    system = Pods(base, **options)  # type: ignore[arg-type]
    system.start()
    try:
        yield system
    finally:
        system.stop()


class Cutter:
    """Between pods and a server: carries connections, and cuts them all when told to."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
            self.cuts += 1
        self._open = []

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
                outer = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            self._open += [inner, outer]
            for a, b in ((inner, outer), (outer, inner)):
                threading.Thread(target=_carry, args=[a, b], daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
