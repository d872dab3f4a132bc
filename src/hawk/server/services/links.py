"""The links of runners in pods: applies what they send into the run directories, and sends what the server has for them.

Everything else of the server then finds a job of a pod as it finds one of this machine: its files, its locks, its answers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from hawk import __version__
from hawk.config.ids import check_id
from hawk.core.recorder.stacks import StackRecord
from hawk.errors import HawkError
from hawk.link import tokens
from hawk.link.frames import PROTOCOL, ByteStream, Hello, LinkLost, Refused
from hawk.link.serving import Served, greet
from hawk.link.session import Connection
from hawk.link.vouching import Vouched
from hawk.store.borrowed import borrow, give_back
from hawk.store.rundir import RunDir

FORGIVEN = 10.0
"""Seconds for which the processes of a runner count as alive after its link broke: it comes again."""

ASKING = 45.0
"""Seconds that an answer may take."""

FIRST_DELAY, LONGEST_DELAY = 0.5, 10.0
"""Seconds between tries to attach to a pod."""

OpenStream = Callable[[], Awaitable[ByteStream]]

_log = logging.getLogger(__name__)


@dataclass
class _Live:
    """A link that is open."""

    served: Served
    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[None]
    ended: concurrent.futures.Future[None] = field(default_factory=concurrent.futures.Future)

    def cancel(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self.loop.call_soon_threadsafe(self.task.cancel)


class LinkHub:
    """All links of a server. Methods that are no coroutines may be called from any thread.

    Args:
        root: The parent of all run directories.
        key: Of link tokens.
        spans: Pods have middlemen of their own, which write the spans of their jobs.
    """

    def __init__(self, root: Path, key: bytes, *, spans: bool = True) -> None:
        self._root, self._key, self._spans = root, key, spans
        self._live: dict[str, _Live] = {}
        self._vouched: dict[str, Vouched] = {}
        self._guard = threading.Lock()
        self._threads = ThreadPoolExecutor(6, "hawk-link")
        self._closed = False

    # --- for the engine -------------------------------------------------------------------------------

    def connected(self, job_id: str) -> bool:
        """Whether the job's runner has its link open, and has all that it needs."""
        live = self._live.get(job_id)
        return live is not None and live.served.ready

    def ask_stacks(self, job_id: str, native: bool) -> list[StackRecord] | None:
        """The stacks of the job's workers, now; None when nobody is there to take them."""
        live = self._live.get(job_id)
        if live is None or not live.served.ready:
            return None
        future = asyncio.run_coroutine_threadsafe(live.served.session.ask("stacks", native=native), live.loop)
        try:
            answer = future.result(ASKING)
            return None if answer is None else msgspec.json.decode(answer, type=list[StackRecord])
        except (TimeoutError, concurrent.futures.CancelledError, msgspec.MsgspecError, UnicodeDecodeError):
            future.cancel()
            return None

    async def keep_attached(self, job_id: str, open_stream: OpenStream) -> None:
        """Keep a link to a runner that does not dial, again and again until it has said good-bye or this is cancelled.

        Args:
            open_stream: Runs `python -m hawk.runner.pod attach` in its pod; raises HawkError or OSError.
        """
        delay = FIRST_DELAY
        while not self._closed:
            try:
                if await self._serve(await open_stream(), job_id):
                    return
                delay = FIRST_DELAY
            except (HawkError, OSError, TimeoutError) as ex:
                _log.info("job %s: no link: %s", job_id, ex)
                delay = min(delay * 2, LONGEST_DELAY)
            await asyncio.sleep(delay)

    def drop(self, job_id: str) -> None:
        """End the link of a job, and let go of its locks: its runner is being removed."""
        live = self._live.get(job_id)
        if live is not None:
            live.cancel()
            with contextlib.suppress(TimeoutError):
                live.ended.result(10)
        self._release(job_id)

    def close(self) -> None:
        """The server ends. Runners go on, and come to the next one."""
        self._closed = True
        for live in list(self._live.values()):
            live.cancel()
        for job_id in list(self._vouched):
            self._release(job_id)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- for the route --------------------------------------------------------------------------------

    def admits(self, job_id: str, token: str) -> bool:
        """Whether a token opens the link of a job as it is now."""
        try:
            spec = RunDir(self._root / check_id(job_id)).read_spec()
        except HawkError:
            return False
        return tokens.good(self._key, token, job_id, spec.generation)

    async def take(self, stream: ByteStream, job_id: str) -> None:
        """Serve the link that a runner has dialled, to its end."""
        try:
            await self._serve(stream, job_id)
        except HawkError as ex:
            _log.info("job %s: its link ended: %s", job_id, ex)

    # --- one link -------------------------------------------------------------------------------------

    async def _serve(self, stream: ByteStream, job_id: str) -> bool:
        """Returns whether the runner has said good-bye, or must not come again.

        Raises:
            LinkLost: The link broke.
            ProtocolError: The runner did what it may not.
            StorageError: A file can't be written here.
        """
        connection = Connection(stream)
        try:
            hello = await greet(connection, partial(self._refusal, job_id))
            if isinstance(hello, Refused):
                _log.warning("job %s: link refused: %s", job_id, hello.reason)
                return hello.final
            run = RunDir(self._root / job_id)
            if hello.empty and not hello.shared:
                await asyncio.get_running_loop().run_in_executor(self._threads, _complete, run)
            served = Served(
                connection,
                run,
                hello,
                spans=self._spans and hello.spans,
                threads=self._threads,
                vouch=partial(self._vouch, run),
            )
            try:
                await self._alone(job_id, served)
            except LinkLost:
                if not served.gone:
                    raise
            if served.gone:
                await asyncio.get_running_loop().run_in_executor(self._threads, give_back, run)
            return served.gone
        finally:
            await connection.close()

    def _refusal(self, job_id: str, hello: Hello) -> Refused | None:
        if hello.job != job_id:
            return Refused(f"this is the link of {job_id!r}", final=True)
        try:
            spec = RunDir(self._root / check_id(job_id)).read_spec()
        except HawkError as ex:
            return Refused(f"there is no such job: {ex.message}", final=True)
        if not tokens.good(self._key, hello.token, job_id, spec.generation):
            why = "the job was started again" if hello.generation != spec.generation else "its token is wrong"
            return Refused(f"the runner of generation {hello.generation} is not wanted: {why}", final=True)
        if (hello.protocol, hello.version) != (PROTOCOL, __version__):
            return Refused(f"the server is hawk {__version__}, the runner {hello.version[:40]}", final=True)
        return None

    async def _alone(self, job_id: str, served: Served) -> None:
        """Run the only link of a job: the one before it ends first."""
        while True:
            with self._guard:
                before = self._live.get(job_id)
                if before is None:
                    task = asyncio.create_task(served.run())
                    live = self._live[job_id] = _Live(served, asyncio.get_running_loop(), task)
                    break
            before.cancel()
            await asyncio.wrap_future(before.ended)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with self._guard:
                del self._live[job_id]
            live.ended.set_result(None)
            self._release_later(job_id)
        if task.cancelled():
            raise LinkLost("another link took its place, or the server ends")
        task.result()

    # --- who lives ------------------------------------------------------------------------------------

    def _vouch(self, run: RunDir, locks: Mapping[str, int]) -> None:
        """Processes of a runner live, with these locks and pids."""
        with self._guard:
            vouched = self._vouched.setdefault(run.job_id, Vouched(run.path))
        vouched.hold(locks)

    def _release(self, job_id: str) -> None:
        with self._guard:
            vouched = self._vouched.pop(job_id, None)
        if vouched is not None:
            vouched.release()

    def _release_later(self, job_id: str) -> None:
        """Unless its runner comes again soon, nothing of it counts as alive any more."""

        def look() -> None:
            if job_id not in self._live:
                self._release(job_id)

        timer = threading.Timer(FORGIVEN, look)
        timer.daemon = True
        timer.start()


def _complete(run: RunDir) -> None:
    """Let the run directory have all that a runner needs who has nothing else. Raises: HawkError."""
    spec = run.read_spec()
    if spec.rescore is not None:
        borrow(run, spec.rescore)
