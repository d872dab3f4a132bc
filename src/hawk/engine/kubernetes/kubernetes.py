"""Runs jobs on a cluster: a Job each, whose pod outlives this server.

A thread of its own has an event loop with one connection, the shared watch and the lease; everybody else asks what is
known already, or waits for what is done there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import hawk.kube.api as kube
from hawk.config.cluster import ClusterSettings, load_cluster_settings
from hawk.config.settings import Settings
from hawk.core.cluster import Job, PodsSeen
from hawk.core.cluster_why import JobEnd, how_job_ended
from hawk.core.recorder.stacks import StackRecord
from hawk.core.states import StopAction
from hawk.engine.kubernetes import jobsecrets, names
from hawk.engine.kubernetes.books import Book
from hawk.engine.kubernetes.launching import Launch
from hawk.engine.kubernetes.leases import Leadership
from hawk.engine.kubernetes.links import Attaching, LinkHub, NoLinks
from hawk.engine.kubernetes.removal import age, remove_all
from hawk.engine.kubernetes.reporting import report
from hawk.engine.kubernetes.sharing import require_shared
from hawk.engine.kubernetes.watches import Watches
from hawk.engine.protocol import Liveness
from hawk.errors import ClusterError, HawkError
from hawk.store import stoprequests
from hawk.store.rundir import JobSpec, RunDir

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

STARTUP = 15.0
"""Seconds until a Job that was just made has to be seen by the watch."""

ORPHANED = 120.0
"""Seconds after which a Job without a run directory is nobody's: a submit that was cut short."""


