"""A worker's pod: takes what it is given, runs the worker, and lives until everything that it wrote has arrived.

    python -m hawk.runner.workpods.pod

It knows nothing but where its directories are (the pod's variables). Who reaches its socket (`hawk.runner.pod attach`, by the
cluster's API) is who may command it. A connection that breaks changes nothing for the worker; the next one goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from hawk import __version__
from hawk.bridge.control import ControlSocket
from hawk.bridge.selection import worker_environment
from hawk.config.requirements import located
from hawk.config.settings import Settings, load_settings
from hawk.errors import HawkError
from hawk.link.frames import ByteStream, LinkLost
from hawk.link.mux import Channel, Mux
from hawk.link.shares import WorkerShare
from hawk.link.streams import SocketStream
from hawk.runner import datahome, memory, stacktaking
from hawk.runner.environment import EnvironmentBuild
from hawk.runner.pod import say
from hawk.runner.pod_attach import socket_path
from hawk.runner.pod_files import unpack_source
from hawk.runner.pod_link import listener
from hawk.runner.processes import Worker, Zygote, become_subreaper
from hawk.runner.wire import RUN, ForkRequest
from hawk.runner.workerhome import directory
from hawk.runner.workpods.buffers import PERIOD, Buffers
from hawk.runner.workpods.children import Children
from hawk.runner.workpods.files import PodFiles
from hawk.runner.workpods.messages import (
    TOLD_TO_END,
    Begin,
    Done,
    Order,
    Phase,
    Question,
    Signal,
    State,
    Stream,
    heard,
)
from hawk.runner.workpods.messages import say as tell
from hawk.runner.workpods.sockets import NEAR, join_unix, join_with
from hawk.store.rundir import RunDir

LOOK = 0.2
"""Seconds between looks at the worker."""

UNTOLD = 600.0
"""Seconds in which somebody must come and say what to do."""

UNHEARD = 1800.0
"""Seconds for which a pod whose worker has ended waits for somebody to take what it has."""

PARKED = 300.0
"""Seconds for which a request to a model waits for a way to the middleman."""

GRACE = 20.0
"""Seconds of the pod's grace period in which what the worker has written must be taken."""

PLACES = (
    "HAWK_HOME",
    "HAWK_ROOT",
    "HAWK_RUN_BASE",
    "HAWK_POD_NAME",
    "HAWK_POD_UID",
    "HAWK_KUBE_NAMESPACE",
    "HAWK_KUBE_OWNER",
    "HOME",
    "HOSTNAME",
    "KUBECONFIG",
    "PYTHONPATH",
)
"""Variables that are this pod's own, whatever the worker is told."""


