"""What the rules make of a cluster's word: the runner's pod that does not start or has ended, sandboxes' pods that broke."""

from __future__ import annotations

from collections.abc import Iterator

from hawk.core.cluster_why import CREATE, GRACE, PULL, QUOTA, End
from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.evidence import BrokenSandbox, RunnerEnd, WaitingSandbox
from hawk.core.diagnosis.rule import Finding, fact
from hawk.core.diagnosis.saying import lasted
from hawk.core.diagnosis.view import View
from hawk.core.states import SamplePhase

REASONS = {
    Cause.IMAGE_PULL: PULL,
    Cause.CREATE_FAILED: CREATE,
    Cause.CRASH_LOOP: ("CrashLoopBackOff",),
    Cause.UNSCHEDULABLE: ("Unschedulable", "FailedScheduling", "SchedulingGated", "SchedulerError"),
    Cause.SANDBOX_OOM_KILLED: ("OOMKilled",),
}
"""What the cluster says of a pod that does not start, by cause."""

LOST = ("restarted", "disrupted", "ended", "deleted")
"""Ways in which a sandbox's pod breaks under a command, other than by memory."""

VANISHED = 10.0
"""Seconds after which an attempt whose pod was deleted still goes on: at its end its pod goes first."""

RECENT = 900.0
"""Seconds after which the end of a runner pod that was followed by another is history."""

_ENDS = {
    Cause.RUNNER_OOM_KILLED: (End.MEMORY,),
    Cause.KILLED: (End.DISRUPTED, End.VANISHED),
    Cause.CRASHED: (End.EXIT, End.REFUSED),
}


# --- the runner's pod


def runner_waits(view: View, cause: Cause) -> Iterator[Finding]:
    """Pods that would run everything, or a share of it, do not start, for a reason that is this cause's."""
    found = view.evidence.cluster
    if found is None or not view.job.alive:
        return
    if found.runner is not None and _cause_of(found.runner) is cause:
        yield _waits(view, cause, "the runner's pod", "runner", [found.runner], whole=True)
    workers = [pod for pod in found.workers if _cause_of(pod) is cause]
    if workers:
        count = len(workers)
        what = f"the pod{'s' * (count > 1)} of {count} worker{'s' * (count > 1)}"
        yield _waits(view, cause, what, "workers", workers, whole=not found.working)


def _waits(
    view: View, cause: Cause, what: str, subject: str, pods: list[WaitingSandbox], *, whole: bool
) -> Finding:
    waits = min(pods, key=lambda pod: pod.since or "~")
    waited = view.ago(waits.since)
    room = cause is Cause.UNSCHEDULABLE
    early = room and (waited is None or waited < GRACE)
    severity = Severity.INFO if early else Severity.STUCK if whole else Severity.WARNING
    for_long = f" for {lasted(waited)}" if waited is not None else ""
    return Finding(
        severity,
        f"{what} can't start{for_long} ({waits.reason}): {waits.detail or 'the cluster says no more'}",
        [fact(Source.ENGINE, f"{p.name}: {p.reason} {p.detail}".strip(), p.since) for p in pods[:4]],
        whole=whole,
        subject=subject,
        since=waits.since,
        remedy=_remedy(cause, waits),
        next="hawk status {job}",
    )


def _cause_of(waits: WaitingSandbox) -> Cause | None:
    if waits.reason == QUOTA:
        return Cause.UNSCHEDULABLE if "quota" in waits.detail else Cause.CREATE_FAILED
    return next((cause for cause, reasons in REASONS.items() if waits.reason in reasons), None)


def _remedy(cause: Cause, waits: WaitingSandbox) -> str | None:
    if "quota" in waits.detail:
        return "Wait until something ends, ask for less (runner.cpu, runner.memory), or have the namespace's quota raised"
    if "terminat" in waits.detail and "namespace" in waits.detail:
        return "The namespace is being deleted: choose another with HAWK_KUBE_NAMESPACE"
    return {
        Cause.IMAGE_PULL: "Check runner.image (or HAWK_KUBE_IMAGE) and the registry's credentials (runner.pull_secrets)",
        Cause.UNSCHEDULABLE: "Wait for the autoscaler, or ask for less: runner.cpu, runner.memory, runner.gpu, runner.node_selector",
    }.get(cause)


def runner_ended(view: View, cause: Cause) -> Iterator[Finding]:
    """Runner pods that ended and are followed by others. A job that is over is told of by its own end."""
    found = view.evidence.cluster
    if found is None or not view.job.alive:
        return
    if cause is Cause.KILLED and found.unreached is not None:
        yield _unreached(view, found.unreached, asked=not found.problem)
    kinds = _ENDS.get(cause, ())
    ends = [end for end in found.ends if end.how in kinds and (view.ago(end.at) or 0.0) < RECENT]
    if not ends:
        return
    last = ends[-1]
    times = f", {len(ends)} times lately" if len(ends) > 1 else ""
    then = "it was started again" if found.active else "it is started again"
    severity = Severity.WARNING if len(ends) > 1 or not found.active else Severity.INFO
    yield Finding(
        severity,
        f"the runner {last.words}{times}; {then}",
        [fact(Source.ENGINE, f"{end.name} {end.words}", end.at) for end in ends[-4:]],
        whole=not found.active,
        subject="runner",
        since=ends[0].at,
        cost=0.0,
        remedy="Raise runner.memory" if cause is Cause.RUNNER_OOM_KILLED else _of_end(last),
        next="hawk logs {job}",
    )


def _unreached(view: View, pod: RunnerEnd, *, asked: bool) -> Finding:
    """The runner's node does not answer: it may run on there, and only the cluster can't say.

    Args:
        asked: The cluster can be asked, so that it is of now, and that only the runner is not heard.
    """
    silent = asked and Source.ENGINE in view.evidence.missing
    return Finding(
        Severity.STUCK if silent else Severity.WARNING,
        f"the runner may be lost: {pod.words}",
        [fact(Source.ENGINE, f"{pod.name}: {pod.words}, says the cluster", pod.at)],
        whole=silent,
        subject="runner",
        since=pod.at,
        cost=0.0,
        remedy="Wait for the node. If it is gone for good, delete it from the cluster, or its pod: kubectl delete pod "
        f"{pod.name} --force. The runner is started elsewhere then, and nothing that was finished is lost",
        next="hawk logs {job} --worker cluster",
    )


def _of_end(end: RunnerEnd) -> str | None:
    return "Nothing is lost: finished attempts are reused" if end.how == End.DISRUPTED else None


# --- sandboxes


def broken(view: View, *ways: str) -> Iterator[tuple[int, BrokenSandbox]]:
    """Attempts in flight whose pod broke in one of some ways, and how."""
    rows = [row for row in view.evidence.broken if row.how in ways]
    if not rows:
        return
    places = {
        (a.task, a.sample, a.epoch): i for i, a in enumerate(view.attempts) if a.phase is not SamplePhase.INIT
    }
    for row in rows:
        epochs = (
            [row.epoch]
            if row.epoch is not None
            else [e for t, s, e in places if (t, s) == (row.task, row.sample)]
        )
        if row.how == "deleted" and (view.ago(row.at) or 0.0) < VANISHED:
            continue
        for epoch in epochs:
            i = places.get((row.task, row.sample, epoch))
            if i is not None and not _before(view, i, row):
                yield i, row


def _before(view: View, i: int, row: BrokenSandbox) -> bool:
    """It broke before this try of the attempt began."""
    began, broke = view.ago(view.attempts[i].started_at), view.ago(row.at)
    return began is not None and broke is not None and broke > began
