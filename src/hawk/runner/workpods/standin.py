"""Stands in for a worker that has a pod of its own: makes the pod, carries files and sockets, ends as the worker ends.

    python -m hawk.runner.workpods.standin              one worker: its `Assignment` comes on standard input
    python -m hawk.runner.workpods.standin --living     says on standard output which workers have a pod (JSON)

To the supervisor this is the worker: it holds its lock, its sockets are where a local worker's are, signals reach it, and its
exit status is the worker's. SIGUSR2 is what SIGKILL is to a local one: the pod is deleted. When this process dies, the pod
lives on, and the next one goes on with it, or replaces it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from hawk.config.settings import load_settings
from hawk.core.cluster_why import Stage, why_not_started
from hawk.errors import ClusterError, HawkError
from hawk.kube.api import Cluster, connect
from hawk.link.frames import LinkLost
from hawk.runner.processes import KILL
from hawk.runner.wire import RUN
from hawk.runner.workerhome import Exit, directory
from hawk.runner.workpods.connection import Connection
from hawk.runner.workpods.messages import TOLD_TO_END, Begin, Phase, State
from hawk.runner.workpods.pods import CONTAINER, GENTLE, Owner, Pods, for_want_of_room, read_template
from hawk.store.locks import hold
from hawk.store.rundir import JournalEntry, RunDir, write_json

ATTACH = ["python", "-m", "hawk.runner.pod", "attach"]

LOOK = 1.0
"""Seconds between looks at a pod that does not run yet."""

AGAIN = 5.0
"""Seconds between tries to make a pod that there is no room for."""

HOPELESS = 300.0
"""Seconds for which a pod may say that something is wrong with it, before its worker counts as failed."""

ENDING = 15.0
"""Seconds in which the cluster must say how a pod ended that has broken its connection."""

TELLING = 2.0
"""The same of one that has said itself that it was told to end."""

REMOVING = 20.0
"""Seconds in which the cluster must take it that a pod is to go."""

FIRST_DELAY, LONGEST_DELAY = 0.2, 10.0
"""Seconds between tries to reach a pod that runs."""

LISTING = 60.0
"""Seconds for which the cluster is asked which pods there are."""


class Assignment(msgspec.Struct):
    """What a stand-in is told, by pipe: secrets are among the variables.

    Attributes:
        environ: The worker's variables.
        cwd: Its directory.
        template: File with the pod of any worker of this job.
        middleman: Address of the middleman beside the supervisor; None: the pod reaches its models itself.
        pod: The pod that is there already; None: one is made.
    """

    run_dir: str
    index: int
    environ: dict[str, str]
    cwd: str
    template: str
    middleman: str | None = None
    pod: str | None = None


class Ending(NamedTuple):
    """How the worker has ended. `code` as in `State`; `reason` where it could not say so itself."""

    code: int
    reason: str = ""
    remedy: str = ""


class StandIn:
    """Of one worker."""

    def __init__(self, told: Assignment, cluster: Cluster) -> None:
        self._told, self._cluster = told, cluster
        self._run_dir = RunDir(Path(told.run_dir))
        self._pods = Pods(cluster, read_template(Path(told.template)), Owner.of(os.environ))
        self._pod = told.pod or self._pods.new_name(told.index)
        begin = Begin(told.environ, told.cwd, told.middleman)
        self._connection = Connection(self._run_dir, told.index, load_settings().run_base, begin)
        self._signals: asyncio.Queue[str] = asyncio.Queue()
        self._said: set[str] = set()

    async def run(self) -> Ending:
        """To the end of the worker. Returns how it ended."""
        loop = asyncio.get_running_loop()
        for name in ("SIGINT", "SIGTERM", KILL):
            loop.add_signal_handler(getattr(signal, name), self._signals.put_nowait, name)
        await self._connection.open()
        tasks = [asyncio.create_task(self._stand()), asyncio.create_task(self._heed_signals())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            end = next(iter(done)).result()
        except HawkError as ex:
            end = Ending(1, ex.message, ex.remedy or "")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._connection.close()
        with contextlib.suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(REMOVING):
                await self._pods.remove(self._pod, 0 if end.code == -signal.SIGKILL else GENTLE)
        return end

    async def _heed_signals(self) -> Ending:
        while True:
            name = await self._signals.get()
            if name == KILL:
                return Ending(-signal.SIGKILL)
            if self._told.pod is None and self._connection.state.phase is Phase.NEW:
                return Ending(130, "interrupted before its pod ran")
            try:
                await self._connection.signal(name)
            except LinkLost:
                asyncio.get_running_loop().call_later(LOOK, self._signals.put_nowait, name)

    # --- the pod --------------------------------------------------------------------------------------

    async def _stand(self) -> Ending:
        """Raises: ClusterError when there can't be a pod."""
        if self._told.pod is None:
            await self._make()
        self._note("pod made" if self._told.pod is None else "pod found", self._pod)
        delay = FIRST_DELAY
        while True:
            if (end := await self._runs()) is not None:
                return end
            began = time.monotonic()
            try:
                stream = await self._cluster.open_exec(self._pod, ATTACH, container=CONTAINER)
                last = await self._connection.carry(stream)
                if last is not None:
                    return await self._ended(last)
            except HawkError as ex:
                self._note_once("pod not reached", ex.message)
            if (gone := await self._pods.end_of(self._pod, delay)) is not None:
                return Ending(-signal.SIGKILL, f"its pod {gone.words}")
            lasted = time.monotonic() - began > LONGEST_DELAY
            delay = FIRST_DELAY if lasted else min(delay * 2, LONGEST_DELAY)

    async def _make(self) -> None:
        while True:
            try:
                return await self._pods.make(self._told.index, self._pod)
            except ClusterError as ex:
                if not for_want_of_room(ex):
                    raise
                self._note_once("pod waits", ex.message)
            await asyncio.sleep(AGAIN)

    async def _runs(self) -> Ending | None:
        """Return when the pod runs, or has ended, or never will run."""
        wrong: float | None = None
        while True:
            try:
                pod = await self._pods.look(self._pod)
            except ClusterError as ex:
                self._note_once("pod not reached", ex.message)
                await asyncio.sleep(LOOK)
                continue
            if pod is None or pod.phase not in ("Pending", "Running", ""):
                end = await self._pods.end_of(self._pod, ENDING)
                return Ending(-signal.SIGKILL, f"its pod {end.words if end is not None else 'has ended'}")
            if any(c.name == CONTAINER and c.state == "running" for c in pod.containers):
                return None
            why = why_not_started(pod)
            if why is not None:
                self._note_once("pod waits", why.text)
            if why is None or why.stage is Stage.SCHEDULING:
                wrong = None
            elif time.monotonic() - (wrong := wrong or time.monotonic()) > HOPELESS:
                return Ending(1, f"its pod does not start: {why.text}")
            await asyncio.sleep(LOOK)

    async def _ended(self, state: State) -> Ending:
        """How the worker ended; where its pod was told to end, why."""
        code, reason = state.code if state.code is not None else 1, state.reason
        if reason == TOLD_TO_END:
            end = await self._pods.end_of(self._pod, TELLING)
            reason = f"its pod {end.words}" if end is not None else reason
        return Ending(code, reason if code else "", state.remedy)

    # --- the journal ----------------------------------------------------------------------------------

    def _note_once(self, state: str, reason: str) -> None:
        if (said := f"{state}: {reason}") not in self._said:
            self._said.add(said)
            self._note(state, reason)

    def _note(self, state: str, reason: str) -> None:
        entry = JournalEntry(datetime.now(UTC).isoformat(), "worker", str(self._told.index), state, reason)
        with contextlib.suppress(HawkError):
            self._run_dir.append_journal(entry)


