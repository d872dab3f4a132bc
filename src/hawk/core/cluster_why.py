"""Why a pod does not start, and how a pod or a Job ended: from what the cluster says, in words. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from hawk.core.cluster import RUNNER, Container, Ended, Event, Pod, PodsSeen
from hawk.core.states import Trouble
from hawk.core.text import one_line

GRACE = 180.0
"""Seconds that the cluster may take to find room: an autoscaler adds a node in two or three minutes."""

NOT_RETRYABLE = 64
"""Exit code of a runner for which trying again is no use: its config or its version is wrong."""

PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
CREATE = (
    "CreateContainerError",
    "CreateContainerConfigError",
    "RunContainerError",
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedAttachVolume",
)
QUOTA = "FailedCreate"
"""The Job can't make its pod at all: a quota, an admission rule, a service account that is not there."""

_STARTING = ("", "ContainerCreating", "PodInitializing")
_TELLING = ("FailedScheduling", *CREATE, "ErrImageNeverPull", "InspectFailed")

_TROUBLES = {word.value: word for word in Trouble if word is not Trouble.UNSCHEDULABLE}

_DISRUPTIONS = {
    "PreemptionByScheduler": "was preempted by a pod of higher priority",
    "DeletionByTaintManager": "was removed from its node, which is out of order or was drained",
    "EvictionByEvictionAPI": "was evicted: its node was drained",
    "DeletionByPodGC": "is lost: its node is gone",
    "TerminationByKubelet": "was ended by its node",
}
"""Reasons of the condition `DisruptionTarget`."""

_POD_REASONS = {
    "Evicted": "was evicted",
    "NodeLost": "is lost: its node does not answer",
    "Preempting": "was preempted by a pod of higher priority",
    "Terminated": "was ended: its node shut down",
    "Shutdown": "was ended: its node shut down",
    "NodeShutdown": "was ended: its node shut down",
    "DeadlineExceeded": "ran longer than its deadline",
    "UnexpectedAdmissionError": "was refused by its node",
}


class Why(NamedTuple):
    """Why a pod does not start. `reason` in the cluster's spelling; `since` by the API server's clock."""

    reason: str
    detail: str = ""
    since: str | None = None


class End(StrEnum):
    """What ended a pod."""

    WELL = "well"
    MEMORY = "memory"
    DISRUPTED = "disrupted"  # evicted, preempted, its node gone: not its own doing
    REFUSED = "refused"  # it says that trying again is no use
    EXIT = "exit"
    VANISHED = "vanished"  # deleted by somebody


class PodEnd(NamedTuple):
    """How a pod ended. `words` continue a sentence whose subject is the pod."""

    end: End
    words: str
    at: str | None = None
    exit_code: int | None = None


class JobEnd(NamedTuple):
    """How a job's runner ended for good. `final`: starting it again is no use."""

    detail: str
    final: bool = False
    remedy: str | None = None


def trouble(reason: str) -> Trouble | str | None:
    """A waiting container's reason as trouble of infrastructure; None: it is none."""
    return _TROUBLES.get(reason) or (reason if reason in PULL or reason in CREATE else None)


def why_not_started(pod: Pod) -> Why | None:
    """Why a pod that is there does not run; None while it just starts, or runs."""
    if not pod.active:
        return None
    for container in pod.containers:
        if container.state == "waiting" and trouble(container.reason) is not None:
            return Why(container.reason, container.message, pod.created)
    if pod.phase != "Pending":
        return None
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return Why(scheduled.reason or "Unschedulable", scheduled.message, scheduled.since or pod.created)
    telling = [event for event in pod.events if event.type == "Warning" and event.reason in _TELLING]
    if telling and not _past(telling[-1], pod):
        reason = "Unschedulable" if telling[-1].reason == "FailedScheduling" else telling[-1].reason
        return Why(reason, telling[-1].message, pod.created)
    waiting = [c for c in pod.containers if c.state == "waiting" and c.reason not in _STARTING]
    return Why(waiting[0].reason, waiting[0].message, pod.created) if waiting else None


def _past(event: Event, pod: Pod) -> bool:
    """An event about what has been overcome: a pod that has a node was scheduled, one that runs was mounted."""
    if event.reason == "FailedScheduling":
        return pod.node is not None
    return any(container.state == "running" for container in pod.containers)


