"""What a job's pods make of its status: trouble, what waits for room, and the pods as the public client reads them.

Pure. `core.status.serve` hands it the snapshot of the runner, whose word is older than what the cluster says of the
runner itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from hawk.core.cluster import RUNNER, SANDBOX, WORKER, Container, Pod, PodsSeen, plain_name
from hawk.core.cluster_why import GRACE, End, Why, how_ended, lost_node, no_pod, trouble, why_not_started
from hawk.core.snapshot import Metric, SealedSnapshot, Snapshot, Task, WaitingSample
from hawk.core.states import JobStatus, SamplePhase, Trouble
from hawk.core.text import one_line, parse_time

SHOWN = 100
"""Pods in a status: runners, those in trouble, then others. Their number is always told."""

WAITING = 200

UNHEARD = 30.0
"""Seconds without a word of a runner whose node does not answer, after which it counts as out of reach."""

_OF_THE_SAMPLE = (Trouble.OOM_KILLED, Trouble.CRASH_LOOP_BACK_OFF)
"""Of a sandbox pod these belong to the attempt, which is tried again."""

_BEYOND_INIT = (SamplePhase.RUNNING, SamplePhase.SCORING, SamplePhase.AWAITING_APPROVAL)


class Signal(NamedTuple):
    """What the pods say against the snapshot. `status` None: nothing against it."""

    status: JobStatus | None = None
    reason: str | None = None
    trouble: str | None = None


def with_pods(snapshot: Snapshot, seen: PodsSeen, now: datetime) -> Snapshot:
    """The snapshot with its pods, and its status corrected by them.

    Args:
        snapshot: As it would be served. A sealed one stays sealed, unless its tasks have to change.
        now: By the clock of who wrote `seen`.
    """
    shown = msgspec.structs.replace(snapshot, pods=payload(seen), admission=_admission(seen))
    count = sum(pod.active for pod in seen.of(SANDBOX))
    shown.metrics = {**(shown.metrics or {}), "sandbox_pods": Metric(float(count))}
    if shown.status.terminal or shown.status is JobStatus.IMPORTING:
        last = seen.last_runner
        end = how_ended(last) if last is not None else None
        if shown.status is JobStatus.FAILED and end is not None and end.end is End.MEMORY:
            shown.trouble_reason = Trouble.OOM_KILLED
        return shown
    shown.waiting_samples = waiting_samples(seen)
    signal = _of_runner(seen, now) or _of_its_node(shown, seen, now) or _of_workers(shown, seen, now)
    if signal is None:
        signal, shown = _of_sandboxes(shown, seen, now)
    shown.trouble_reason = signal.trouble or shown.trouble_reason
    if signal.status is not None:
        shown.status, shown.reason = signal.status, signal.reason
    return shown


def waiting_samples(seen: PodsSeen) -> list[WaitingSample]:
    """Sandboxes that the cluster has not started, with its own words."""
    rows = []
    for pod in seen.of(SANDBOX):
        if pod.phase == "Pending" and pod.active:
            why = why_not_started(pod)
            rows.append(
                WaitingSample(
                    pod.sample_id,
                    pod.name,
                    pod.phase,
                    why.reason if why else None,
                    (why.detail or None) if why else None,
                )
            )
    return sorted(rows, key=lambda row: (row.sample_id or "", row.pod_name))[:WAITING]


# --- the runner


def _of_runner(seen: PodsSeen, now: datetime) -> Signal | None:
    """What its own pod says; None: it runs, or just starts."""
    runner, job = seen.runner, seen.job
    if job is not None and job.suspended and job.queue:
        long = _age(seen, job.created, now) >= GRACE
        status = JobStatus.WAITING_FOR_CAPACITY if long else JobStatus.PENDING
        return Signal(status, f"it waits in the queue {job.queue}")
    if runner is None:
        why = no_pod(seen)
        return _no_room(seen, why, "its runner pod can't be made", now) if why else _between(seen)
    why = why_not_started(runner)
    if why is not None and (word := trouble(why.reason)) is not None:
        return Signal(JobStatus.STUCK, _words("its runner can't start", why), word)
    if why is not None:
        return _no_room(seen, why, "its runner waits for room", now)
    end = how_ended(runner)
    if end is None or end.end is End.WELL:
        return None
    word = Trouble.OOM_KILLED if end.end is End.MEMORY else None
    return Signal(JobStatus.PENDING, f"its runner {end.words}; it is started again", word)


def _of_its_node(shown: Snapshot, seen: PodsSeen, now: datetime) -> Signal | None:
    """The runner's node does not answer, and nothing was heard of the runner itself for a while."""
    lost = lost_node(seen.runner) if seen.runner is not None else None
    heard = parse_time(shown.generated_at)
    if lost is None or (heard is not None and (now - heard).total_seconds() < UNHEARD):
        return None
    return Signal(JobStatus.STUCK, _words("its runner is out of reach", lost))


def _between(seen: PodsSeen) -> Signal | None:
    """No pod: none yet, or the one before has vanished."""
    last = seen.last_runner
    end = how_ended(last) if last is not None else None
    if end is None or end.end is End.WELL:
        return None
    return Signal(JobStatus.PENDING, f"its runner {end.words}; it is started again")


