"""The one watch on a namespace: what it sees goes into the jobs' books, and from there into their files.

Two streams (Jobs, pods), filtered by label at the server: however many watch a job, nobody lists. Events are asked for
only of what is in trouble without saying why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hawk.core.cluster import RUNNER, SANDBOX, Pod
from hawk.core.cluster_why import End, how_ended, why_not_started
from hawk.core.text import parse_time
from hawk.engine.kubernetes import names, parsing
from hawk.engine.kubernetes.books import Book
from hawk.errors import ClusterError
from hawk.kube.problems import Reason, reason_of

if TYPE_CHECKING:
    from hawk.kube.api import Cluster

LOOK = 0.25
"""Seconds between looks at what has changed."""

SILENT = 3.0
"""Seconds for which a pod may just start; then its events are asked for."""

ASK_AGAIN = 10.0
ASKED = 5
"""Seconds between two questions about the events of one object, and how many objects are asked about at a time."""

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
        self._jobs = cluster.watch("Job", labels=names.OURS, keep=_kept_job, on_change=self._job)
        self._pods = cluster.watch("Pod", labels=names.OURS, keep=_kept_pod, on_change=self._pod)
        self._asked: dict[str, float] = {}
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
            self._mark()
            if self._leading():
                for book in self._books():
                    if book.dirty:
                        await self._sweep(book)
                        book.write(self._skew())
                await self._ask()
            await asyncio.sleep(LOOK)

    async def close(self) -> None:
        await self._jobs.close()
        await self._pods.close()

    # --- what the streams say

    def _job(self, change: str, item: dict[str, Any]) -> None:
        book = self._book(item["job"])
        if book is None:
            return
        if change == "DELETED":
            book.lost_job(item["seen"])
        else:
            book.saw_job(item["seen"])

    def _pod(self, change: str, item: dict[str, Any]) -> None:
        book = self._book(item["job"])
        if book is None:
            return
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

    async def _ask(self) -> None:
        """Ask for the events of a few objects that are in trouble and don't say why."""
        due: list[tuple[Book, str]] = []
        clock = time.monotonic()
        for book in self._books():
            due += [
                (book, uid) for uid in self._silent(book) if clock - self._asked.get(uid, -1e9) >= ASK_AGAIN
            ]
        for book, uid in due[:ASKED]:
            self._asked[uid] = clock
            try:
                found, _ = await self._cluster.list(
                    "Event", fields=f"involvedObject.uid={uid}", patience=5, limit=50
                )
            except ClusterError as ex:
                if reason_of(ex) == Reason.FORBIDDEN:
                    self._asked[uid] = clock + 600
                continue
            book.tell(uid, parsing.events(found))
        if len(self._asked) > 5_000:
            self._asked.clear()

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
        """Sandboxes of a runner pod that has ended are nobody's: the one after it makes its own."""
        pods = book.pods()
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


def _kept(item: dict[str, Any], parse_it: Callable[[dict[str, Any]], Any]) -> dict[str, Any] | None:
    """Of an object only what is read later: 500 pods would be megabytes otherwise."""
    meta = item["metadata"]
    job_id = (meta.get("labels") or {}).get(names.JOB)
    if not job_id:
        return None
    kept = {name: meta.get(name) for name in ("uid", "name", "resourceVersion")}
    return {"metadata": kept, "job": job_id, "seen": parse_it(item)}
