"""The diagnosis of a job: from the evidence that its supervisor keeps, and what only the server knows.

While the runner lives its evidence is seconds old. After its death the last one stays; the server adds that the runner
is gone, and how. A job that nobody has started yet, or that an older version ran, has what its snapshot says.
"""

from __future__ import annotations

from datetime import datetime

from hawk.core.cluster import PodsSeen
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.diagnose import explain
from hawk.core.diagnosis.evidence import Evidence, Host
from hawk.core.diagnosis.pods import ended_how
from hawk.core.diagnosis.verdict import Diagnosis
from hawk.core.snapshot import Snapshot
from hawk.core.text import one_line
from hawk.engine.protocol import Liveness
from hawk.server.context import Context
from hawk.server.services.registry import now
from hawk.store import disks
from hawk.store.evidence import evidence_of, pods_of
from hawk.store.rundir import RunDir

STALE = 60.0
"""Seconds after which the evidence of a living runner is old: it is taken every two seconds, a minute on a huge job."""


UNWRITTEN = 10.0
"""Seconds after which a runner may be unable to write its evidence: the server looks at the disk itself."""


def diagnosis_of(ctx: Context, job_id: str) -> Diagnosis:
    """What a job waits for, and why.

    Raises:
        NotFoundError: There is no such job.
    """
    run = ctx.registry.run(job_id)
    snapshot = ctx.feeds.status(job_id).snapshot
    evidence = evidence_of(run, snapshot)
    pods = pods_of(run)
    job, liveness = evidence.job, _liveness(ctx, job_id, pods)
    moment = now()
    evidence.amended = moment.isoformat()
    job.status = snapshot.status
    if snapshot.status.terminal:
        job.reason, job.remedy = snapshot.reason, snapshot.remedy
    job.alive = liveness.alive or (ctx.registry.get(job_id) is not None and not snapshot.status.terminal)
    if not job.alive and job.phase != "ended":
        job.ended_how = (
            (ended_how(pods) if pods else None)
            or liveness.detail
            or one_line(snapshot.reason or "", 300)
            or None
        )
    if job.alive and (moment - datetime.fromisoformat(evidence.at)).total_seconds() > UNWRITTEN:
        _look_at_disk(run, evidence, snapshot)
    if job.alive and evidence.attempts and not _runs(run, liveness, evidence):
        evidence.missing[Source.ENGINE] = "its runner ended and is being started again: this was seen last"
    if job.alive:
        taken = datetime.fromisoformat(evidence.at)
        if (age := (moment - taken).total_seconds()) > STALE and evidence.attempts:
            evidence.missing[Source.ENGINE] = f"its supervisor has said nothing for {age:.0f} s"
        return explain(evidence, moment if job.phase == "queued" else taken)
    return explain(evidence, datetime.fromisoformat(evidence.at))


def _liveness(ctx: Context, job_id: str, pods: PodsSeen | None) -> Liveness:
    """Of a job on a cluster that nobody looks after any more, what was seen last: the cluster is not asked."""
    if pods is not None and ctx.registry.get(job_id) is None:
        return Liveness(False, detail=ended_how(pods), elsewhere=True)
    return ctx.engine.liveness(job_id)


def _runs(run: RunDir, liveness: Liveness, evidence: Evidence) -> bool:
    """Whether there is a runner just now."""
    if liveness.elsewhere:
        return evidence.cluster is None or evidence.cluster.active
    return run.supervisor_pid() is not None


def _look_at_disk(run: RunDir, evidence: Evidence, snapshot: Snapshot) -> None:
    """Evidence of a full disk can't be written onto it."""
    disk = disks.look("run directory", run.path)
    host = evidence.host or Host()
    host.disks = [disk, *(other for other in host.disks if other.what != disk.what)]
    evidence.host = host
    evidence.job.storage_error = evidence.job.storage_error or snapshot.errors.get("storage")