def _leave(end: Ending, home: Path) -> None:
    """End this process as the worker ended."""
    if end.reason:
        code = end.code if end.code >= 0 else 128 - end.code
        with contextlib.suppress(HawkError):
            write_json(
                home / "exit.json",
                Exit(code, datetime.now(UTC).isoformat(), end.reason[:2000], "", end.remedy),
            )
    sys.stderr.flush()
    if end.code < 0:
        if -end.code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-end.code, signal.SIG_DFL)
        os.kill(os.getpid(), -end.code)
    os._exit(end.code)


async def _stand(told: Assignment) -> Ending:
    try:
        async with await connect() as cluster:
            return await StandIn(told, cluster).run()
    except HawkError as ex:
        return Ending(1, ex.message, ex.remedy or "")
    except (
        Exception
    ) as ex:  # a fault of Hawk's own: the worker is told of as one that failed, and started again
        traceback.print_exc()
        return Ending(1, f"what stands for it failed: {type(ex).__name__}: {ex}")


async def _living(template: Path) -> dict[int, str]:
    async with await connect() as cluster, asyncio.timeout(LISTING):
        while True:
            try:
                return await Pods(cluster, read_template(template), Owner.of(os.environ)).living()
            except ClusterError:
                await asyncio.sleep(LOOK)


def main() -> int:
    os.umask(0o077)
    if sys.argv[1:2] == ["--living"]:
        sys.stdout.write(msgspec.json.encode(asyncio.run(_living(Path(sys.argv[2])))).decode())
        return 0
    told = msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)
    home = directory(RunDir(Path(told.run_dir)), RUN, told.index)
    if hold(home / "lock") is None:
        return 75  # another process is this worker
    _leave(asyncio.run(_stand(told)), home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
