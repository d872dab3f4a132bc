"""Attempts in lists: the finished from the index, those in flight from their jobs' snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from hawk.bridge.evallog import LogUnreadable, read_sample
from hawk.core.snapshot import Sample, Task
from hawk.core.text import parse_time
from hawk.errors import NotFoundError
from hawk.server.services.feeds import Feeds
from hawk.server.services.registry import Registry
from hawk.store import queries
from hawk.store.database import Database
from hawk.store.importer import sample_status
from hawk.store.items import SampleItem, SampleRef, ScoreItem
from hawk.store.rundir import RunDir


class Wanted(NamedTuple):
    """Which attempts a request lists."""

    eval_set_id: str | None
    search: str | None
    status: tuple[str, ...]
    offset: int
    limit: int


def page(
    database: Database, registry: Registry, feeds: Feeds, wanted: Wanted
) -> tuple[list[SampleItem], int]:
    """The attempts from `offset` on, those that are not indexed yet first, and how many there are."""
    early = _not_indexed(database, _early(registry, feeds, wanted.eval_set_id))
    early = [item for item in early if _matches(item, wanted)]
    shown = early[wanted.offset : wanted.offset + wanted.limit]
    with database.read() as session:
        rows, total = queries.samples(
            session,
            registry.root,
            eval_set_id=wanted.eval_set_id,
            search=wanted.search,
            status=wanted.status,
            offset=max(0, wanted.offset - len(early)),
            limit=wanted.limit - len(shown),
        )
    return shown + rows, len(early) + total


def find(database: Database, registry: Registry, feeds: Feeds, uuid: str) -> SampleRef:
    """Where an attempt is, finished or in flight.

    Raises:
        NotFoundError: There is none with that uuid.
    """
    with database.read() as session:
        found = queries.sample(session, registry.root, uuid)
    if found is not None:
        return found
    for item in _early(registry, feeds, None):
        if item.uuid == uuid:
            return SampleRef(
                uuid=uuid,
                id=item.id,
                epoch=item.epoch,
                eval_set_id=item.eval_set_id,
                eval_id=item.eval_id,
                task_name=item.task_name,
                model=item.model,
                status=item.status,
                filename=item.filename,
                location=item.location,
                is_provisional=item.is_provisional,
            )
    raise NotFoundError(f"No sample {uuid!r}.", remedy="hawk list samples <eval-set-id>")


def explained(run: RunDir, found: SampleRef, rows: list[ScoreItem]) -> list[ScoreItem]:
    """Scores with what only the log has: answer, explanation and metadata."""
    try:
        scores = read_sample(run.logs / found.filename, found.id, found.epoch).get("scores") or {}
    except LogUnreadable:
        return rows
    return [
        msgspec.structs.replace(
            row,
            answer=_text(scores.get(row.scorer, {}).get("answer")),
            explanation=_text(scores.get(row.scorer, {}).get("explanation")),
            metadata=scores.get(row.scorer, {}).get("metadata") or None,
        )
        for row in rows
    ]


def as_json(content: dict[str, Any]) -> bytes:
    """Inspect's sample as it is; numbers that JSON has no word for stay as Inspect writes them."""
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def _early(registry: Registry, feeds: Feeds, eval_set_id: str | None) -> Iterator[SampleItem]:
    """Attempts that have begun, of jobs in flight: some may be indexed already."""
    for job in registry.all():
        if eval_set_id not in (None, job.job_id):
            continue
        try:
            tasks = feeds.status(job.job_id).tasks()
        except NotFoundError:
            continue
        for task in tasks:
            for sample in task.samples:
                if sample.uuid is not None and (sample.phase.in_flight or sample.phase.final):
                    yield _item(job.run, job.created_by, task, sample)


def _not_indexed(database: Database, items: Iterator[SampleItem]) -> list[SampleItem]:
    found = {item.uuid: item for item in items}
    if not found:
        return []
    with database.read() as session:
        indexed = queries.known_uuids(session, {item.eval_set_id for item in found.values()})
    return [item for uuid, item in found.items() if uuid not in indexed]


def _item(run: RunDir, created_by: str | None, task: Task, sample: Sample) -> SampleItem:
    return SampleItem(
        uuid=sample.uuid or "",
        id=sample.id,
        epoch=sample.epoch,
        status=sample_status(error=sample.error, limit=sample.limit),
        eval_id=task.eval_id or "",
        eval_set_id=run.job_id,
        task_name=task.task_name,
        model=task.model or "",
        location=str(run.logs / task.log_file),
        filename=task.log_file,
        created_by=created_by,
        is_provisional=True,
        error_message=sample.error,
        limit=sample.limit,
        retries=sample.retries or 0,
        started_at=parse_time(sample.started_at),
        completed_at=parse_time(sample.completed_at),
        total_time_seconds=sample.total_time,
        working_time_seconds=sample.working_time,
        total_tokens=sample.total_tokens,
    )


def _matches(item: SampleItem, wanted: Wanted) -> bool:
    if wanted.status and item.status not in wanted.status:
        return False
    text = f"{item.id} {item.task_name} {item.model} {item.error_message or ''} {item.filename}".lower()
    return all(word.lower() in text or word == item.uuid for word in (wanted.search or "").split())


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