class WorkerPod:
    """One run of the pod's command."""

    def __init__(self, settings: Settings, job_id: str, index: int) -> None:
        self._settings, self._index = settings, index
        self._run_dir = RunDir(settings.root / job_id)
        self._home = directory(self._run_dir, RUN, index)
        self._data_home = datahome.link_path(settings.run_base, self._home)
        self._files = PodFiles(self._run_dir.path, WorkerShare(index))
        self._begin: Begin | None = None
        self._told, self._terminated, self._done = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._state = State(version=__version__)
        self._changed = asyncio.Condition()
        self._mux: Mux | None = None
        self._linked = asyncio.Event()
        self._current: asyncio.Task[None] | None = None
        self._children = Children()

    async def run(self) -> int:
        """To the end of the worker. Returns the exit code of the pod: 0 where everything was taken."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminated.set)
        become_subreaper()
        self._run_dir.create()
        server = await asyncio.start_unix_server(self._take, sock=listener(socket_path(self._settings)))
        try:
            if not await self._first(self._told, self._files.whole, seconds=UNTOLD):
                say("nobody came and said what to do")
                return 75
            try:
                await self._work()
            except (HawkError, RuntimeError, OSError) as ex:
                code, remedy = (2, getattr(ex, "remedy", None)) if isinstance(ex, HawkError) else (1, None)
                await self._is(phase=Phase.ENDED, code=code, reason=str(ex), remedy=remedy or "")
            return await self._part()
        finally:
            server.close()
            self._children.kill_all()
            if self._current is not None:
                self._current.cancel()
                await asyncio.gather(self._current, return_exceptions=True)

    async def _first(self, *events: asyncio.Event, seconds: float) -> bool:
        """Whether all of some events happen in time, and before the pod is told to end."""

        async def all_of() -> None:
            for event in events:
                await event.wait()

        wanted, ending = asyncio.create_task(all_of()), asyncio.create_task(self._ending())
        try:
            await asyncio.wait([wanted, ending], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return wanted.done()
        finally:
            wanted.cancel()
            ending.cancel()
            await asyncio.gather(wanted, ending, return_exceptions=True)

    async def _ending(self) -> None:
        await self._terminated.wait()

    # --- the worker -----------------------------------------------------------------------------------

    async def _work(self) -> None:
        begin = self._begin
        assert begin is not None
        await self._is(phase=Phase.PREPARING)
        spec = self._run_dir.read_spec()
        await asyncio.to_thread(unpack_source, self._run_dir, Path(spec.base_dir))
        python = await self._python([located(package, spec.base_dir) for package in spec.packages])
        datahome.make(self._settings.run_base, self._run_dir, self._home)
        environ = await self._environ(begin, python)
        request = ForkRequest(RUN, str(self._run_dir.path), self._index, environ, begin.cwd)
        zygote = await asyncio.to_thread(Zygote, python)
        try:
            pid = await asyncio.to_thread(zygote.fork, request, 600.0)
        finally:
            zygote.close()
        say(f"hawk {__version__}: worker {self._index} of {spec.job_id} started, pid {pid}")
        await self._is(phase=Phase.RUNNING, pid=pid)
        await self._watch(pid)

    async def _python(self, packages: list[str]) -> str:
        """The interpreter; of an environment that is made here where the eval set names packages. Raises: HawkError."""
        if not packages:
            return sys.executable
        build = EnvironmentBuild(self._settings, self._run_dir, packages)
        try:
            while (found := build.poll(self._children.reaper)) is None:
                if self._terminated.is_set():
                    raise HawkError("the pod was told to end")
                self._children.collect()
                await asyncio.sleep(LOOK)
        except BaseException:
            build.cancel()
            raise
        if isinstance(found, HawkError):
            raise found
        return found

    async def _environ(self, begin: Begin, python: str) -> dict[str, str]:
        """What the worker is told, with this pod's own places, and its way to the middleman."""
        told = {name: value for name, value in begin.environ.items() if name not in PLACES}
        told["PATH"] = f"{Path(python).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        if begin.middleman is not None:
            server = await asyncio.start_server(self._to_middleman, "127.0.0.1", 0)
            here = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            told = {name: _moved(value, begin.middleman, here) for name, value in told.items()}
        selected = self._home / "selection.json"
        return {**os.environ, **told, **worker_environment(self._data_home, selected=selected)}

    async def _watch(self, pid: int) -> None:
        """Until the worker has ended. When the pod is told to end, it is killed: one that closes its logs calls canceled what
        another pod is to run again."""
        killed = False
        before = last = await asyncio.to_thread(memory.look, pid)
        looked = time.monotonic()
        while (status := self._children.ended(pid)) is None:
            if time.monotonic() - looked > 1.0:
                looked, last = time.monotonic(), await asyncio.to_thread(memory.look, pid) or last
                before = before or last
            answers = ControlSocket(self._data_home).find() is not None
            if answers != self._state.answers:
                await self._is(answers=answers)
            if self._terminated.is_set() and not killed:
                killed = True
                _signal(pid, "SIGKILL")
            await asyncio.sleep(LOOK)
        code = os.waitstatus_to_exitcode(status)
        reason = TOLD_TO_END if killed else _memory(code, before, last)
        say(f"worker {self._index} ended with {code} {reason}".rstrip())
        await self._is(phase=Phase.ENDED, code=code, reason=reason, answers=False)

    async def _part(self) -> int:
        """Have everything taken, and be told so. Returns the exit code."""
        seconds = GRACE if self._terminated.is_set() else UNHEARD
        try:
            async with asyncio.timeout(seconds):
                await self._files.sent()
                await self._is(settled=True)
                await self._done.wait()
            return 0
        except TimeoutError:
            say("nobody took what the worker wrote last")
            return 75

    # --- connections ----------------------------------------------------------------------------------

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The newest counts: the one before it may be dead and not know it."""
        before, stream = self._current, SocketStream(reader, writer)
        self._current = asyncio.create_task(self._carry(before, stream))

    async def _carry(self, before: asyncio.Task[None] | None, stream: ByteStream) -> None:
        if before is not None:
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)
        mux = self._mux = Mux(stream, odd=True, accept=self._serve)
        self._linked.set()
        try:
            await mux.run()
        except HawkError as ex:
            say(f"the connection ended: {ex.message}")
        finally:
            if self._mux is mux:
                self._mux = None
                self._linked.clear()

    async def _serve(self, channel: Channel) -> None:
        match channel.name:
            case Stream.ORDERS:
                await self._orders(channel)
            case Stream.FILES:
                await self._files.carry(channel)
            case Stream.BUFFERS:
                await self._buffers(channel)
            case Stream.STACKS:
                await self._stacks(channel)
            case Stream.CONTROL if (path := ControlSocket(self._data_home).find()) is not None:
                await join_unix(channel, path)
            case Stream.RECORDER:
                await join_unix(channel, self._data_home / NEAR[Stream.RECORDER])

    async def _orders(self, channel: Channel) -> None:
        saying = asyncio.create_task(self._say(channel))
        try:
            orders: AsyncIterator[Order] = heard(channel, Order)
            async for order in orders:
                self._obey(order)
        finally:
            saying.cancel()
            await asyncio.gather(saying, return_exceptions=True)

    def _obey(self, order: Order) -> None:
        match order:
            case Begin():
                if self._begin is None:
                    self._begin = order
                    self._told.set()
            case Signal(name=name):
                if self._state.phase is Phase.RUNNING:
                    _signal(self._state.pid, name)
                elif self._state.phase is not Phase.ENDED:
                    self._terminated.set()
            case Done():
                if self._state.settled:
                    self._done.set()

    async def _say(self, channel: Channel) -> None:
        """Every state, as it changes."""
        while True:
            said = self._state
            with contextlib.suppress(LinkLost):
                await tell(channel, said)
            async with self._changed:
                await self._changed.wait_for(lambda said=said: self._state is not said)  # type: ignore[misc]

    async def _is(self, **changes: object) -> None:
        async with self._changed:
            self._state = msgspec.structs.replace(self._state, **changes)
            self._changed.notify_all()

    async def _buffers(self, channel: Channel) -> None:
        buffers = Buffers(self._run_dir.buffers)
        while True:
            for news in await asyncio.to_thread(lambda: list(buffers.news())):
                await tell(channel, news)
            await asyncio.sleep(PERIOD)

    async def _stacks(self, channel: Channel) -> None:
        """The worker's stacks, as a supervisor beside it takes them."""
        questions: AsyncIterator[Question] = heard(channel, Question)
        async for question in questions:
            worker = Worker(self._index, self._home, self._data_home, (), self._state.pid)
            record = await asyncio.to_thread(stacktaking.take, worker, question.why, native=question.native)
            await tell(channel, record)
            return

    async def _to_middleman(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a request to the middleman beside the supervisor; while there is no connection it waits."""

        async def reached() -> Mux:
            try:
                async with asyncio.timeout(PARKED):
                    while self._mux is None:
                        await self._linked.wait()
                        await asyncio.sleep(0)
                    return self._mux
            except TimeoutError as ex:
                raise LinkLost("the supervisor's pod can't be reached") from ex

        await join_with(Stream.MODELS, reached, reader, writer)


def _moved(value: str, there: str, here: str) -> str:
    return here + value.removeprefix(there) if value.startswith(there) else value


def _signal(pid: int, name: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, getattr(signal, name))


def _memory(code: int, before: memory.Memory | None, last: memory.Memory | None) -> str:
    """Whether the kernel killed the worker because the pod had no memory left, in words."""
    if code != -signal.SIGKILL or before is None or last is None or memory.kills(last) <= before.kills:
        return ""
    used, limit = last.used / 2**20, last.limit / 2**20
    return f"out of memory: the kernel killed it, {used:,.0f} of {limit:,.0f} MiB were in use in its pod"


def main() -> int:
    """Run the pod's command. Returns the exit code."""
    os.umask(0o077)
    try:
        pod = WorkerPod(load_settings(), os.environ["HAWK_POD_JOB"], int(os.environ["HAWK_POD_WORKER"]))
        return asyncio.run(pod.run())
    except (HawkError, OSError, KeyError, ValueError) as ex:
        say(f"this can't run: {ex.render() if isinstance(ex, HawkError) else ex}")
        return 64


if __name__ == "__main__":
    sys.exit(main())
