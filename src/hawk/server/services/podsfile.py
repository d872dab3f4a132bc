"""What a cluster says of a job's pods, read again only when the file has changed."""

from __future__ import annotations

import contextlib

from hawk.core.cluster import PodsSeen
from hawk.errors import HawkError
from hawk.store.rundir import RunDir, read_json


class PodsFile:
    """A job's `pods.json`; for one thread at a time. Don't modify what you get."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self.stamp: tuple[int, int, int] | None = None
        self._seen: PodsSeen | None = None

    def read(self) -> PodsSeen | None:
        """Its content; None where there is none, or it is damaged: then the last good one."""
        try:
            stat = self._run.pods_file.stat()
        except OSError:
            self.stamp, self._seen = None, None
            return None
        stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
        if stamp != self.stamp:
            self.stamp = stamp
            with contextlib.suppress(HawkError):
                self._seen = read_json(self._run.pods_file, PodsSeen)
        return self._seen
