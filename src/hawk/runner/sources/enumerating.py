"""Where the process that loads the tasks is: seen from outside, for the author's code runs in it and answers nobody."""

from __future__ import annotations

import time

import psutil

from hawk import pyspy
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Enumerating, Evidence
from hawk.core.recorder.stacks import own_frame
from hawk.runner.sources.context import Context

PATIENCE = 8.0
"""Seconds that loading may take before it is looked at: most takes two or three."""

AGAIN = 8.0
"""Seconds between looks."""


class EnumerationReader:
    """See the module."""

    source = Source.RECORDER

    def __init__(self) -> None:
        self._seen: Enumerating | None = None
        self._next = 0.0

    def fill(self, evidence: Evidence, context: Context) -> None:
        worker, since = context.enumerator, evidence.job.phase_since
        if worker is None or since is None:
            self._seen = None
            return
        now = time.monotonic()
        if self._seen is None:
            self._seen, self._next = Enumerating(since), now + PATIENCE
        elif now >= self._next:
            self._next = now + AGAIN
            self._look(worker.pid, self._seen)
        evidence.enumerating = self._seen

    def _look(self, pid: int, seen: Enumerating) -> None:
        threads = pyspy.dump(pid)
        if isinstance(threads, str):
            seen.label = threads
            return
        main = next((thread for thread in threads if thread.id == pid), threads[0] if threads else None)
        if main is not None and main.frames:
            own = own_frame(main.frames)
            frame = own or main.frames[-1]
            seen.place, seen.own = f"{frame.place} {frame.function}", own is not None
            seen.label = "" if own is None else f"{main.frames[-1].place} {main.frames[-1].function}"
        try:
            times = psutil.Process(pid).cpu_times()
            seen.cpu = round(times.user + times.system, 1)
        except psutil.Error:
            seen.cpu = None