def no_pod(seen: PodsSeen) -> Why | None:
    """Why the Job has not made its pod: the last thing that it complained of."""
    job = seen.job
    if job is None or job.suspended or job.ended or job.gone or seen.runner is not None:
        return None
    said = [event for event in job.events if event.reason == QUOTA]
    return Why(QUOTA, said[-1].message, job.created) if said else None


def how_ended(pod: Pod) -> PodEnd | None:
    """How a pod ended; None while it goes on."""
    if pod.phase not in ("Succeeded", "Failed") and pod.removed is None:
        return None
    container = _main(pod)
    ended = (container.ended or container.last) if container is not None else None
    at = (ended.at if ended is not None else None) or pod.removed or pod.deleting
    code = ended.exit_code if ended is not None else None
    if ended is not None and ended.reason == "OOMKilled":
        limit = f", limit {container.memory}" if container is not None and container.memory else ""
        return PodEnd(End.MEMORY, f"ran out of memory (OOMKilled{limit})", at, code)
    disrupted = _disrupted(pod)
    if disrupted is not None:
        return PodEnd(End.DISRUPTED, disrupted, at, code)
    if pod.phase == "Succeeded" or code == 0:
        return PodEnd(End.WELL, "ended", at, 0)
    if ended is not None and code is not None:
        return PodEnd(End.REFUSED if code == NOT_RETRYABLE else End.EXIT, _exit(ended), at, code)
    if pod.removed is not None and pod.phase != "Failed":
        return PodEnd(End.VANISHED, "was deleted", at)
    words = pod.message or (f"failed ({pod.reason})" if pod.reason else "failed")
    return PodEnd(End.EXIT, one_line(words, 300), at, code)


def _main(pod: Pod) -> Container | None:
    """The container that counts: the one called like the component, else the one that ended worst."""
    named = next((c for c in pod.containers if c.name in (RUNNER, "default")), None)
    dead = next((c for c in pod.containers if c.ended is not None and c.ended.exit_code), None)
    if named is not None and (named.ended is not None or dead is None):
        return named
    return dead or next(iter(pod.containers), None)


def _disrupted(pod: Pod) -> str | None:
    found = next((c for c in pod.conditions if c.type == "DisruptionTarget" and c.status == "True"), None)
    words = _POD_REASONS.get(pod.reason)
    if words is None and found is not None:
        words = _DISRUPTIONS.get(found.reason, f"was disrupted ({found.reason})")
    if words is None:
        return None
    said = pod.message or (found.message if found is not None else "")
    return one_line(f"{words}: {said}" if said else words, 300)


def _exit(ended: Ended) -> str:
    words = "was killed by SIGKILL (137)" if ended.exit_code == 137 else f"exited with code {ended.exit_code}"
    return one_line(f"{words}: {ended.message}" if ended.message else words, 400)


def how_job_ended(seen: PodsSeen | None) -> JobEnd | None:
    """How the runner ended for good; None while the Job is at work, or held by a queue."""
    job = seen.job if seen is not None else None
    if seen is None or job is None:
        return None
    if job.condition("Complete") is not None:
        return JobEnd("its runner ended, and its last word did not arrive")
    failed = job.condition("Failed")
    if failed is None:
        return _gone(seen) if job.gone else None
    last = seen.last_runner
    end = how_ended(last) if last is not None else None
    words = end.words if end is not None and end.end is not End.VANISHED else ""
    if failed.reason == "DeadlineExceeded":
        most = f" of {job.deadline:,} s" if job.deadline else ""
        return JobEnd(
            f"its Job ran longer than its deadline{most} (DeadlineExceeded)",
            True,
            f"Raise runner.deadline, then hawk eval-set resume {seen.job_id}",
        )
    if failed.reason == "PodFailurePolicy":
        return JobEnd(f"its runner {words or 'said that trying again is no use'}", True)
    if end is not None and end.end is End.MEMORY:
        return JobEnd(
            f"its runner {words}", False, f"Raise runner.memory, then hawk eval-set resume {seen.job_id}"
        )
    return JobEnd(f"its runner {words}" if words else f"its Job failed: {failed.message or failed.reason}")


def _gone(seen: PodsSeen) -> JobEnd:
    last = seen.last_runner
    end = how_ended(last) if last is not None else None
    if end is not None and end.end not in (End.VANISHED, End.WELL):
        return JobEnd(f"its runner {end.words}; its Job is not in the cluster any more")
    return JobEnd("its Job was deleted from the cluster")
