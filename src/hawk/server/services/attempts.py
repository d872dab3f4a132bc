"""What came of a job's attempts: its report, two jobs side by side. Made again only when a file has changed."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from hawk.core.attempts.aggregate import report as aggregate
from hawk.core.attempts.compare import compare
from hawk.core.attempts.replay import replayed
from hawk.core.attempts.report import PolicyUse, Report
from hawk.core.attempts.results import Result
from hawk.core.plan import Plan
from hawk.errors import NotFoundError
from hawk.server.services.registry import Registry
from hawk.store import queries
from hawk.store.attempts import planned_pairs, read_results, result_files
from hawk.store.database import Database
from hawk.store.rundir import RunDir, storage_error

KEPT = 16
"""Answers in memory; that about 10,000 attempts takes some megabytes."""

_encoder = msgspec.json.Encoder()


class Served(NamedTuple):
    """An answer as it goes out; equal content has an equal etag, on any server and after any restart."""

    body: bytes
    etag: str


class Reports:
    """Reports and comparisons of the jobs under one root. Safe from any thread."""

    def __init__(self, registry: Registry, database: Database) -> None:
        self._registry = registry
        self._database = database
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()

    def report(self, job_id: str) -> Served:
        """The job's `Report`, of all results that are on disk now.

        Raises:
            NotFoundError: No such job, it was deleted, or it has no plan yet.
            StorageError: Its plan can't be read.
        """
        run = self.run(job_id)
        return self._slot("report", job_id).get(_stamp(run), lambda: make_report(run)[0])

    def compare(self, a: str, b: str) -> Served:
        """The `Comparison` of two jobs, from `a` to `b`.

        Raises: As `report`.
        """
        first, second = self.run(a), self.run(b)

        def made() -> Any:
            (report_a, results_a), (report_b, results_b) = make_report(first), make_report(second)
            return compare(report_a, report_b, results_a, results_b)

        return self._slot("compare", a, b).get(_stamp(first) + _stamp(second), made)

    def run(self, job_id: str) -> RunDir:
        """The run directory of a job that there is.

        Raises:
            UsageError: It is no id.
            NotFoundError: There is no such job, or no more.
        """
        run = self._registry.run(job_id)
        with self._database.read() as session:
            job = queries.find_job(session, job_id)
        if job is not None and job.deleted_at is not None:
            raise NotFoundError(f"Eval set {job_id!r} has been deleted.", remedy="hawk list eval-sets")
        if job is None and not run.spec_file.exists():
            raise NotFoundError(f"No eval set {job_id!r}.", remedy="hawk list eval-sets")
        return run

    def _slot(self, *key: str) -> _Kept:
        with self._guard:
            found = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return found


class _Kept:
    """One answer, made by the first who asks for all who do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamp: bytes | None = None
        self._served: Served | None = None

    def get(self, stamp: bytes, make: Callable[[], Any]) -> Served:
        with self._lock:
            if self._served is None or stamp != self._stamp:
                body = _encoder.encode(make())
                self._served = Served(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
                self._stamp = stamp
            return self._served


def make_report(run: RunDir) -> tuple[Report, list[Result]]:
    """The report of a run directory, and the results that it is made of.

    Raises:
        NotFoundError: It has no plan yet.
        StorageError: Its plan can't be read.
    """
    plan = run.read_plan()
    if plan is None:
        raise NotFoundError(
            f"Eval set {run.job_id!r} has no plan yet, so nothing to report.",
            remedy=f"hawk watch {run.job_id}",
        )
    results, problems = read_results(run)
    made = aggregate(
        run.job_id,
        planned_pairs(plan),
        results,
        policy=plan.rules.name,
        runs=plan.runs,
        cancels=plan.rules.stops_early,
        policies=_policies(plan, results),
        problems=problems,
    )
    return made, results


def _policies(plan: Plan, results: Sequence[Result]) -> Sequence[PolicyUse]:
    """What the other policies would have used."""
    predicted = {
        task.pair(sample): seconds for task in plan.tasks for sample, seconds in task.predictions.items()
    }
    slots = plan.slots or plan.total
    return replayed(planned_pairs(plan), results, plan.rules, slots=max(1, slots), predicted=predicted)


def _stamp(run: RunDir) -> bytes:
    """Changes with everything that a report is made of: taken first, so that what changes meanwhile is seen later."""
    digest = hashlib.blake2b(digest_size=20)
    problems: list[str] = []
    try:
        digest.update(_of(os.fspath(run.plan_file)))
        for file in result_files(run, problems):
            digest.update(_of(file.path))
    except OSError as ex:
        raise storage_error(run.path, ex) from ex
    digest.update("\n".join(problems).encode())
    return digest.digest()


def _of(path: str) -> bytes:
    """A file's identity: each is written whole under another name, so a new content is a new file."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return b"-"
    return f"{path}\0{found.st_ino} {found.st_mtime_ns} {found.st_size}\n".encode("utf-8", "surrogateescape")
