"""A runner in a pod: gets the job from the server, runs its supervisor, and carries what it writes back.

    python -m hawk.runner.pod           the pod's command
    python -m hawk.runner.pod attach    joins standard input and output with the link: for a server that comes to the pod

Nothing in the pod outlives it: the server's copy is the job, and the next pod goes on from there. Exit codes say what the
Job should do (`Code`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from enum import IntEnum
from pathlib import Path

import msgspec

from hawk import __version__
from hawk.config.settings import Settings, load_settings
from hawk.core.states import JobStatus
from hawk.errors import HawkError, StorageError
from hawk.link.start import WORKER_POD, Start
from hawk.runner.pod_files import read_job, relocate, unpack_source
from hawk.runner.pod_link import PodLink
from hawk.runner.pod_processes import SupervisorProcess
from hawk.store.rundir import RunDir

LOOK = 0.2
"""Seconds between looks at the supervisor."""

UNREACHABLE = 600.0
"""Seconds for which a pod waits for a server at the beginning, and at the end for what is not acknowledged yet."""

BEGINNING = 5.0
"""Seconds between looks at whether the server still says something, while the run directory comes."""

GRACE = 20.0
"""Seconds of the pod's grace period that may be used up; Kubernetes' own default is 30."""


class Code(IntEnum):
    """How the pod's command ends."""

    DONE = 0
    """The job has ended, well or not, and the server has everything."""
    HOPELESS = 64
    """To begin again is no use: what the pod was told is wrong, or the server does not want it."""
    DIED = 70
    """The supervisor died, or the pod was told to end: another pod goes on."""
    UNREACHABLE = 75
    """The server could not be reached for long; it lacks what was written last."""


class Pod:
    """One run of the pod's command."""

    def __init__(self, start: Start, secrets: dict[str, str], settings: Settings) -> None:
        self._start, self._secrets, self._settings = start, secrets, settings
        self._run_dir = RunDir(settings.root / start.job)
        self._link = PodLink(start, settings, self._run_dir)
        self._terminated = asyncio.Event()
        self._supervisor: SupervisorProcess | None = None

    async def run(self) -> Code:
        """To the end of the job, or of the pod. Raises: HawkError where to begin again is no use."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminated.set)
        if self._start.version and self._start.version != __version__:
            say(f"this is hawk {__version__}; the server that made the job's Secret is {self._start.version}")
            return Code.HOPELESS
        link = asyncio.create_task(self._link.run())
        try:
            begun = await self._begin()
            return begun if begun is not None else await self._carry()
        finally:
            link.cancel()
            await asyncio.gather(link, return_exceptions=True)
            if self._supervisor is not None:
                self._supervisor.kill_all()

    async def _begin(self) -> Code | None:
        """Get the job and start it. Returns how the pod ends when that can't be."""
        if not self._start.shared:
            self._run_dir.create()
        events = (self._link.ready, self._terminated, self._link.refused)
        while not await self._one_of(*events, seconds=BEGINNING):
            if self._link.quiet < UNREACHABLE:  # kept workspaces may take longer to come
                continue
            say(f"no server within {UNREACHABLE:.0f} s: {self._link.problem}")
            return Code.UNREACHABLE
        if self._terminated.is_set():
            return Code.DIED
        if self._link.refused.is_set():
            say(f"the server does not want this runner: {self._link.problem}")
            return Code.HOPELESS
        await asyncio.to_thread(unpack_source, self._run_dir, Path(self._start.base_dir))
        relocate(self._run_dir, self._start)
        self._supervisor = SupervisorProcess(self._run_dir, self._secrets, self._environ())
        say(f"hawk {__version__}: job {self._start.job}, generation {self._start.generation}, started")
        return None

    async def _carry(self) -> Code:
        assert self._supervisor is not None
        while not self._supervisor.ended() and not self._terminated.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._terminated.wait()
            if self._link.refused.is_set():
                say(f"the server does not want this runner any more: {self._link.problem}")
                return Code.HOPELESS
        told_to_end = not self._supervisor.ended()
        self._supervisor.kill_all()
        done = self._supervisor.status == 0 and self._is_over()
        seconds = GRACE if told_to_end else UNREACHABLE
        if not await self._link.finish(seconds):
            say(f"the server lacks what was written last: {self._link.problem}")
            if not told_to_end:
                return Code.UNREACHABLE
        if told_to_end:
            say("told to end; another pod goes on with the job")
        elif not done:
            say(f"the supervisor ended with {self._supervisor.status}: see supervisor.log (hawk logs)")
        return Code.DONE if done else Code.DIED

    def _is_over(self) -> bool:
        try:
            snapshot = self._run_dir.read_snapshot()
        except StorageError:
            return False
        return snapshot is not None and JobStatus(snapshot.status).terminal

    async def _one_of(self, *events: asyncio.Event, seconds: float) -> bool:
        """Whether one of some events happens in time."""
        waiting = [asyncio.create_task(event.wait()) for event in events]
        try:
            done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for task in waiting:
                task.cancel()

    def _environ(self) -> dict[str, str]:
        """The supervisor's: its middleman, and that this machine may be lost with all its disks."""
        own = {k: v for k, v in os.environ.items() if k not in ("HAWK_TEMPLATE", "HAWK_POD_ROOT")}
        own["HAWK_LOG_SHARED"] = str(self._start.log_shared)
        template = job_directory() / WORKER_POD
        if template.exists():
            own["HAWK_WORKER_POD"] = str(template)
        if self._start.middleman and self._start.middleman_token:
            own["HAWK_JOB_MIDDLEMAN_URL"] = self._start.middleman
            own["HAWK_JOB_MIDDLEMAN_TOKEN"] = self._start.middleman_token
        else:
            own["HAWK_MIDDLEMAN"] = "0"
        return own


def job_directory() -> Path:
    """Where what the pod is told is."""
    return Path(os.environ.get("HAWK_POD_ROOT") or "/hawk") / "job"


def say(text: str) -> None:
    """A line for the container's log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the pod's command. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    os.umask(0o077)
    if arguments == ["attach"]:
        from hawk.runner.pod_attach import attach

        return attach(load_settings())
    try:
        settings = load_settings()
        start, secrets = read_job(job_directory())
        return asyncio.run(Pod(start, secrets, settings).run())
    except (HawkError, msgspec.MsgspecError, OSError) as ex:
        say(f"this can't run: {ex.render() if isinstance(ex, HawkError) else ex}")
        return Code.HOPELESS


if __name__ == "__main__":
    sys.exit(main())
