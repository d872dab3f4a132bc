"""What a cluster's pods add to the evidence of a job: for the supervisor, the server and a bundle alike. Pure."""

from __future__ import annotations

from hawk.core.cluster import RUNNER, SANDBOX, WORKER, Pod, PodsSeen, plain_name
from hawk.core.cluster_why import End, how_ended, how_job_ended, lost_node, no_pod, why_not_started
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import BrokenSandbox, Cluster, Evidence, RunnerEnd, WaitingSandbox
from hawk.core.states import SamplePhase

MANY = 200


def fill(evidence: Evidence, seen: PodsSeen) -> None:
    """Add sandboxes that wait, sandboxes that broke, and what became of the runner's own pods."""
    if seen.problem is not None:
        evidence.missing[Source.ENGINE] = f"the cluster can't be asked: {seen.problem}"
    found = _Tasks(evidence)
    evidence.sandboxes = [row for pod in seen.of(SANDBOX) if (row := _waiting(pod, seen, found))][:MANY]
    evidence.broken = _broken(seen, found)
    evidence.cluster = _cluster(seen)


def ended_how(seen: PodsSeen) -> str | None:
    """How the runner ended for good, where the cluster says so."""
    end = how_job_ended(seen)
    return end.detail if end is not None else None


class _Tasks:
    """Pods bear a task's name; evidence goes by the plan's identifiers, of which several may have one name."""

    def __init__(self, evidence: Evidence) -> None:
        self._names: dict[str, list[str]] = {}
        for task in evidence.tasks:
            self._names.setdefault(plain_name(task.name), []).append(task.identifier)
        self._made = {(a.task, a.sample) for a in evidence.attempts if a.phase is SamplePhase.INIT}
        self._flying = {(a.task, a.sample) for a in evidence.attempts}

    def identifier(self, name: str, sample: str | None) -> str:
        """The task that has such an attempt in flight; else the first of that name."""
        known = self._names.get(plain_name(name), [])
        for among in (self._made, self._flying):
            for identifier in known:
                if (identifier, sample) in among:
                    return identifier
        return known[0] if known else name


def _waiting(pod: Pod, seen: PodsSeen, tasks: _Tasks) -> WaitingSandbox | None:
    why = why_not_started(pod)
    if why is None and (pod.phase != "Pending" or not pod.active):
        return None
    return WaitingSandbox(
        sample=pod.sample_id,
        name=pod.name,
        phase=pod.phase,
        reason=why.reason if why is not None else "",
        detail=why.detail if why is not None else "",
        since=seen.local((why.since if why is not None else None) or pod.created),
        task=tasks.identifier(pod.task, pod.sample_id) if pod.task else "",
        epoch=pod.epoch,
    )


def _broken(seen: PodsSeen, tasks: _Tasks) -> list[BrokenSandbox]:
    """Sandboxes that were restarted, ended or vanished; whether their attempt still needed them is a rule's matter."""
    living = {
        (p.task, p.sample_id, p.epoch, p.service)
        for p in seen.of(SANDBOX)
        if p.active and p.restarts == 0 and lost_node(p) is None
    }
    rows = []
    for pod in (*seen.gone, *seen.pods):
        if pod.component != SANDBOX or pod.sample_id is None:
            continue
        how = _how_broken(pod)
        if how is None or (pod.task, pod.sample_id, pod.epoch, pod.service) in living:
            continue
        word, detail, at = how
        rows.append(
            BrokenSandbox(
                sample=pod.sample_id,
                name=pod.name,
                how=word,
                detail=detail,
                at=seen.local(at),
                task=tasks.identifier(pod.task, pod.sample_id),
                epoch=pod.epoch,
                service=pod.service,
            )
        )
    return rows[-MANY:]


def _how_broken(pod: Pod) -> tuple[str, str, str | None] | None:
    again = next((c for c in pod.containers if c.restarts and c.last is not None), None)
    if again is not None and again.last is not None:
        last = again.last
        words = (
            "ran out of memory (OOMKilled)"
            if last.reason == "OOMKilled"
            else f"ended ({last.reason or last.exit_code})"
        )
        how = "oom_killed" if last.reason == "OOMKilled" else "restarted"
        return how, f"its container {again.name} {words} and was started again", last.at
    lost = lost_node(pod)
    if lost is not None:
        return "disrupted", lost.detail, lost.since
    end = how_ended(pod)
    if end is None:
        return None
    words = f"its pod {end.words}"
    if end.end is End.MEMORY:
        return "oom_killed", words, end.at
    if end.end is End.DISRUPTED:
        return "disrupted", words, end.at
    return ("deleted" if pod.removed is not None else "ended"), words, pod.removed or end.at


def _cluster(seen: PodsSeen) -> Cluster:
    runner, job = seen.runner, seen.job
    why = why_not_started(runner) if runner is not None else no_pod(seen)
    name = runner.name if runner is not None else (job.name if job is not None else "")
    found = Cluster(
        namespace=seen.namespace,
        active=runner is not None and runner.active,
        problem=seen.problem or "",
        problem_since=seen.problem_since,
    )
    if why is not None:
        phase = runner.phase if runner is not None else ""
        found.runner = WaitingSandbox(None, name, phase, why.reason, why.detail, seen.local(why.since))
    lost = lost_node(runner) if runner is not None else None
    if lost is not None:
        found.unreached = RunnerEnd(name, End.DISRUPTED, lost.detail, seen.local(lost.since))
    for pod in seen.of(WORKER):
        held = why_not_started(pod)
        if held is not None:
            since = seen.local(held.since)
            found.workers.append(WaitingSandbox(None, pod.name, pod.phase, held.reason, held.detail, since))
        elif pod.active:
            found.working += 1
    if job is not None and job.suspended and job.queue:
        found.queue, found.queued_since = job.queue, seen.local(job.created)
    for pod in sorted(
        (p for p in (*seen.gone, *seen.pods) if p.component == RUNNER), key=lambda p: p.created or ""
    ):
        end = how_ended(pod)
        if end is not None and end.end is not End.WELL:
            found.ends.append(RunnerEnd(pod.name, end.end, end.words, seen.local(end.at)))
    return found
