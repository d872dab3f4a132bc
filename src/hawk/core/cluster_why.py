"""Why a pod does not start, and how a pod or a Job ended: from what the cluster says, in words. Pure.

The one table of its reasons, for who watches a job from outside as for who waits for a sandbox inside.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from hawk.core.cluster import RUNNER, Container, Ended, Event, Pod, PodsSeen
from hawk.core.states import Trouble
from hawk.core.text import one_line

GRACE = 180.0
"""Seconds that the cluster may take to find room: an autoscaler adds a node in two or three minutes."""

OOM = Trouble.OOM_KILLED.value

NOT_RETRYABLE = 64
"""Exit code of a runner for which trying again is no use: its config or its version is wrong."""

PULL = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "ImageInspectError",
    "SignatureValidationFailed",
)
CREATE = (
    "CreateContainerError",
    "CreateContainerConfigError",
    "RunContainerError",
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedAttachVolume",
    "PreCreateHookError",
    "PreStartHookError",
    "PostStartHookError",
    "FailedPostStartHook",
    "NetworkNotReady",
    "UnexpectedAdmissionError",
)
QUOTA = "FailedCreate"
"""The Job can't make its pod at all: a quota, an admission rule, a service account that is not there."""

_STARTING = ("", "ContainerCreating", "PodInitializing")
_TELLING = ("FailedScheduling", *CREATE, "ErrImageNeverPull", "InspectFailed", "FailedSync")
_OF_A_PULL = ("Failed", "InspectFailed")
"""Events that say more of an image than the container's state, which is `Back-off pulling image` most of the time."""

_WRAPPING = re.compile(
    r"(?:rpc error: code = \w+ desc = |(?:ErrImagePull|ImagePullBackOff): "
    r"|(?:Back-off pulling|Failed to pull|failed to pull and unpack) image |failed to resolve (?:reference|image) )"
    r'(?:"(?P<image>[^"]*)":? ?)?'
)
"""What kubelet and container runtime put before the reason why an image can't be had."""

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
    "DeadlineExceeded": "has lived as long as it may (`lifetime`)",
    "UnexpectedAdmissionError": "was refused by its node",
}


class Stage(StrEnum):
    """What a pod that does not run yet is at."""

    SCHEDULING = "scheduling"
    IMAGE = "image"
    STARTING = "starting"
    RUNNING = "running"


class Why(NamedTuple):
    """Why a pod does not start.

    Attributes:
        reason: In the cluster's spelling: `ImagePullBackOff`, `Unschedulable`, …
        detail: Its sentence; may be empty.
        since: By the API server's clock.
        container: Of which container, if of one.
        stage: At which stage.
        wrong: Something is wrong, rather than merely not done yet.
    """

    reason: str
    detail: str = ""
    since: str | None = None
    container: str = ""
    stage: Stage = Stage.STARTING
    wrong: bool = True

    @property
    def text(self) -> str:
        """One line for a person."""
        of = f" (container {self.container})" if self.container else ""
        return one_line(f"{self.reason}{of}{': ' if self.detail else ''}{self.detail}", 400)


class End(StrEnum):
    """What ended a pod."""

    WELL = "well"
    MEMORY = "memory"
    DISRUPTED = "disrupted"  # evicted, preempted, its node gone: not its own doing
    REFUSED = "refused"  # it says that trying again is no use
    EXIT = "exit"
    VANISHED = "vanished"  # deleted by somebody


class PodEnd(NamedTuple):
    """How a pod ended.

    Attributes:
        words: They continue a sentence whose subject is the pod.
        at: By the API server's clock.
        reason: The cluster's word: `OOMKilled`, `Evicted`, `Error`, …; may be empty.
    """

    end: End
    words: str
    at: str | None = None
    exit_code: int | None = None
    reason: str = ""


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
            return _held(pod, container)
    if pod.phase != "Pending":
        return None
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        reason = scheduled.reason or Trouble.UNSCHEDULABLE.value
        return Why(reason, scheduled.message, scheduled.since or pod.created, stage=Stage.SCHEDULING)
    telling = [event for event in pod.events if event.type == "Warning" and event.reason in _TELLING]
    if telling and not _past(telling[-1], pod):
        last = telling[-1]
        if last.reason == "FailedScheduling":
            return Why(Trouble.UNSCHEDULABLE.value, last.message, pod.created, stage=Stage.SCHEDULING)
        return Why(last.reason, last.message, pod.created)
    waiting = next((c for c in pod.containers if c.state == "waiting" and c.reason not in _STARTING), None)
    return _held(pod, waiting) if waiting is not None else None


def _held(pod: Pod, container: Container) -> Why:
    """A container says itself what it waits for; events may say more."""
    of_image = container.reason in PULL
    said = [e.message for e in pod.events if of_image and e.reason in _OF_A_PULL]
    detail = max([container.message, *said[-1:]], key=len)
    if of_image:
        detail = _of_pull(detail)
    stage = Stage.IMAGE if of_image else Stage.STARTING
    return Why(container.reason, detail, pod.created, container.name, stage)


