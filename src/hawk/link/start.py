"""What a runner pod is told (`start.json`): which job, where its source goes, how it reaches server and models."""

from __future__ import annotations

import msgspec

WORKER_POD = "worker-pod.json"
"""File beside it: the pod of any worker, where the eval set's workers have pods of their own."""


class Start(msgspec.Struct, omit_defaults=True):
    """Made by the engine, in a Secret that only the runner mounts.

    Attributes:
        job: The eval set id.
        generation: Of the job; an older runner is obsolete.
        base_dir: Where the source is unpacked; where it is not the job's own, the pod's `job.json` says this one.
        token: Opens the link of this job and generation (`hawk.link.tokens`).
        server: Address of the server as the pod sees it; None: the server comes to the pod.
        middleman: Address of the middleman; None: the job does without one.
        middleman_token: The job's token there.
        spans: The middleman runs in the pod and writes the job's spans into its run directory.
        shared: The run directory is on a volume that server and pod share: no file is carried.
        log_shared: Seconds between copies of running attempts into the log directory; 0: none.
        version: Of the Hawk that made this; the pod must be of the same.
    """

    job: str
    generation: int
    base_dir: str
    token: str
    server: str | None = None
    middleman: str | None = None
    middleman_token: str | None = None
    spans: bool = True
    shared: bool = False
    log_shared: int = 3
    version: str = ""
