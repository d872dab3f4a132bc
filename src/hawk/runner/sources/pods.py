"""What a cluster says of the job's pods, as the server has written it into the run directory. Nothing on one machine."""

from __future__ import annotations

from hawk.core.cluster import PodsSeen
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Evidence
from hawk.core.diagnosis.pods import fill
from hawk.runner.sources.context import Context
from hawk.store.rundir import read_json


class PodsReader:
    """See the module."""

    source = Source.ENGINE

    def __init__(self) -> None:
        self._stamp: tuple[int, int] | None = None
        self._seen: PodsSeen | None = None

    def fill(self, evidence: Evidence, context: Context) -> None:
        file = context.run_dir.pods_file
        try:
            stat = file.stat()
        except FileNotFoundError:
            return
        stamp = stat.st_mtime_ns, stat.st_size
        if stamp != self._stamp:
            self._seen, self._stamp = read_json(file, PodsSeen), stamp
        if self._seen is not None:
            fill(evidence, self._seen)
            if evidence.cluster is not None:
                evidence.cluster.unreached = None  # it is us, and we live