def _no_room(seen: PodsSeen, why: Why, what: str, now: datetime) -> Signal:
    long = _age(seen, why.since, now) >= GRACE
    if "terminat" in why.detail and "namespace" in why.detail:
        return Signal(JobStatus.STUCK, _words(what, why), why.reason)
    return Signal(
        JobStatus.WAITING_FOR_CAPACITY if long else JobStatus.PENDING,
        _words(what, why),
        Trouble.UNSCHEDULABLE if long and why.reason == Trouble.UNSCHEDULABLE else None,
    )


def _words(what: str, why: Why) -> str:
    return one_line(f"{what} ({why.reason}): {why.detail}" if why.detail else f"{what} ({why.reason})", 300)


def _age(seen: PodsSeen, since: str | None, now: datetime) -> float:
    """Seconds since a time of the API server."""
    local = parse_time(seen.local(since))
    return (now - local).total_seconds() if local is not None else 0.0


def _of_workers(shown: Snapshot, seen: PodsSeen, now: datetime) -> Signal | None:
    """What pods of workers say, while none of them runs; None: there is nothing to be said."""
    pods = [pod for pod in seen.of(WORKER) if pod.active]
    waiting = [why for pod in pods if (why := why_not_started(pod)) is not None]
    if not waiting or len(waiting) < len(pods) or shown.status is not JobStatus.RUNNING or shown.operation:
        return None
    if (word := trouble(waiting[0].reason)) is not None:
        return Signal(JobStatus.STUCK, _words("its workers' pods can't start", waiting[0]), str(word))
    return _no_room(seen, waiting[0], "its workers' pods wait for room", now)


# --- its sandboxes


def _of_sandboxes(shown: Snapshot, seen: PodsSeen, now: datetime) -> tuple[Signal, Snapshot]:
    """What holds tasks up. The whole job only where no attempt is past the making of its sandbox."""
    held: dict[str, Why] = {}
    crowded: list[Why] = []
    for pod in seen.of(SANDBOX):
        why = why_not_started(pod)
        if why is None:
            continue
        word = trouble(why.reason)
        if word is not None and word not in _OF_THE_SAMPLE:
            held.setdefault(plain_name(pod.task), why)
        elif word is None and _age(seen, why.since, now) >= GRACE:
            crowded.append(why)
    if not held and not crowded:
        return Signal(), shown
    opened = shown.opened() if isinstance(shown, SealedSnapshot) else shown
    works = any(sample.phase in _BEYOND_INIT for task in opened.tasks for sample in task.samples)
    running = shown.status is JobStatus.RUNNING and shown.operation is None
    if held:
        first = next(iter(held.values()))
        opened.tasks = [_troubled(task, held) for task in opened.tasks]
        status = JobStatus.STUCK if running and not works else None
        return Signal(status, _words("sandboxes can't start", first), str(trouble(first.reason))), opened
    status = JobStatus.WAITING_FOR_CAPACITY if running and not works else None
    return Signal(
        status, _words(f"{len(crowded)} sandboxes wait for room", crowded[0]), _room(crowded[0])
    ), shown


def _room(why: Why) -> str | None:
    return Trouble.UNSCHEDULABLE if why.reason == Trouble.UNSCHEDULABLE else None


def _troubled(task: Task, held: dict[str, Why]) -> Task:
    why = held.get(plain_name(task.task_name)) or held.get("")
    return task if why is None else msgspec.structs.replace(task, trouble_reason=str(trouble(why.reason)))


# --- as the public client reads them


def payload(seen: PodsSeen) -> dict[str, Any]:
    """`PodStatusData`: the pods that are in the cluster, and how many there are."""
    order = sorted(
        seen.pods, key=lambda pod: (pod.component != RUNNER, why_not_started(pod) is None, pod.name)
    )
    return {
        "pods": [_info(pod, seen.namespace) for pod in order[:SHOWN]],
        "total": len(seen.pods),
        "job": seen.job.name if seen.job is not None else None,
    }


def _info(pod: Pod, namespace: str) -> dict[str, Any]:
    return {
        "name": pod.name,
        "namespace": namespace,
        "phase": pod.phase or "Unknown",
        "component": pod.component if pod.component in (RUNNER, SANDBOX) else None,
        "job_type": "eval-set",
        "sample_id": pod.sample_id,
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason or None, "message": c.message or None}
            for c in pod.conditions
        ],
        "container_statuses": [_container(c) for c in pod.containers],
        "events": [
            {
                "type": e.type,
                "reason": e.reason,
                "message": e.message,
                "count": e.count,
                "timestamp": e.at,
                "field_path": None,
            }
            for e in pod.events
        ],
        "creation_timestamp": pod.created,
        "pod_ip": pod.ip,
    }


def _container(container: Container) -> dict[str, Any]:
    ended = container.ended
    return {
        "name": container.name,
        "ready": container.ready,
        "state": container.state,
        "reason": (ended.reason if ended is not None else container.reason) or None,
        "message": (ended.message if ended is not None else container.message) or None,
        "restart_count": container.restarts,
    }


def _admission(seen: PodsSeen) -> dict[str, Any] | None:
    job = seen.job
    if job is None or job.queue is None:
        return None
    return {
        "state": "queued" if job.suspended else "admitted",
        "queue": job.queue,
        "priority_class": job.priority,
        "priority": None,
        "reason": None,
        "message": None,
        "queued_at": job.created,
        "admitted_at": None,
    }


def names(pods: Sequence[Pod]) -> str:
    """Some of them, for a message."""
    return ", ".join(pod.name for pod in pods[:5]) + (", …" if len(pods) > 5 else "")
