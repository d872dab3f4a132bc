"""What a cluster says of a job: its Job, its pods, why they wait and how they ended. Typed `pods.json`.

The server's engine writes it into the run directory when it changes, so that status and diagnosis say the same of a job
that lives, has died, or came in a bundle. Times are ISO 8601 by the API server's clock; `PodsSeen.skew` is how many
seconds that is ahead of the clock of who wrote it. All text is the cluster's own: hostile, one line, shortened.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from hawk.core.text import parse_time

RUNNER, WORKER, SANDBOX = "runner", "worker", "sandbox"
"""What a pod is, by its label `app.kubernetes.io/component`."""


class Condition(msgspec.Struct, omit_defaults=True):
    """A condition of a pod or of a Job. `since`: when it became so."""

    type: str
    status: str = "True"
    reason: str = ""
    message: str = ""
    since: str | None = None


class Ended(msgspec.Struct, omit_defaults=True):
    """How a container ended. `reason` is the cluster's word: `OOMKilled`, `Error`, `Completed`, …"""

    reason: str = ""
    exit_code: int | None = None
    message: str = ""
    at: str | None = None


class Container(msgspec.Struct, omit_defaults=True):
    """A container of a pod.

    Attributes:
        state: `waiting`, `running`, `terminated`, `unknown`.
        reason, message: Of that state. While an image is backed off, `message` is of the pull that failed.
        last: How the container before this one ended, where it was restarted.
        memory: Its limit, as Kubernetes writes it.
    """

    name: str
    state: str = "unknown"
    ready: bool = False
    reason: str = ""
    message: str = ""
    restarts: int = 0
    ended: Ended | None = None
    last: Ended | None = None
    memory: str = ""


class Event(msgspec.Struct, omit_defaults=True):
    """An event about a pod or a Job. `type`: `Normal` or `Warning`."""

    reason: str
    message: str = ""
    type: str = "Normal"
    count: int = 1
    at: str | None = None


class Pod(msgspec.Struct, omit_defaults=True):
    """A pod of the job.

    Attributes:
        component: `runner`, `worker`, `sandbox`, …
        service: Which sandbox of its attempt.
        task, sample_id, epoch: Of the attempt that it belongs to; none while it waits for one.
        reason, message: Of the pod as a whole: `Evicted`, `NodeLost`, …
        events: The newest five, newest last.
        removed: When it was seen to be gone from the cluster.
    """

    name: str
    uid: str = ""
    component: str = ""
    service: str = ""
    task: str = ""
    sample_id: str | None = None
    epoch: int | None = None
    phase: str = ""
    reason: str = ""
    message: str = ""
    node: str | None = None
    ip: str | None = None
    conditions: list[Condition] = []
    containers: list[Container] = []
    events: list[Event] = []
    created: str | None = None
    deleting: str | None = None
    removed: str | None = None

    @property
    def restarts(self) -> int:
        return sum(container.restarts for container in self.containers)

    @property
    def active(self) -> bool:
        """It has not ended."""
        return self.removed is None and self.phase not in ("Succeeded", "Failed")

    @property
    def ready(self) -> bool:
        """All its containers run and are ready, and nobody deletes it."""
        found = self.condition("Ready")
        up = self.phase == "Running" and self.removed is None and self.deleting is None
        return up and found is not None and found.status == "True"

    def condition(self, kind: str) -> Condition | None:
        return next((c for c in self.conditions if c.type == kind), None)


class Job(msgspec.Struct, omit_defaults=True):
    """The job's Job.

    Attributes:
        suspended: It makes no pods: its launch is under way, or a queue holds it.
        queue: The Kueue queue that it is in.
        priority: Its priority class there.
        deadline: Seconds that it may run.
        active, failed: Pods that run, and that have failed.
        gone: It is not in the cluster any more.
    """

    name: str
    uid: str = ""
    created: str | None = None
    suspended: bool = False
    queue: str | None = None
    priority: str | None = None
    deadline: int | None = None
    active: int = 0
    failed: int = 0
    succeeded: int = 0
    conditions: list[Condition] = []
    events: list[Event] = []
    deleting: str | None = None
    gone: bool = False

    def condition(self, kind: str) -> Condition | None:
        """The condition of that kind that holds."""
        return next((c for c in self.conditions if c.type == kind and c.status == "True"), None)

    @property
    def ended(self) -> bool:
        return self.condition("Complete") is not None or self.condition("Failed") is not None


class PodsSeen(msgspec.Struct, omit_defaults=True):
    """All of it.

    Attributes:
        at: When it was written, by the clock of who wrote it.
        skew: Seconds that the API server's clock is ahead of that.
        pods: Those in the cluster, oldest first.
        gone: Those that were there and ended otherwise than well, or vanished; newest last.
        problem: Why the cluster can't be asked; `problem_since` by the clock of who wrote it.
    """

    job_id: str
    at: str
    skew: float = 0.0
    namespace: str = ""
    job: Job | None = None
    pods: list[Pod] = []
    gone: list[Pod] = []
    problem: str | None = None
    problem_since: str | None = None

    def local(self, at: str | None) -> str | None:
        """A time of the API server, by the clock of who wrote this down."""
        when = parse_time(at)
        return (
            None if when is None else (when - timedelta(seconds=self.skew)).isoformat(timespec="milliseconds")
        )

    def of(self, component: str) -> Iterator[Pod]:
        """The pods of that kind that are in the cluster."""
        return (pod for pod in self.pods if pod.component == component)

    @property
    def runner(self) -> Pod | None:
        """The newest runner pod that is in the cluster."""
        return max(self.of(RUNNER), key=lambda pod: (pod.created or "", pod.name), default=None)

    @property
    def last_runner(self) -> Pod | None:
        """The newest runner pod that the Job has had, whether or not it is still there."""
        begun = (self.job.created if self.job is not None else None) or ""
        runners = [
            pod
            for pod in (*self.gone, *self.pods)
            if pod.component == RUNNER and (pod.created or "") >= begun
        ]
        return max(runners, key=lambda pod: (pod.created or "", pod.name), default=None)


def plain_name(task: str) -> str:
    """A task's name without its package: pods and plans may say it with or without."""
    return task.rpartition("/")[2]