class KubernetesEngine:
    """See `engine.protocol.Engine`.

    Args:
        cluster: Settings; from the environment when left out.
        access: How the API is reached, when that is known already.

    Attributes:
        links: Who is asked over the links of runner pods; set by whoever carries them.

    Raises:
        ClusterError: There is no usable configuration of a cluster.
    """

    name = "kubernetes"

    def __init__(
        self, settings: Settings, cluster: ClusterSettings | None = None, *, access: Any = None
    ) -> None:
        self._settings = settings
        self.cluster_settings = cluster or load_cluster_settings()
        self.links: LinkHub = NoLinks()
        settings.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._root = names.root_mark(settings.root)
        self._guard = threading.Lock()
        self._books: dict[str, Book] = {}
        self._launching: set[str] = set()
        self._expected: dict[str, tuple[str, float]] = {}  # uid of a Job just made, and when
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="hawk-cluster", daemon=True)
        self._thread.start()
        try:
            self.cluster = self.call(self._connect(access), 30)
        except BaseException:
            self._end_loop()
            raise
        self._leadership = Leadership(self.cluster, f"hawk-{self._root}", str(settings.home))
        self._watches = Watches(self.cluster, self._known, self._all, lambda: self.leading, lambda: self.skew)
        self._tasks = self.call(self._begin(), 30)

    async def _connect(self, access: Any) -> kube.Cluster:
        wanted = self.cluster_settings
        return await kube.connect(context=wanted.context, namespace=wanted.namespace, access=access)

    async def _begin(self) -> list[asyncio.Task[None]]:
        work = [(self._leadership.run, "lease"), (self._watches.run, "watch")]
        if self.cluster_settings.server_url is None:
            attaching = Attaching(self.cluster, self.running, lambda: self.leading, lambda: self.links)
            work.append((attaching.run, "attaching"))
        return [asyncio.create_task(_lasting(run, name)) for run, name in work]

    def call(self, work: Coroutine[Any, Any, _T], patience: float) -> _T:
        """Do something on the engine's loop, and wait for it. From any other thread.

        Raises:
            ClusterError: It took longer than `patience` seconds, or whatever it raises itself.
        """
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(patience)
        except TimeoutError:
            future.cancel()
            raise ClusterError(
                f"The cluster did not do it within {patience:.0f} s.",
                remedy="Try again in a minute.",
                reason="busy",
            ) from None

    @property
    def leading(self) -> bool:
        """Whether this server acts on jobs, of all that share the run root."""
        return self._leadership.leading

    @property
    def skew(self) -> float:
        """Seconds that the API server's clock is ahead of ours."""
        return self._leadership.skew

    @property
    def namespace(self) -> str:
        return self.cluster.namespace

    # --- the protocol ---------------------------------------------------------------------------------

    def launch(self, job_id: str, secrets: Mapping[str, str]) -> None:
        run = self._run_dir(job_id)
        spec = run.read_spec()
        if self._at_work(job_id, spec):
            return
        if self.cluster_settings.volume is not None:
            require_shared(run, spec)
        given = jobsecrets.gather(spec, secrets, self._settings, self.cluster_settings)
        self._launching.add(job_id)
        try:
            book = self._open(job_id)
            job = self.call(Launch(self.cluster, self.cluster_settings, self._root, spec).run(given), 120)
            self._expected[job_id] = job["metadata"]["uid"], time.monotonic()
            book.dirty = True
        finally:
            self._launching.discard(job_id)

    def liveness(self, job_id: str) -> Liveness:
        book = self._open(job_id)
        job, expected = book.job, self._expected.get(job_id)
        mine, problem = self.leading, self._watches.problem
        tries = max(0, job.failed - 1) if job is not None else 0
        there = Liveness(True, tries=tries, mine=mine, problem=problem, elsewhere=True)
        if job_id in self._launching:
            return there
        if job is not None and expected is not None and job.uid == expected[0] and not job.suspended:
            self._expected.pop(job_id, None)
        elif expected is not None and time.monotonic() - expected[1] < STARTUP:
            return there
        if not self._watches.synced:  # nobody can tell yet: what is not known to be dead is left alone
            return Liveness(
                True, mine=mine, problem=problem or "the cluster was not asked yet", elsewhere=True
            )
        if job is not None and _at_work(job):
            return there
        if problem is not None and not (job is not None and job.ended):
            return there
        seen = book.seen()
        end = how_job_ended(seen) or JobEnd(_cut_short(seen))
        return Liveness(
            False,
            detail=end.detail,
            final=end.final,
            remedy=end.remedy,
            tries=tries,
            mine=mine,
            problem=problem,
            elsewhere=True,
        )

    def settle(self, job_id: str) -> None:
        detail = self.liveness(job_id).detail or "its runner died"
        self._open(job_id).write(self.skew, now=True)
        command = [sys.executable, "-m", "hawk.runner.supervisor", "--settle"]
        subprocess.run(
            [*command, str(self._run_dir(job_id).path), detail], check=False, stdin=subprocess.DEVNULL
        )

    def stop(self, job_id: str, action: StopAction, sample_uuid: str | None) -> str:
        return stoprequests.request(self._run_dir(job_id), action, sample_uuid).id

    def kill(self, job_id: str) -> None:
        self._expected.pop(job_id, None)
        self.links.drop(job_id)
        self.call(remove_all(self.cluster, job_id), 150)

    def sweep(self) -> None:
        if self.leading and self._watches.synced:
            self.call(self._sweep(), 120)

    def report(self, job_id: str) -> dict[str, Any]:
        return self.call(report(self.cluster, self._open(job_id).seen(self.skew)), 10)

    def stacks(self, job_id: str, *, native: bool) -> list[StackRecord] | None:
        return self.links.ask_stacks(job_id, native)

    def close(self) -> None:
        if self.loop.is_closed():
            return
        with contextlib.suppress(HawkError, RuntimeError):
            self.call(self._finish(), 10)
        self._end_loop()

    # --- runner pods ----------------------------------------------------------------------------------

    def runner_pod(self, job_id: str) -> str | None:
        """Name of the job's runner pod while its container runs; None otherwise."""
        runner = self._open(job_id).seen().runner
        if runner is None or runner.deleting is not None or runner.phase != "Running":
            return None
        main = next((c for c in runner.containers if c.name == "runner"), None)
        return runner.name if main is not None and main.state == "running" else None

    def running(self) -> dict[str, str]:
        """Runner pods whose container runs, by job id."""
        return {book.run.job_id: pod for book in self._all() if (pod := self.runner_pod(book.run.job_id))}

    # --- in detail ------------------------------------------------------------------------------------

    def _run_dir(self, job_id: str) -> RunDir:
        return RunDir(self._settings.root / job_id)

    def _open(self, job_id: str) -> Book:
        with self._guard:
            found = self._books.get(job_id)
            if found is None:
                found = self._books[job_id] = Book(self._run_dir(job_id), self.cluster.namespace)
            return found

    def _known(self, job_id: str) -> Book | None:
        """The book of a job that is this server's: others share the namespace."""
        if job_id in self._books or (self._settings.root / job_id).is_dir():
            return self._open(job_id)
        return None

    def _all(self) -> list[Book]:
        with self._guard:
            for job_id in [j for j, book in self._books.items() if not book.run.path.exists()]:
                if not self._books[job_id].pods():
                    del self._books[job_id]
            return list(self._books.values())

    def _at_work(self, job_id: str, spec: JobSpec) -> bool:
        """Whether the runner of this very generation lives: an older one is replaced."""
        job = self._open(job_id).job
        wanted = names.job_name(job_id, spec.generation)
        return job is not None and job.name == wanted and _at_work(job) and not job.deleting

    async def _sweep(self) -> None:
        """Remove Jobs whose run directory is not there: a submit was undone, or somebody removed it by hand."""
        found, _ = await self.cluster.list("Job", labels=f"{names.OURS},{names.ROOT}={self._root}")
        now = time.time() + self.skew
        for item in found:
            job_id = item["metadata"]["labels"][names.JOB]
            there = self._run_dir(job_id).spec_file.exists()
            if not there and job_id not in self._launching and age(item, now) > ORPHANED:
                _log.warning("job %s has no run directory: what it has in the cluster is removed", job_id)
                await remove_all(self.cluster, job_id)

    async def _finish(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._watches.close()
        await self._leadership.release()
        await self.cluster.close()

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self.loop.close()


def _at_work(job: Job) -> bool:
    """It has not ended, and will make its pod, or is held by a queue."""
    return not (job.gone or job.ended) and not (job.suspended and not job.queue)


def _cut_short(seen: PodsSeen) -> str:
    if seen.job is not None and seen.job.suspended:
        return "its launch was cut short"
    return "its Job is not in the cluster"


async def _lasting(work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Whatever goes wrong in it, it goes on."""
    while True:
        try:
            await work()
        except Exception:
            _log.exception("the cluster's %s", name)
            await asyncio.sleep(5)
