"""Attempts that did not end well, and tries that were run again, grouped by error: where it was, how often, of which."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable

from hawk.core.attempts.results import Result
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.errortext import is_sandbox_text, normalised, sign_of
from hawk.core.diagnosis.evidence import ErrorGroup, Evidence
from hawk.core.plan import PlanTask
from hawk.core.snapshot import Sample
from hawk.core.states import SamplePhase
from hawk.core.text import one_line
from hawk.core.timeline.records import WorkerNote
from hawk.errors import StorageError
from hawk.runner.sources.conduct import Notes
from hawk.runner.sources.context import Context
from hawk.store.attempts import RESULT, attempt_directory
from hawk.store.rundir import RunDir, read_json

GROUPS = 200
"""Groups that are kept; of more, those that were met least recently go."""

EXAMPLES, UUIDS = 5, 200

_ALIKE = 120
"""Characters by which texts are compared: notes of tries are cut earlier than results."""

READ = 50
"""Results that are read in one look: the rest is read in the next ones."""

_ENDED = (SamplePhase.ERRORED, SamplePhase.LIMIT)

_Key = tuple[str, str, str, str | None]


class EndingsSource:
    """See the module.

    Args:
        notes: Of tries that errored; read by who owns it, before this.
    """

    source = Source.LOGS

    def __init__(self, notes: Callable[[], Notes]) -> None:
        self._notes = notes
        self._seen: dict[tuple[str, str, int], str] = {}
        self._groups: OrderedDict[_Key, ErrorGroup] = OrderedDict()
        self._of: dict[_Key, set[str]] = {}

    def fill(self, evidence: Evidence, context: Context) -> None:
        left = READ
        planned = context.plan.tasks if context.plan is not None else []
        for task, row in zip(planned, context.snapshot.tasks, strict=False):
            for sample in row.samples:
                if sample.phase not in _ENDED:
                    continue
                key = task.identifier, sample.id, sample.epoch
                mark = f"{sample.uuid} {sample.completed_at}"
                if self._seen.get(key) == mark or left <= 0:
                    continue
                left -= 1
                self._seen[key] = mark
                self._ended(context.run_dir, task, sample)
        if notes := self._notes().new:
            tasks = {
                sample.uuid: task
                for task, row in zip(planned, context.snapshot.tasks, strict=False)
                for sample in row.samples
            }
            for note in notes:
                self._tried(note, tasks.get(note.sample_uuid))
        evidence.ended = list(self._groups.values())

    def _ended(self, run_dir: RunDir, task: PlanTask, sample: Sample) -> None:
        name = f"{task.name}/{sample.id}/{sample.epoch}"
        at = sample.completed_at
        if sample.phase is SamplePhase.LIMIT:
            text = one_line(sample.reason or f"{sample.limit} limit", 300)
            self._add(task.identifier, "limit", text, sample.limit, "agent", name, sample.uuid, at)
            return
        result = _result(run_dir, task, sample)
        kind, text, phase = _failure(sample, result)
        self._add(task.identifier, kind, text, None, phase, name, sample.uuid, at)

    def _tried(self, note: WorkerNote, task: PlanTask | None) -> None:
        kind, text = _apart(note.error)
        group = self._add(
            task.identifier if task is not None else "",
            kind,
            one_line(text, 300),
            None,
            _phase_by_text(text),
            f"{task.name if task is not None else note.task}/{note.sample_id}/{note.epoch}".lstrip("/"),
            note.sample_uuid,
            note.at,
        )
        group.retried += 1

    def _add(
        self,
        task: str,
        kind: str,
        text: str,
        limit: str | None,
        phase: str,
        name: str,
        uuid: str | None,
        at: str | None,
    ) -> ErrorGroup:
        same = normalised(text, _ALIKE) if limit is None else limit
        key: _Key = task, same, "limit" if limit is not None else "", limit
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = ErrorGroup(kind, text, 0, task, limit, phase, first_at=at)
            self._of[key] = set()
        self._groups.move_to_end(key)
        group.count += 1
        group.message = text
        if kind not in ("", "Error"):
            group.kind = kind
        if phase:
            group.phase = phase
        group.first_at = min(filter(None, (group.first_at, at)), default=None)
        group.last_at = max(filter(None, (group.last_at, at)), default=None)
        if name not in group.examples:
            group.examples = [name, *group.examples][:EXAMPLES]
        if uuid is not None and uuid not in group.uuids:
            group.uuids = [*group.uuids, uuid][-UUIDS:]
        self._of[key].add(name)
        group.attempts = len(self._of[key])
        if len(self._groups) > GROUPS:
            gone, _ = self._groups.popitem(last=False)
            del self._of[gone]
        return group


def _result(run_dir: RunDir, task: PlanTask, sample: Sample) -> Result | None:
    """What the worker wrote of an attempt, which knows where it failed."""
    path = attempt_directory(run_dir, task.pair(sample.id), sample.epoch) / RESULT
    try:
        found = read_json(path, Result)
    except StorageError:
        return None
    return found if found is not None and sample.uuid in (None, found.uuid) else None


def _failure(sample: Sample, result: Result | None) -> tuple[str, str, str]:
    """Class, text and phase of an error."""
    if result is not None and result.error is not None:
        failure = result.error
        text = one_line(failure.message, 300)
        if failure.phase == "init":
            made = result.sandbox is not None and result.sandbox.label is not None
            phase = "setup" if made or sign_of(failure.message) == "setup" else "sandbox"
            return failure.kind, text, phase if sign_of(failure.message) != "create" else "sandbox"
        return failure.kind, text, failure.phase
    kind, text = _apart(sample.error or "")
    return kind, one_line(text, 300), _phase_by_text(text)


_CLASS = re.compile(r"([A-Za-z_]\w*(?:Error|Exception|Timeout|Interrupt|Exit))[(:]\s*(.*)", re.DOTALL)


def _apart(error: str) -> tuple[str, str]:
    """`RuntimeError('text')` as class and text; the end of it may be cut off."""
    found = _CLASS.fullmatch(error)
    if found is None:
        return "Error", error
    return found[1], found[2].removesuffix(")").strip("'\"")


def _phase_by_text(text: str) -> str:
    if sign_of(text) == "setup":
        return "setup"
    return "sandbox" if is_sandbox_text(text) else ""
