"""A real Hawk server whose jobs run in "pods": it only leaves what a pod is told; the tests play the cluster.

python -m tests.link.serve PODS [attach] [hawk.server's arguments]
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import hawk.server.__main__ as entry
from hawk import __version__
from hawk.config.settings import Settings, load_settings
from hawk.core.recorder.stacks import StackRecord
from hawk.core.states import StopAction
from hawk.engine.protocol import Liveness
from hawk.link.start import Start
from hawk.link.streams import SocketStream
from hawk.link.tokens import link_key, mint
from hawk.server.app import create_app
from hawk.store import stoprequests
from hawk.store.rundir import RunDir, write_atomic, write_json


class PodsEngine:
    """Implements `hawk.engine.protocol.Engine`."""

    name = "kubernetes"

    def __init__(self, settings: Settings, pods: Path, *, attach: bool) -> None:
        self._settings, self._pods, self._attach = settings, pods, attach
        self.app: Any = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._attached: set[str] = set()

    def launch(self, job_id: str, secrets: Mapping[str, str]) -> None:
        spec = RunDir(self._settings.root / job_id).read_spec()
        pod = self._pods / job_id
        (pod / "job").mkdir(parents=True, exist_ok=True)
        (pod / "ended").unlink(missing_ok=True)
        shared = "HAWK_TEST_SHARED" in os.environ
        start = Start(
            job=job_id,
            generation=spec.generation,
            base_dir=spec.base_dir if shared else str(pod / "source"),
            shared=shared,
            token=mint(link_key(self._settings.home), job_id, spec.generation),
            server=None if self._attach else os.environ["HAWK_TEST_URL"],
            log_shared=1,
            version=__version__,
        )
        write_atomic(pod / "job" / "secrets.json", msgspec.json.encode(dict(secrets)))
        write_json(pod / "job" / "start.json", start)

    def liveness(self, job_id: str) -> Liveness:
        pod = self._pods / job_id
        if self._attach and job_id not in self._attached and (pod / "job" / "start.json").exists():
            self._attached.add(job_id)
            asyncio.run_coroutine_threadsafe(self._keep_attached(job_id), self._loop)
        try:
            return Liveness(False, detail=f"its pod ended with {(pod / 'ended').read_text()}", final=True)
        except FileNotFoundError:
            return Liveness(True)

    async def _keep_attached(self, job_id: str) -> None:
        async def open_stream() -> SocketStream:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hawk.runner.pod",
                "attach",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "HAWK_RUN_BASE": (self._pods / job_id / "base").read_text()},
            )
            assert process.stdin is not None
            assert process.stdout is not None
            return SocketStream(process.stdout, process.stdin)

        await self.app.state.context.links.keep_attached(job_id, open_stream)

    def settle(self, job_id: str) -> None:
        path = str(self._settings.root / job_id)
        subprocess.run(
            [sys.executable, "-m", "hawk.runner.supervisor", "--settle", path, "its pod ended"], check=False
        )

    def stop(self, job_id: str, action: StopAction, sample_uuid: str | None) -> str:
        return stoprequests.request(RunDir(self._settings.root / job_id), action, sample_uuid).id

    def kill(self, job_id: str) -> None:
        self.app.state.context.links.drop(job_id)

    def sweep(self) -> None:
        pass

    def report(self, job_id: str) -> dict[str, Any]:
        return {"engine": self.name}

    def stacks(self, job_id: str, *, native: bool) -> list[StackRecord] | None:
        found: list[StackRecord] | None = self.app.state.context.links.ask_stacks(job_id, native)
        return found

    def close(self) -> None:
        pass


def main() -> int:
    pods, *arguments = sys.argv[1:]
    attach = arguments[:1] == ["attach"]
    engine = PodsEngine(load_settings(), Path(pods), attach=attach)

    def create(settings: Settings, **more: Any) -> Any:
        engine.app = create_app(settings, engine, **more)
        return engine.app

    entry.create_app = create  # type: ignore[assignment]
    return entry.main(arguments[1:] if attach else arguments)


if __name__ == "__main__":
    sys.exit(main())
