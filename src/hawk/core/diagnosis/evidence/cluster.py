"""What a cluster says: of the job's runner, of its sandboxes."""

from __future__ import annotations

import msgspec


class WaitingSandbox(msgspec.Struct, omit_defaults=True):
    """A sandbox that the engine has not started yet. `reason` is in the cluster's spelling."""

    sample: str | None
    name: str
    phase: str = ""
    reason: str = ""
    detail: str = ""
    since: str | None = None
    task: str = ""
    epoch: int | None = None


class BrokenSandbox(msgspec.Struct, omit_defaults=True):
    """A sandbox's pod that was restarted, ended or vanished.

    Attributes:
        how: `oom_killed`, `restarted`, `disrupted` (evicted, its node gone), `ended`, `deleted`.
        detail: In words, as the end of a sentence about the sandbox.
    """

    sample: str
    name: str
    how: str
    detail: str = ""
    at: str | None = None
    task: str = ""
    epoch: int | None = None
    service: str = ""


class RunnerEnd(msgspec.Struct, omit_defaults=True):
    """How a runner pod ended. `how` is of `core.cluster_why.End`; `words` continue a sentence about it."""

    name: str
    how: str
    words: str
    at: str | None = None


class Cluster(msgspec.Struct, omit_defaults=True):
    """What a cluster says of the job's runner, where it runs on one.

    Attributes:
        active: There is a runner pod that has not ended.
        runner: Why it does not start.
        workers: Pods of workers that do not start, and why; `working`: how many others there are.
        queue: The queue that has not admitted it yet.
        ends: How its pods ended that did not end well, oldest first.
        unreached: Its pod, whose node does not answer.
        problem: Why the cluster can't be asked.
    """

    namespace: str = ""
    active: bool = False
    runner: WaitingSandbox | None = None
    workers: list[WaitingSandbox] = []
    working: int = 0
    queue: str = ""
    queued_since: str | None = None
    ends: list[RunnerEnd] = []
    unreached: RunnerEnd | None = None
    problem: str = ""
    problem_since: str | None = None
