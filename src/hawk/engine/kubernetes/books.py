"""What is known of each job's Job and pods: kept up to date by the watches, written down as `pods.json` and `events.jsonl`.

Pods that ended badly or vanished are remembered after the cluster has forgotten them. Safe from any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime

import msgspec

from hawk.core.cluster import RUNNER, SANDBOX, WORKER, Event, Job, Pod, PodsSeen
from hawk.core.cluster_said import seen_ends
from hawk.core.cluster_why import End, how_ended
from hawk.engine.kubernetes.chronicle import Chronicle
from hawk.errors import HawkError
from hawk.kube import parsing
from hawk.store.rundir import RunDir, read_json, write_json

OFTEN = 1.0
"""Seconds between two writes of one job's file."""

GONE = {RUNNER: 5, WORKER: 20, SANDBOX: 20}
"""Pods that are remembered after their end, by what they were."""

_log = logging.getLogger(__name__)


class Book:
    """Of one job."""

    def __init__(self, run: RunDir, namespace: str) -> None:
        self.run, self._namespace = run, namespace
        self.chronicle = Chronicle(run)
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self.gone: list[Pod] = []
        self.job: Job | None = None
        self.problem: tuple[str, str] | None = None  # what, since
        self._written = b""
        self._at = 0.0
        self.dirty = True
        try:
            before = read_json(run.pods_file, PodsSeen)
        except HawkError:
            before = None
        if before is not None:
            self._recall(before)

    def _recall(self, before: PodsSeen) -> None:
        """Go on from what an earlier server wrote; what is still there will be seen again."""
        self.gone = before.gone
        self.job = before.job
        if self.job is not None:
            self.job.gone = True
        for pod in before.pods:
            pod.removed = before.at
            self._remember(pod)

    def saw_pod(self, pod: Pod) -> None:
        with self._lock:
            before = self._pods.get(pod.uid) or next((p for p in self.gone if p.uid == pod.uid), None)
            self.gone = [p for p in self.gone if p.uid != pod.uid]
            self._pods[pod.uid] = parsing.later(before, pod)
            self._tell_ends(before, self._pods[pod.uid])
            self.dirty = True

    def lost_pod(self, pod: Pod, at: str) -> None:
        """It is not in the cluster any more."""
        with self._lock:
            known = self._pods.pop(pod.uid, None)
            last = parsing.later(known, pod)
            last.removed = at
            self._tell_ends(known, last)
            self._remember(last)
            self.dirty = True

    def saw_job(self, job: Job) -> None:
        with self._lock:
            if self.job is not None and self.job.uid == job.uid:
                job.events = self.job.events
            elif self.job is not None and (self.job.created or "") > (job.created or ""):
                return  # an older one, on its way out
            self.job = job
            self.dirty = True

    def lost_job(self, job: Job) -> None:
        with self._lock:
            if self.job is not None and self.job.uid == job.uid:
                if not self.job.ended:
                    self.job.conditions = job.conditions
                self.job.gone = True
                self.dirty = True

    def tell(self, uid: str, events: list[Event]) -> None:
        """What events said of a pod or the Job."""
        with self._lock:
            what: Pod | Job | None = self._pods.get(uid)
            if what is None and self.job is not None and self.job.uid == uid:
                what = self.job
            if what is not None and events and what.events != events:
                what.events = events
                self.dirty = True

    def _tell_ends(self, before: Pod | None, now: Pod) -> None:
        for said in seen_ends(before, now):
            self.chronicle.add(said)

    def trouble(self, problem: str | None) -> None:
        """The cluster can't be asked, or can be again."""
        with self._lock:
            if (self.problem[0] if self.problem else None) != problem:
                since = self.problem[1] if self.problem else _now()
                self.problem = (problem, since) if problem else None
                self.dirty = True

    def pods(self) -> list[Pod]:
        """Those that are in the cluster, oldest first."""
        with self._lock:
            return sorted(self._pods.values(), key=lambda pod: (pod.created or "", pod.name))

    def seen(self, skew: float = 0.0) -> PodsSeen:
        """All of it as of now."""
        pods = self.pods()
        return PodsSeen(
            job_id=self.run.job_id,
            at=_now(),
            skew=skew,
            namespace=self._namespace,
            job=self.job,
            pods=pods,
            gone=list(self.gone),
            problem=self.problem[0] if self.problem else None,
            problem_since=self.problem[1] if self.problem else None,
        )

    def write(self, skew: float, *, now: bool = False) -> bool:
        """Write the file if anything has changed. Returns whether it did.

        Args:
            now: Even when the last time was less than `OFTEN` ago.
        """
        if not self.dirty or (not now and time.monotonic() - self._at < OFTEN):
            return False
        self.dirty, self._at = False, time.monotonic()
        seen = self.seen(skew)
        content = msgspec.json.encode(msgspec.structs.replace(seen, at="", skew=0.0))
        if content == self._written or not self.run.spec_file.exists():
            return False
        try:
            write_json(self.run.pods_file, seen, durable=False)
        except HawkError as ex:
            _log.warning("job %s: what its pods do can't be written down: %s", self.run.job_id, ex.message)
            return False
        self._written = content
        return True

    def _remember(self, pod: Pod) -> None:
        """Keep one that ended badly, or that nobody saw end. The lock is held, or nobody else is there yet."""
        end = how_ended(pod) if pod.removed is not None else None
        if end is not None and end.end is End.WELL and pod.component != RUNNER:
            return
        most = GONE.get(pod.component)
        if most is None:
            return
        self.gone = [*(p for p in self.gone if p.uid != pod.uid), pod]
        alike = [p for p in self.gone if p.component == pod.component]
        if len(alike) > most:
            dropped = next((p for p in alike if _as_deleted(p)), alike[0])
            self.gone = [p for p in self.gone if p is not dropped]


def _as_deleted(pod: Pod) -> bool:
    """It looks as any pod does that was deleted: that says least."""
    end = how_ended(pod)
    if end is None or end.end is End.VANISHED:
        return True
    return end.end is End.EXIT and end.exit_code in (137, 143)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
