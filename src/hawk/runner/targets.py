"""What a request is about, among the attempts that a job has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from hawk.core.snapshot import Sample
from hawk.core.states import SamplePhase
from hawk.core.status import TaskEvidence
from hawk.runner.remedies import Limit, Target
from hawk.store.actions import Outcome

if TYPE_CHECKING:
    from hawk.runner.processes import Worker


def targets(
    uuids: Iterable[str],
    tasks: Iterable[TaskEvidence],
    workers: Collection[Worker],
    *,
    canceled: bool = False,
) -> tuple[list[Target], list[Outcome]]:
    """The attempts with these uuids that a worker runs, and what there is to say of the others.

    Args:
        canceled: Those that were canceled already count too: somebody who died had begun with them.
    """
    known = {s.uuid: (task, s) for task in tasks for s in task.attempts.values() if s.uuid}
    found, lost = [], []
    for uuid in dict.fromkeys(uuids):
        if uuid not in known:
            lost.append(Outcome(uuid, False, "no attempt in flight has this uuid"))
            continue
        task, sample = known[uuid]
        identifier, name = task.plan.identifier, f"{task.plan.name}/{sample.id}/{sample.epoch}"
        worker = next((w for w in workers if identifier in w.identifiers), None)
        if sample.phase.final and not (canceled and sample.phase is SamplePhase.CANCELED):
            lost.append(Outcome(name, False, f"it has ended already: {sample.phase}"))
        elif worker is None or task.eval_id is None:
            lost.append(Outcome(name, False, "no worker runs it now"))
        else:
            home = worker.data_home
            found.append(Target(uuid, name, identifier, home, task.eval_id, sample.id, sample.epoch))
    return found, lost


def in_flight(tasks: Iterable[TaskEvidence], worker: Worker) -> Iterator[tuple[str, Sample]]:
    """Attempts that a worker runs, with the identifiers of their tasks."""
    for task in tasks:
        if task.plan.identifier in worker.identifiers:
            for sample in task.attempts.values():
                if sample.phase.in_flight:
                    yield task.plan.identifier, sample


def tasks_of(uuids: Iterable[str], tasks: Iterable[TaskEvidence]) -> set[str]:
    """Identifiers of the tasks that attempts are of."""
    wanted = set(uuids)
    return {t.plan.identifier for t in tasks if any(s.uuid in wanted for s in t.attempts.values())}


def models(tasks: Iterable[TaskEvidence]) -> list[str]:
    """Models of all tasks."""
    return sorted({task.plan.model for task in tasks})


def models_at_work(tasks: Iterable[TaskEvidence]) -> set[str]:
    """Models of tasks that have attempts which have not ended."""
    return {
        task.plan.model
        for task in tasks
        if sum(sample.phase.final for sample in task.attempts.values()) < task.plan.attempts
    }


def limits_of(
    limits: Mapping[str, dict[str, int]], tasks: Iterable[TaskEvidence], worker: Worker
) -> list[Limit]:
    """Limits of the tasks that a worker runs, from those by task identifier."""
    return [
        Limit(task.task_id, task.plan.name, limits[task.plan.identifier])
        for task in tasks
        if task.plan.identifier in limits and task.plan.identifier in worker.identifiers and task.task_id
    ]
