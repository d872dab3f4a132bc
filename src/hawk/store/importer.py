"""From run directories to rows: what is finished, again and again, each time only what is new.

A log is looked at when its size or time has changed, a sample is written when its summary has. A log that
can't be read (torn, still empty) is reported and tried again later; it never stops the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from hawk.bridge.evallog import LogCache, LogUnreadable, TaskLogs, list_logs
from hawk.bridge.logformat import LogHeader, SampleSummary
from hawk.config.settings import Settings
from hawk.core.states import JobStatus
from hawk.core.text import parse_time
from hawk.errors import HawkError
from hawk.store.database import Database, open_database
from hawk.store.history import index_attempts
from hawk.store.models import Eval, Job, Sample, Score
from hawk.store.rundir import JobSpec, RunDir

_LETTER_SCORES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # Inspect's correct, partial, incorrect, no answer


class Finished(NamedTuple):
    """An attempt that ended, and the name of the log it is in."""

    summary: SampleSummary
    log: str


class ImportReport(msgspec.Struct):
    """What became of a job's logs. `errors` names each log that could not be read, and why."""

    logs: int = 0
    samples: int = 0
    errors: dict[str, str] = {}


class ReindexReport(msgspec.Struct):
    """What a reindex found. `errors` names each run directory or log that could not be read, and why."""

    jobs: int = 0
    logs: int = 0
    samples: int = 0
    errors: dict[str, str] = {}


class Importer:
    """Keeps the rows of one job in step with its logs. For one thread at a time."""

    def __init__(self, database: Database, run: RunDir) -> None:
        self._database = database
        self._run = run
        self._cache = LogCache()

    def run(self) -> ImportReport:
        """Import what is new. The job must be registered."""
        stamps = _stamps(self._run.logs)  # first: a log that changes while it is read is to be read again
        found = self._cache.read_dir(self._run.logs)
        report = ImportReport(logs=len(found.tasks) + len(found.unreadable), errors=dict(found.unreadable))
        with self._database.read() as session:
            rows = session.execute(
                select(Eval.eval_id, Eval.fingerprint).where(Eval.job_id == self._run.job_id)
            )
            known = {row[0]: row[1] for row in rows}
        gone = known.keys() - {logs.header.eval_id for logs in found.tasks.values()}
        if gone:
            with self._database.write() as session:
                session.execute(delete(Eval).where(Eval.eval_id.in_(gone)))
        for logs in found.tasks.values():
            try:
                fingerprint = " ".join(stamps.get(path, "new") for path in logs.paths)
                if known.get(logs.header.eval_id) != fingerprint:
                    report.samples += self._import_task(logs, fingerprint)
            except (LogUnreadable, OSError, ForeignLogError) as ex:
                report.errors[logs.paths[-1].name] = str(ex)
        return report

    def _import_task(self, logs: TaskLogs, fingerprint: str) -> int:
        header, finished = logs.header, self._finished(logs)
        with self._database.write() as session:
            row = session.get(Eval, header.eval_id)
            if row is None:
                row = Eval(eval_id=header.eval_id, job_id=self._run.job_id)
                session.add(row)
            elif row.job_id != self._run.job_id:
                raise ForeignLogError(f"the same evaluation is already listed under eval set {row.job_id!r}")
            _fill_eval(row, header, logs.paths[-1].name, fingerprint, len(finished))
            session.flush()
            return _sync_samples(session, header, finished)

    def _finished(self, logs: TaskLogs) -> list[Finished]:
        """Attempts that ended, each with the newest log that holds it."""
        homes = {id(summary): path.name for path in logs.paths for summary in self._cache.read(path)[1]}
        newest = logs.paths[-1].name
        return [
            Finished(summary, homes.get(id(summary), newest))
            for summary in logs.summaries
            if summary.completed
        ]


class ForeignLogError(HawkError):
    """A log that another job owns: a run directory was copied."""


def register(session: Session, run: RunDir, spec: JobSpec) -> Job:
    """The row of a job, made from its run directory if it is missing.

    A row whose job was deleted and submitted again starts anew.
    """
    job = session.get(Job, run.job_id)
    if job is None:
        job = Job(
            job_id=run.job_id,
            created_at=parse_time(spec.created_at) or datetime.now(UTC),
            status=JobStatus.PENDING,
        )
        session.add(job)
    job.created_by = spec.created_by
    if job.generation != spec.generation or job.deleted_at is not None:
        job.status, job.finished_at, job.deleted_at = JobStatus.PENDING, None, None
    job.generation = spec.generation
    session.flush()
    return job


def settle_row(job: Job, run: RunDir) -> None:
    """Take over the final status from the run directory, if it has one."""
    snapshot = run.read_snapshot()
    if snapshot is not None and snapshot.status.terminal:
        job.status = snapshot.status
        job.finished_at = (
            parse_time(snapshot.finished_at) or parse_time(snapshot.generated_at) or datetime.now(UTC)
        )


def run_dirs(root: Path) -> Iterator[RunDir]:
    """Every run directory under the root, by name."""
    if root.is_dir():
        for path in sorted(root.iterdir()):
            if not path.name.startswith(".") and (path / "job.json").exists():
                yield RunDir(path)


