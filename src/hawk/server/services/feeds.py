"""One status feed a job, shared by all who ask: built and encoded once, however many watch.

`Status` is the synchronous half (files, decoding, encoding; in a thread), `Feed` the half on the event loop.
A feed polls while someone watches or has asked lately, so that a request finds an answer ready.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from hawk.core import zstd
from hawk.core.snapshot import SealedSnapshot, Snapshot, Task
from hawk.core.states import JobStatus, Operation
from hawk.core.status import serve, shown_revision
from hawk.engine.protocol import Engine
from hawk.errors import NotFoundError
from hawk.server.services.podsfile import PodsFile
from hawk.server.services.registry import JobState, Registry, SnapshotFile, now
from hawk.store import queries
from hawk.store.database import Database
from hawk.store.rundir import RunDir

POLL = 0.25  # seconds between looks; the supervisor writes at most as often
FRESH = 0.2  # a request takes an answer of this age as it is
POLLED = 1.0  # the same while polling: a request must not wait for a rebuild that is under way
# Bytes a second for all streams of one kind of a feed together: watchers of a huge job get fewer updates. Copying
# into sockets was measured at 0.4 to 0.6 s of processor time a gigabyte; at this rate it takes no more of a processor
# than reading and encoding a status of 5 MB twice a second does (8 %). 200 watchers of the packed stream of such a
# job (125 kB an event) see four changes a second, 200 of the plain one a change every ten seconds.
STREAMED = 100e6
REFRESH = 5.0  # rebuilt at this age even when nothing changed: a dead clock would look like a dead server
LINGER = 30.0  # keep polling this long after the last request: `watch` polls every few seconds
PING = 15.0
FORGET = 300.0  # a feed nobody asked for is dropped, with the decoded snapshot it holds

_encoder = msgspec.json.Encoder()
_PING = b": ping\n\n"
_PACKED_PING = zstd.pack(_PING)


class Served(NamedTuple):
    """A status as it goes out."""

    key: tuple[Any, ...]
    snapshot: Snapshot
    body: bytes
    frame: bytes
    etag: str
    built_at: float

    @property
    def terminal(self) -> bool:
        return self.snapshot.status.terminal

    def tasks(self) -> list[Task]:
        """The job's tasks, decoded for this caller."""
        snapshot = self.snapshot
        return (snapshot.opened() if isinstance(snapshot, SealedSnapshot) else snapshot).tasks


class Status:
    """The status of one job, rebuilt when something it depends on has changed. Safe from any thread."""

    def __init__(self, job_id: str, registry: Registry, engine: Engine, database: Database) -> None:
        self.job_id = job_id
        self._registry = registry
        self._engine = engine
        self._database = database
        self._lock = threading.Lock()
        self._served: Served | None = None
        self._file = SnapshotFile(registry.run(job_id))
        self._pods = PodsFile(registry.run(job_id))
        self.deleting = False

    def current(self) -> Served:
        """The status now.

        Raises:
            NotFoundError: No such job.
        """
        with self._lock:
            created_by, deleted = self._known()
            state = self._registry.get(self.job_id)
            # The order matters: what a runner wrote before it died is read after its death was seen.
            liveness = self._engine.liveness(self.job_id) if state else None
            stamp, snapshot = (state.snapshot if state else self._file).read()
            alive = liveness is not None and liveness.alive
            errors = _errors(state, self._file, self._registry.run(self.job_id))
            if liveness is not None and liveness.problem:
                errors["pod_status"] = liveness.problem
            pods = self._pods.read()
            key = (
                stamp,
                self._pods.stamp,
                alive,
                deleted,
                self.deleting,
                state is not None,
                state and state.failing,
                tuple(errors.items()),
            )
            old = self._served
            if (
                old is not None
                and old.key == key
                and (old.terminal or time.monotonic() - old.built_at < REFRESH)
            ):
                return old
            reason, remedy = (state.failing if state and state.failing else None) or (None, None)
            shown = serve(
                snapshot,
                job_id=self.job_id,
                liveness_alive=alive,
                launching=state is not None and state.failing is None,
                deleted=deleted,
                importing=state is not None,
                created_by=created_by,
                now=now(),
                detail=reason or (liveness.detail if liveness else None),
                remedy=remedy or (liveness.remedy if liveness else None),
                pods=pods,
            )
            if errors:
                shown.errors = {**shown.errors, **errors}
            if self.deleting and not deleted:
                shown.operation = Operation.DELETING
            self._served = _encode(key, shown)
            return self._served

    def _known(self) -> tuple[str | None, bool]:
        with self._database.read() as session:
            job = queries.find_job(session, self.job_id)
        if job is None:
            raise NotFoundError(f"No eval set {self.job_id!r}.", remedy="hawk list eval-sets")
        return job.created_by, job.deleted_at is not None


def _errors(state: JobState | None, file: SnapshotFile, run: RunDir) -> dict[str, str]:
    errors = {}
    if state is not None and not run.has_room():
        # Said here, because the runner can't: what it has to say would go onto that disk.
        errors["storage"] = f"no space left on the disk of {run.path}: free some; finished attempts are kept"
    if state is not None and state.import_errors:
        name, why = next(iter(state.import_errors.items()))
        more = len(state.import_errors) - 1
        errors["import"] = f"{name}: {why}" + (f" (and {more} more)" if more else "")
    damaged = state.snapshot.error if state else file.error
    if damaged:
        errors["snapshot"] = damaged
    return errors


