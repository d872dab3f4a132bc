"""The one watch on a namespace: what it sees goes into the jobs' books, and from there into their files.

Three streams: Jobs and pods, filtered by label at the server, and events, which have no labels: those of others are
dropped as they come. However many watch a job, nobody lists.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hawk.core.cluster import RUNNER, SANDBOX, WORKER, Pod
from hawk.core.cluster_why import End, how_ended, why_not_started
from hawk.core.text import parse_time
from hawk.engine.kubernetes import names
from hawk.engine.kubernetes.books import Book
from hawk.engine.kubernetes.hearing import Hearing
from hawk.errors import ClusterError
from hawk.kube import parsing
from hawk.kube.watching import Watch

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

LOOK = 0.25
"""Seconds between looks at what has changed."""

SILENT = 3.0
"""Seconds for which a pod may just start; then its events are told of."""

LISTEN_AGAIN = 30.0
"""Seconds until events are asked for again, where they were refused."""

_log = logging.getLogger(__name__)


class Watches:
    """See the module. All on the engine's loop, but for `synced` and `problem`.

    Args:
        book: The book of a job id; None where that job is not this server's.
        leading: Whether this server is to act: write files, remove leftovers.
        skew: Seconds that the API server's clock is ahead.
    """

    def __init__(
        self,
        cluster: Cluster,
        book: Callable[[str], Book | None],
        books: Callable[[], list[Book]],
        leading: Callable[[], bool],
        skew: Callable[[], float],
    ) -> None:
        self._cluster, self._book, self._books = cluster, book, books
        self._leading, self._skew = leading, skew
        self._jobs = Watch(cluster, "Job", labels=names.OURS, keep=_kept_job, on_change=self._job)
        self._pods = Watch(cluster, "Pod", labels=names.OURS, keep=_kept_pod, on_change=self._pod)
        self._hearing = Hearing(books)
        self._events = Watch(cluster, "Event", keep=self._hearing.event)
        self._listen_at = 0.0
        self._swept: set[str] = set()
        self.synced = False

    @property
    def problem(self) -> str | None:
        """Why what is known may be out of date, one line."""
        found = self._jobs.problem or self._pods.problem
        return found.message if found is not None else None

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        while not self.synced:
            try:
                await self._jobs.start(patience=10)
                await self._pods.start(patience=10)
                self.synced = True
            except ClusterError as ex:
                _log.warning("the namespace %s can't be watched: %s", self._cluster.namespace, ex.message)
                self._mark()
                await asyncio.sleep(2)
        while True:
            if time.monotonic() >= self._listen_at:
                await self._listen()
            self._mark()
            self._hearing.settle()
            if self._leading():
                for book in self._books():
                    self._tell(book)
                    if book.dirty:
                        await self._sweep(book)
                        book.write(self._skew())
                    book.chronicle.write(self._skew())
            await asyncio.sleep(LOOK)

    async def _listen(self) -> None:
        """Begin with events; without them jobs run as well, and less is said of why something waits."""
        self._listen_at = math.inf
        try:
            await self._events.start(patience=2)
        except ClusterError as ex:
            _log.warning("what the cluster says of pods can't be watched: %s", ex.message)
            self._listen_at = time.monotonic() + LISTEN_AGAIN

    async def close(self) -> None:
        for watch in (self._jobs, self._pods, self._events):
            await watch.close()

    # --- what the streams say

    def _job(self, change: str, item: dict[str, Any]) -> None:
        book = self._book(item["job"])
        if book is None:
            return
        self._hearing.job(book, item["seen"])
        if change == "DELETED":
            book.lost_job(item["seen"])
        else:
            book.saw_job(item["seen"])

    def _pod(self, change: str, item: dict[str, Any]) -> None:
        book = self._book(item["job"])
        if book is None:
            return
        self._hearing.pod(book, item["seen"])
        if change == "DELETED":
            book.lost_pod(item["seen"], self._now().isoformat(timespec="seconds"))
        else:
            book.saw_pod(item["seen"])

    def _mark(self) -> None:
        problem = self.problem
        for book in self._books():
            book.trouble(problem)

    def _now(self) -> datetime:
        """By the API server's clock."""
        return datetime.fromtimestamp(time.time() + self._skew(), UTC)

    # --- events

    def _tell(self, book: Book) -> None:
        """Have the book know the events of what is in trouble and does not say why."""
        for uid in self._silent(book):
            found = self._hearing.of(uid)
            if found:
                book.tell(uid, found)

    def _silent(self, book: Book) -> list[str]:
        """Uids of a job's objects that wait, or ended, without having said why."""
        job = book.job
        pods = book.pods()
        found = [pod.uid for pod in pods if self._says_nothing(pod)]
        if (
            job is not None
            and not job.gone
            and not job.suspended
            and not job.ended
            and not any(pod.component == RUNNER and pod.active for pod in pods)
            and self._age(job.created) > 1.0
        ):
            found.insert(0, job.uid)
        return found

    def _says_nothing(self, pod: Pod) -> bool:
        if pod.phase == "Pending" and pod.active:
            why = why_not_started(pod)
            return not why.detail if why is not None else self._age(pod.created) > SILENT
        end = how_ended(pod)
        return end is not None and end.end is End.DISRUPTED and not pod.events

    def _age(self, since: str | None) -> float:
        at = parse_time(since)
        return (self._now() - at).total_seconds() if at is not None else 0.0

    # --- what an earlier runner left

    async def _sweep(self, book: Book) -> None:
        """Sandboxes of a runner pod that has ended are nobody's: the one after it makes its own. Where workers have pods,
        sandboxes are theirs, and go with them."""
        pods = book.pods()
        if any(pod.component == WORKER for pod in (*pods, *book.gone)):
            return
        runners = sorted((pod for pod in pods if pod.component == RUNNER), key=lambda pod: pod.created or "")
        ended = [pod for pod in (*book.gone, *runners) if pod.component == RUNNER and not pod.active]
        if not runners or not runners[-1].active or not ended or runners[-1].uid in self._swept:
            return
        self._swept.add(runners[-1].uid)
        begun = runners[-1].created or ""
        for pod in pods:
            if pod.component == SANDBOX and (pod.created or "~") < begun and pod.deleting is None:
                try:
                    await self._cluster.delete("Pod", pod.name, uid=pod.uid, grace=0)
                except ClusterError as ex:
                    _log.warning("pod %s of an earlier runner can't be removed: %s", pod.name, ex.message)


def _kept_pod(item: dict[str, Any]) -> dict[str, Any] | None:
    return _kept(item, parsing.pod)


def _kept_job(item: dict[str, Any]) -> dict[str, Any] | None:
    return _kept(item, parsing.job)


def _kept(item: dict[str, Any], parse: Callable[[Any], Any]) -> dict[str, Any] | None:
    job_id = (item["metadata"].get("labels") or {}).get(names.JOB)
    return parsing.kept(item, parse, job=job_id) if job_id else None