def _of_pull(message: str) -> str:
    """What a registry or a node said of an image, without what every step on the way puts before it."""
    image, said = "", message
    while (found := _WRAPPING.match(said)) is not None:
        image, said = found["image"] or image, said[found.end() :]
    if not said:
        return message
    return said if not image or image in said else f"{image}: {said}"


def waits_for(pod: Pod) -> Why:
    """What a pod that is not ready waits for: trouble, or merely the next step."""
    found = why_not_started(pod)
    if found is not None:
        return found

    def step(stage: Stage, reason: str, detail: str) -> Why:
        return Why(reason, detail, pod.created, stage=stage, wrong=False)

    if pod.node is None and not pod.containers and pod.phase in ("", "Pending"):
        return step(Stage.SCHEDULING, "Scheduling", "no node has been chosen yet")
    if pod.events and pod.events[-1].reason == "Pulling":
        return step(Stage.IMAGE, "Pulling", pod.events[-1].message)
    if pod.phase == "Running":
        return step(Stage.RUNNING, "NotReady", "it runs, and is not ready yet")
    return step(Stage.STARTING, "ContainerCreating", "its containers are being made")


def _past(event: Event, pod: Pod) -> bool:
    """An event about what has been overcome: a pod that has a node was scheduled, one that runs was mounted."""
    if event.reason == "FailedScheduling":
        return pod.node is not None
    return any(container.state == "running" for container in pod.containers)


def lost_node(pod: Pod) -> Why | None:
    """That a pod's node does not answer; None while it does, or is not known.

    The cluster says so by calling a pod not ready all of whose containers are, as the node itself said last.
    """
    ready = pod.condition("Ready")
    up = bool(pod.containers) and all(c.state == "running" and c.ready for c in pod.containers)
    if not pod.active or pod.phase != "Running" or ready is None or ready.status == "True" or not up:
        return None
    said = f"its node {pod.node} does not answer" if pod.node else _POD_REASONS["NodeLost"]
    return Why("NodeNotReady", said, ready.since)


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
    if container is not None and ended is not None and ended.reason == OOM:
        return _out_of_memory(container, ended, at)
    disrupted = _disrupted(pod)
    if disrupted is not None:
        return PodEnd(End.DISRUPTED, disrupted.words, at, code, disrupted.reason)
    if pod.phase == "Succeeded" or code == 0:
        return PodEnd(End.WELL, "ended", at, 0, "Completed")
    if ended is not None and code is not None:
        return PodEnd(
            End.REFUSED if code == NOT_RETRYABLE else End.EXIT, _exit(ended), at, code, ended.reason
        )
    if pod.removed is not None and pod.phase != "Failed":
        return PodEnd(End.VANISHED, "was deleted", at, reason="Deleted")
    words = pod.message or (f"failed ({pod.reason})" if pod.reason else "failed")
    return PodEnd(End.EXIT, one_line(words, 300), at, code, pod.reason or pod.phase)


def ending(pod: Pod, container: str | None = None) -> PodEnd | None:
    """The first sign that a pod that nobody may end is over: it, or a container of it, has ended, was restarted, or is
    being deleted; None while it lives as it began.

    Args:
        container: The only one that counts; any when left out.
    """
    disrupted = _disrupted(pod)
    if disrupted is not None:
        return disrupted
    for one in pod.containers:
        ended = one.ended or one.last
        if container not in (None, one.name) or (ended is None and not one.restarts):
            continue
        if ended is None:
            return PodEnd(End.EXIT, "was started again", reason="Restarted")
        if ended.reason == OOM:
            return _out_of_memory(one, ended, ended.at)
        return PodEnd(End.EXIT, _exit(ended), ended.at, ended.exit_code, ended.reason)
    if pod.removed is not None or pod.deleting is not None:
        return PodEnd(End.VANISHED, "was deleted by somebody", pod.removed or pod.deleting, reason="Deleted")
    if pod.phase == "Unknown":
        return PodEnd(End.DISRUPTED, _POD_REASONS["NodeLost"], reason="NodeLost")
    return how_ended(pod)


def _out_of_memory(container: Container, ended: Ended, at: str | None) -> PodEnd:
    limit = f", limit {container.memory}" if container.memory else ""
    return PodEnd(End.MEMORY, f"ran out of memory (OOMKilled{limit})", at, ended.exit_code, OOM)


def _main(pod: Pod) -> Container | None:
    """The container that counts: the one called like the component, else the one that ended worst."""
    named = next((c for c in pod.containers if c.name in (RUNNER, "default")), None)
    dead = next((c for c in pod.containers if c.ended is not None and c.ended.exit_code), None)
    if named is not None and (named.ended is not None or dead is None):
        return named
    return dead or next(iter(pod.containers), None)


def _disrupted(pod: Pod) -> PodEnd | None:
    found = next((c for c in pod.conditions if c.type == "DisruptionTarget" and c.status == "True"), None)
    reason, words = pod.reason, _POD_REASONS.get(pod.reason)
    if words is None and found is not None:
        reason, words = found.reason, _DISRUPTIONS.get(found.reason, f"was disrupted ({found.reason})")
    if words is None:
        return None
    said = pod.message or (found.message if found is not None else "")
    at = found.since if found is not None else None
    return PodEnd(End.DISRUPTED, one_line(f"{words}: {said}" if said else words, 300), at, reason=reason)


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