def _encode(key: tuple[Any, ...], snapshot: Snapshot) -> Served:
    etag = f'"{shown_revision(snapshot)}"'
    body = b'{"data":' + _encoder.encode(snapshot) + b',"etag":' + _encoder.encode(etag) + b"}"
    frame = b"event: status\ndata: " + body + b"\n\n"
    return Served(key, snapshot, body, frame, etag, time.monotonic())


class Feed:
    """The event loop's side of a job's status."""

    def __init__(self, status: Status, threads: ThreadPoolExecutor, stopping: asyncio.Event) -> None:
        self.status = status
        self._threads = threads
        self._stopping = stopping
        self._served: Served | None = None
        self._checked = 0.0
        self._asked = time.monotonic()
        self._watchers = {True: 0, False: 0}  # of the packed stream, of the plain one
        self._packing: tuple[Served, asyncio.Future[bytes]] | None = None
        self._refreshing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None

    @property
    def idle_for(self) -> float:
        """Seconds since anybody wanted it."""
        return 0.0 if any(self._watchers.values()) else time.monotonic() - self._asked

    async def get(self) -> Served:
        """The status, at most `FRESH` old; `POLLED` while somebody follows it.

        Raises:
            NotFoundError: No such job.
        """
        self._asked = time.monotonic()
        served = await self._refresh(FRESH if self._poller is None else POLLED)
        if self._poller is None and not served.terminal:
            self._poller = asyncio.create_task(self._poll(), name=f"feed {self.status.job_id}")
        return served

    def touch(self) -> None:
        """Something has happened that the next request must see."""
        self._checked = 0.0

    def wake(self) -> None:
        """Let watchers look up: the server is stopping."""
        self._changed.set()

    async def stream(self, *, packed: bool = False) -> AsyncIterator[bytes]:
        """Server-sent events: the status whenever it changes, until it is terminal.

        Args:
            packed: Each event as a Zstandard frame.
        """
        last: str | None = None
        not_before = 0.0
        self._watchers[packed] += 1
        try:
            while not self._stopping.is_set():
                changed = self._changed
                served = await self.get()
                early = not_before - time.monotonic()
                if served.etag == last:
                    if not await _within(changed, PING):
                        yield _PACKED_PING if packed else _PING
                elif early > 0 and not served.terminal:
                    await _within(changed, early)
                else:
                    last = served.etag
                    event = await self._packed(served) if packed else served.frame
                    not_before = time.monotonic() + len(event) * self._watchers[packed] / STREAMED
                    yield event
                    if served.terminal:
                        return
        except NotFoundError as ex:
            error = b"event: error\ndata: " + _encoder.encode(ex.envelope()) + b"\n\n"
            yield zstd.pack(error) if packed else error
        finally:
            self._watchers[packed] -= 1

    async def _packed(self, served: Served) -> bytes:
        """The event of a status as a Zstandard frame: made in a thread, by the first who asks for all who do."""
        if self._packing is None or self._packing[0] is not served:
            loop = asyncio.get_running_loop()
            self._packing = served, loop.run_in_executor(self._threads, zstd.pack, served.frame)
        return await asyncio.shield(
            self._packing[1]
        )  # a watcher that leaves must not take it from the others

    async def _refresh(self, age: float) -> Served:
        if self._served is not None and time.monotonic() - self._checked < age:
            return self._served
        async with self._refreshing:
            if self._served is not None and time.monotonic() - self._checked < age:
                return self._served
            loop = asyncio.get_running_loop()
            before = time.monotonic()
            served = await loop.run_in_executor(self._threads, self.status.current)
            changed = self._served is None or self._served.etag != served.etag
            self._served, self._checked = served, before
            if changed:
                self._changed.set()
                self._changed = asyncio.Event()
            return served

    async def _poll(self) -> None:
        try:
            while not self._stopping.is_set() and self.idle_for < LINGER:
                if (await self._refresh(0.0)).terminal:
                    return
                await asyncio.sleep(POLL)
        except NotFoundError:
            return
        finally:
            self._poller = None
            self.wake()


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Feeds:
    """All feeds by job id. On the event loop, but for `status` and `touch`."""

    def __init__(
        self, registry: Registry, engine: Engine, database: Database, stopping: asyncio.Event
    ) -> None:
        self._registry = registry
        self._engine = engine
        self._database = database
        self._stopping = stopping
        self._threads = ThreadPoolExecutor(2, "hawk-feed")
        self._feeds: dict[str, Feed] = {}
        self._guard = threading.Lock()

    def feed(self, job_id: str) -> Feed:
        """The one feed of a job; whether there is such a job shows when it is asked."""
        with self._guard:
            found = self._feeds.get(job_id)
            if found is None:
                status = Status(job_id, self._registry, self._engine, self._database)
                found = self._feeds[job_id] = Feed(status, self._threads, self._stopping)
            return found

    def status(self, job_id: str) -> Served:
        """The status now, for a caller in a thread.

        Raises:
            NotFoundError: No such job.
        """
        return self.feed(job_id).status.current()

    def job_status(self, job_id: str, known: str) -> str:
        """A job's status for a list: the given one, unless the job is in flight."""
        if self._registry.get(job_id) is None:
            return known
        try:
            return self.status(job_id).snapshot.status
        except NotFoundError:
            return JobStatus.DELETED

    def touch(self, job_id: str) -> None:
        """Something has happened to a job that the next request must see."""
        self.feed(job_id).touch()

    def prune(self) -> None:
        """Drop feeds that nobody wants any more."""
        with self._guard:
            for job_id in [j for j, feed in self._feeds.items() if feed.idle_for > FORGET]:
                del self._feeds[job_id]

    def wake_all(self) -> None:
        """Let every watcher look up: the server is stopping."""
        for feed in list(self._feeds.values()):
            feed.wake()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
