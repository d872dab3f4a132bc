"""Evidence as a run directory keeps it: of a job that lives, has died, or came in a bundle."""

from __future__ import annotations

from datetime import UTC, datetime

from hawk.core.cluster import PodsSeen
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.diagnose import explain
from hawk.core.diagnosis.evidence import CHANGES, Change, Evidence, Job
from hawk.core.diagnosis.pods import ended_how, fill
from hawk.core.diagnosis.verdict import Diagnosis
from hawk.core.snapshot import Snapshot
from hawk.core.states import JobStatus
from hawk.errors import StorageError
from hawk.store.rundir import RunDir, read_json

_CHANGES = 200


def kept_diagnosis(run: RunDir) -> Diagnosis:
    """The same from a run directory alone, such as one from a bundle: nobody can be asked.

    Raises:
        StorageError: It can't be read.
    """
    snapshot = run.read_snapshot() or Snapshot(job_id=run.job_id)
    evidence = evidence_of(run, snapshot)
    evidence.job.alive = False
    pods = pods_of(run)
    if pods is not None and evidence.job.phase != "ended":
        evidence.job.ended_how = ended_how(pods) or evidence.job.ended_how
    return explain(evidence, datetime.fromisoformat(evidence.at))


def evidence_of(run: RunDir, snapshot: Snapshot) -> Evidence:
    """What was kept last; made from snapshot and journal where there is nothing, or nothing readable."""
    try:
        found = read_json(run.evidence_file, Evidence)
    except StorageError as ex:
        found, why = None, ex.message
    else:
        why = "its runner has kept none yet"
    evidence = found or _bare(run, snapshot, why)
    pods = pods_of(run)
    if pods is not None:
        fill(evidence, pods)
    return evidence


def pods_of(run: RunDir) -> PodsSeen | None:
    """What a cluster said last of the job's pods; None on one machine, or where nothing readable is kept."""
    try:
        return read_json(run.pods_file, PodsSeen)
    except StorageError:
        return None


def _bare(run: RunDir, snapshot: Snapshot, why: str) -> Evidence:
    at = snapshot.generated_at or datetime.now(UTC).isoformat()
    phase = "ended" if snapshot.status.terminal else "queued" if snapshot.started_at is None else "running"
    if snapshot.status is JobStatus.PENDING:
        at = datetime.now(UTC).isoformat()
    job = Job(phase=phase, status=snapshot.status, operation=snapshot.operation)
    job.reason, job.remedy = snapshot.reason, snapshot.remedy
    evidence = Evidence(run.job_id, at, job=job, progress=snapshot.progress)
    evidence.missing = dict.fromkeys((Source.CONTROL, Source.RECORDER, Source.SPANS), why)
    evidence.journal = [
        Change(entry.at, entry.kind, entry.subject, entry.state, entry.reason, entry.data)
        for entry in run.journal()
        if entry.kind in CHANGES
    ][-_CHANGES:]
    return evidence
