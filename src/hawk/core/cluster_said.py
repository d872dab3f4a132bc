"""What a cluster said of a job's Job and pods, one line each: typed `events.jsonl`, which `hawk logs` shows.

Two sources: the cluster's events, and what is seen of pods that no event tells of (memory, ends). Pure. All text is the
cluster's own: hostile, one line, shortened.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hawk.core.cluster import SANDBOX, WORKER, Event, Pod
from hawk.core.cluster_why import End, PodEnd, ending
from hawk.core.loglevels import LogLevel

SERVICE = "cluster"
"""Whose lines they are, in logs."""

_ROUTINE = frozenset({"Created", "Started", "Killing", "SandboxChanged"})
"""Events of every pod. Of hundreds of sandboxes they would hide everything else."""

_MADE_BY_US = (SANDBOX, WORKER)
"""Pods that the runner has deleted when it needs them no more."""

JOB = "job"
"""Component of the Job itself."""


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What something is said of. `component`: `runner`, `sandbox`, …, or `JOB`."""

    name: str
    component: str = ""
    task: str = ""
    sample_id: str | None = None
    epoch: int | None = None

    @property
    def words(self) -> str:
        """For a person."""
        if self.component == JOB:
            return f"Job {self.name}"
        of = f" of {self.sample_id}/{self.epoch or 1}," if self.sample_id is not None else ""
        return f"{self.component}{of} pod {self.name}".lstrip()


class Said(msgspec.Struct, omit_defaults=True):
    """One line.

    Attributes:
        at: ISO 8601, by the clock of who wrote it down.
        uid: Of the event; of what was seen, made up so that the same is not written twice.
        count: How often the cluster had said it by then.
        level: `debug` of what is usual of a sandbox.
    """

    at: str
    uid: str
    about: About
    reason: str
    message: str = ""
    level: LogLevel = LogLevel.INFO
    count: int = 1

    @property
    def text(self) -> str:
        """For a person."""
        message = f": {self.message}" if self.message else ""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.about.words}: {self.reason}{message}{times}"


def about_pod(pod: Pod) -> About:
    """Whom a pod is of."""
    return About(pod.name, pod.component, pod.task, pod.sample_id, pod.epoch)


def from_event(uid: str, event: Event, about: About) -> Said | None:
    """An event as a line; None where it is routine."""
    sandbox = about.component == SANDBOX
    if event.type == "Normal" and sandbox and _is_routine(event):
        return None
    usual = LogLevel.DEBUG if sandbox else LogLevel.INFO
    level = LogLevel.WARNING if event.type == "Warning" else usual
    return Said(event.at or "", uid, about, event.reason, event.message, level, event.count)


def _is_routine(event: Event) -> bool:
    return event.reason in _ROUTINE or (event.reason == "Pulled" and "already present" in event.message)


def seen_ends(before: Pod | None, now: Pod) -> Iterator[Said]:
    """What became of a pod since it was last looked at, and nobody asked for: lines that no event has."""
    over = ending(now)
    if over is None or (before is not None and _same(ending(before), over)):
        return
    asked = now.component in _MADE_BY_US and (now.deleting is not None or now.removed is not None)
    if over.end is End.WELL or (over.end is End.EXIT and over.exit_code == 0):
        return
    if asked and over.end in (End.EXIT, End.VANISHED):
        return
    level = LogLevel.WARNING if over.end is End.VANISHED else LogLevel.ERROR
    code = f", exit code {over.exit_code}" if over.exit_code is not None and over.end is not End.EXIT else ""
    uid = f"{now.uid}/{over.reason}/{now.restarts}"
    at = over.at or now.deleting or now.removed or ""
    yield Said(at, uid, about_pod(now), over.reason or "Ended", f"it {over.words}{code}", level)


def _same(before: PodEnd | None, now: PodEnd) -> bool:
    return before is not None and (before.end, before.reason) == (now.end, now.reason)
