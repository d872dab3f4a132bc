"""Why a pod does not run yet, does not run any more, or a job is over: from the objects alone. Pure.

Objects are dicts as the API gives them. What they say is kept in their own words, shortened.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hawk.core.text import one_line

LONGEST = 400
"""Characters of the cluster's own words."""


class Stage(enum.StrEnum):
    """What a pod is at."""

    SCHEDULING = "scheduling"
    IMAGE = "image"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class Why:
    """A reason.

    Attributes:
        stage: At which stage.
        reason: The cluster's word for it: `ImagePullBackOff`, `Unschedulable`, `OOMKilled`, …
        message: Its sentence; may be empty.
        container: Of which container, if of one.
        wrong: Something is wrong, rather than merely not done yet.
        code: Exit code, where a container ended.
    """

    stage: Stage
    reason: str
    message: str = ""
    container: str = ""
    wrong: bool = False
    code: int | None = None

    @property
    def text(self) -> str:
        """One line for a person."""
        of = f" (container {self.container})" if self.container else ""
        code = f", exit code {self.code}" if self.code is not None else ""
        return one_line(f"{self.reason}{code}{of}{': ' if self.message else ''}{self.message}", LONGEST)


IMAGE = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
    | {"RegistryUnavailable", "SignatureValidationFailed"}
)
"""Why containers wait, where the image is the reason."""

_BROKEN = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"}
    | {"PreCreateHookError", "PreStartHookError", "PostStartHookError"}
)
_USUAL = frozenset({"ContainerCreating", "PodInitializing", ""})

_BAD_EVENTS = frozenset(
    {
        "FailedScheduling",
        "FailedCreatePodSandBox",
        "FailedMount",
        "FailedAttachVolume",
        "NetworkNotReady",
        "Failed",
    }
    | {"BackOff", "InspectFailed", "ErrImageNeverPull", "FailedCreate", "FailedPostStartHook", "NodeNotReady"}
    | {
        "Evicted",
        "Preempted",
        "Preempting",
        "OOMKilling",
        "FailedKillPod",
        "FailedSync",
        "UnexpectedAdmissionError",
    }
)


def ready(pod: dict[str, Any]) -> bool:
    """Whether all its containers run and are ready, and nobody deletes it."""
    status = pod.get("status") or {}
    if status.get("phase") != "Running" or pod["metadata"].get("deletionTimestamp"):
        return False
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())


def waiting(pod: dict[str, Any], events: Iterable[dict[str, Any]] = ()) -> Why:
    """What a pod waits for that is not ready yet, with what the newest events say of it.

    Args:
        events: Those of the pod, in any order.
    """
    status = pod.get("status") or {}
    newest = newest_first(events)
    for state in _containers(status):
        wait = (state.get("state") or {}).get("waiting") or {}
        reason = str(wait.get("reason", ""))
        if reason in IMAGE or reason in _BROKEN:
            stage = Stage.IMAGE if reason in IMAGE else Stage.STARTING
            message = _longer(str(wait.get("message", "")), newest, ("Failed", "InspectFailed"))
            return Why(stage, reason, one_line(message, LONGEST), str(state.get("name", "")), wrong=True)
    scheduled: dict[str, Any] = next(
        (c for c in status.get("conditions") or () if c.get("type") == "PodScheduled"), {}
    )
    if scheduled.get("status") == "False":
        reason = str(scheduled.get("reason") or "Unschedulable")
        return Why(Stage.SCHEDULING, reason, one_line(str(scheduled.get("message", "")), LONGEST), wrong=True)
    bad = next((e for e in newest if e.get("reason") in _BAD_EVENTS and e.get("type") == "Warning"), None)
    if bad is not None:
        reason = str(bad["reason"])
        stage = Stage.SCHEDULING if reason == "FailedScheduling" else Stage.STARTING
        return Why(stage, reason, one_line(str(bad.get("message", "")), LONGEST), wrong=True)
    if (
        not pod.get("spec", {}).get("nodeName")
        and scheduled.get("status") != "True"
        and not _containers(status)
    ):
        return Why(Stage.SCHEDULING, "Scheduling", "no node has been chosen yet")
    if newest and newest[0].get("reason") == "Pulling":
        return Why(Stage.IMAGE, "Pulling", one_line(str(newest[0].get("message", "")), LONGEST))
    if status.get("phase") == "Running":
        return Why(Stage.RUNNING, "NotReady", "it runs, and is not ready yet")
    return Why(Stage.STARTING, "ContainerCreating", "its containers are being made")


def ended(pod: dict[str, Any], *, main: str | None = None) -> Why | None:
    """Why a pod is over, is going away, or was restarted; None while it lives as it began.

    Args:
        main: The container that counts; any when left out.
    """
    status = pod.get("status") or {}
    meta = pod["metadata"]
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            said = one_line(str(condition.get("message", "")), LONGEST)
            return Why(Stage.ENDED, str(condition.get("reason", "Disrupted")), said, wrong=True)
    if status.get(
        "reason"
    ):  # Evicted, DeadlineExceeded, NodeLost, Preempting, Shutdown, UnexpectedAdmissionError
        said = one_line(str(status.get("message", "")), LONGEST)
        return Why(Stage.ENDED, str(status["reason"]), said, wrong=True)
    for state in _containers(status):
        if main is not None and state.get("name") != main:
            continue
        now = (state.get("state") or {}).get("terminated")
        over = now or (state.get("lastState") or {}).get("terminated") or {}
        if now is None and not state.get("restartCount"):
            continue
        reason = str(over.get("reason") or "Restarted")
        said = str(over.get("message") or ("" if now else "the container was started again"))
        code = over.get("exitCode")
        return Why(
            Stage.ENDED,
            reason,
            one_line(said, LONGEST),
            str(state.get("name", "")),
            reason != "Completed",
            code,
        )
    if meta.get("deletionTimestamp"):
        return Why(Stage.ENDED, "Deleted", "somebody deleted the pod", wrong=True)
    if status.get("phase") in ("Failed", "Succeeded"):
        return Why(Stage.ENDED, str(status["phase"]), wrong=status["phase"] == "Failed")
    if status.get("phase") == "Unknown":
        return Why(Stage.ENDED, "NodeLost", "its node does not answer", wrong=True)
    return None


def job_ended(job: dict[str, Any]) -> Why | None:
    """Why a Job is over: `Complete`, `BackoffLimitExceeded`, `DeadlineExceeded`, `PodFailurePolicy`, …"""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in (
            "Complete",
            "Failed",
            "FailureTarget",
        ):
            failed = condition["type"] != "Complete"
            reason = str(condition.get("reason") or condition["type"]) if failed else "Complete"
            return Why(
                Stage.ENDED, reason, one_line(str(condition.get("message", "")), LONGEST), wrong=failed
            )
    return None


def newest_first(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events by when they were last seen."""
    return sorted(events, key=event_time, reverse=True)


def event_time(event: dict[str, Any]) -> str:
    """When an event was last seen (RFC 3339; empty when it does not say)."""
    series = event.get("series") or {}
    seen = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(seen or (event.get("metadata") or {}).get("creationTimestamp") or "")


def concerns(event: dict[str, Any]) -> str:
    """The uid of the object that an event is about."""
    return str((event.get("involvedObject") or event.get("regarding") or {}).get("uid", ""))


def _containers(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _longer(message: str, newest: list[dict[str, Any]], reasons: tuple[str, ...]) -> str:
    """An event's sentence, where it says more than the container's state: `Back-off pulling image` says nothing."""
    for event in newest:
        said = str(event.get("message", ""))
        if event.get("reason") in reasons and len(said) > len(message):
            return said
    return message