def reindex(settings: Settings) -> ReindexReport:
    """Rebuild the database from run directories alone. Safe while a server runs.

    Raises:
        StorageError: The database can't be opened.
    """
    database = open_database(settings.database_url)
    try:
        with database.write() as session:
            session.execute(delete(Eval))
            session.execute(delete(Job).where(Job.deleted_at.is_(None)))
        report = ReindexReport()
        for run in run_dirs(settings.root):
            try:
                with database.write() as session:
                    settle_row(register(session, run, run.read_spec()), run)
            except HawkError as ex:
                report.errors[run.job_id] = str(ex)
                continue
            imported = Importer(database, run).run()
            with database.write() as session:
                index_attempts(session, run)
            report.jobs += 1
            report.logs += imported.logs
            report.samples += imported.samples
            report.errors.update({f"{run.job_id}/{name}": why for name, why in imported.errors.items()})
        return report
    finally:
        database.close()


def _stamps(directory: Path) -> dict[Path, str]:
    """By log, what changes with it."""
    found = {}
    for path in list_logs(directory):
        with contextlib.suppress(OSError):
            stat = path.stat()
            found[path] = f"{stat.st_mtime_ns}:{stat.st_size}:{stat.st_ino}"
    return found


def _fill_eval(row: Eval, header: LogHeader, location: str, fingerprint: str, finished: int) -> None:
    row.task_id = header.task_id
    row.task_name = header.task
    row.model = header.model
    row.status = header.status
    row.error = clean(header.error or "") or None
    row.total_samples = header.total_samples or len(header.sample_ids) * header.epochs
    row.completed_samples = finished
    row.metrics = dict(header.metrics)
    row.created_at = parse_time(header.created) or datetime.now(UTC)
    row.started_at = parse_time(header.started_at)
    row.completed_at = parse_time(header.completed_at)
    row.location = location
    row.fingerprint = fingerprint


def _sync_samples(session: Session, header: LogHeader, finished: list[Finished]) -> int:
    """Write the samples that are new or differ, drop those that are gone; return how many were written."""
    rows = session.execute(
        select(Sample.sample_id, Sample.epoch, Sample.digest).where(Sample.eval_id == header.eval_id)
    )
    known = {(sample_id, epoch): digest for sample_id, epoch, digest in rows}
    wanted = {_key(found): (found, _digest(found)) for found in finished}
    fresh = {key: pair for key, pair in wanted.items() if known.get(key) != pair[1]}
    for sample_id, epoch in (known.keys() - wanted.keys()) | (known.keys() & fresh.keys()):
        session.execute(
            delete(Sample).where(
                Sample.eval_id == header.eval_id, Sample.sample_id == sample_id, Sample.epoch == epoch
            )
        )
    if not fresh:
        return 0
    keys = session.scalars(
        insert(Sample).returning(Sample.pk, sort_by_parameter_order=True),
        [_sample_row(header, found, digest) for found, digest in fresh.values()],
    ).all()
    scores = [
        row
        for pk, (found, _) in zip(keys, fresh.values(), strict=True)
        for row in _score_rows(pk, found.summary)
    ]
    if scores:
        session.execute(insert(Score), scores)
    return len(fresh)


def _key(found: Finished) -> tuple[str, int]:
    return clean(found.summary.id), found.summary.epoch


def _digest(found: Finished) -> str:
    return hashlib.blake2b(msgspec.json.encode(found), digest_size=12).hexdigest()


def _sample_row(header: LogHeader, found: Finished, digest: str) -> dict[str, Any]:
    summary = found.summary
    error = clean(summary.error or "") or None
    return {
        "eval_id": header.eval_id,
        "uuid": summary.uuid or f"{header.eval_id}-{summary.id}-{summary.epoch}",
        "sample_id": clean(summary.id),
        "epoch": summary.epoch,
        "status": sample_status(error=summary.error, limit=summary.limit),
        "error": error,
        "limit": summary.limit,
        "retries": summary.retries or 0,
        "started_at": parse_time(summary.started_at),
        "completed_at": parse_time(summary.completed_at),
        "total_time": summary.total_time,
        "working_time": summary.working_time,
        "input_tokens": summary.input_tokens,
        "output_tokens": summary.output_tokens,
        "total_tokens": summary.total_tokens,
        "message_count": summary.message_count,
        "location": found.log,
        "search_text": clean(f"{summary.id} {header.task} {header.model} {error or ''}").lower(),
        "digest": digest,
    }


def sample_status(*, error: str | None, limit: str | None) -> str:
    """The word that lists show for a finished attempt: success, error or `<type>_limit`."""
    if error:
        return "error"
    return f"{limit}_limit" if limit else "success"


def _score_rows(pk: int, summary: SampleSummary) -> Iterator[dict[str, Any]]:
    for scorer, value in summary.scores.items():
        number = _number(value)
        finite = number is not None and math.isfinite(number)
        yield {
            "sample_pk": pk,
            "scorer": clean(scorer),
            "value": value,
            "value_float": number if finite else None,
            "value_nonfinite": None if number is None or finite else str(number),
        }


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return _LETTER_SCORES.get(value)
    return float(value) if isinstance(value, (bool, int, float)) else None


def clean(text: str) -> str:
    """Text that PostgreSQL takes too: it has no place for the NUL character."""
    return text.replace("\x00", "\ufffd")
