"""All places where jobs run, as one engine: each job's own is asked. A cluster is connected to when a job first needs it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hawk.config.settings import Settings
from hawk.core.recorder.stacks import StackRecord
from hawk.core.states import StopAction
from hawk.engine.local import LocalEngine
from hawk.engine.protocol import Engine, Liveness
from hawk.errors import HawkError
from hawk.store.rundir import JobSpec, RunDir, read_json

if TYPE_CHECKING:
    from hawk.engine.kubernetes.kubernetes import KubernetesEngine
    from hawk.engine.kubernetes.links import LinkHub

AGAIN = 10.0
"""Seconds until a cluster that could not be connected to is tried again."""

_log = logging.getLogger(__name__)


class Engines:
    """See `engine.protocol.Engine`.

    Args:
        local: The engine of this machine; made when left out.
    """

    name = "local"

    def __init__(self, settings: Settings, local: Engine | None = None) -> None:
        self._settings = settings
        self._local = local or LocalEngine(settings)
        self._lock = threading.Lock()
        self._cluster: KubernetesEngine | None = None
        self._refusal: tuple[float, HawkError] | None = None
        self._links: LinkHub | None = None
        self._specs: dict[str, tuple[tuple[int, int], str]] = {}

    @property
    def kubernetes(self) -> KubernetesEngine | None:
        """The cluster's engine, once a job has needed it."""
        return self._cluster

    def attach(self, links: LinkHub) -> None:
        """Who carries the links of runner pods, from now on."""
        with self._lock:
            self._links = links
            if self._cluster is not None:
                self._cluster.links = links

    def engine_name(self, job_id: str) -> str:
        """Where a job runs: `local`, `kubernetes`."""
        file = RunDir(self._settings.root / job_id).spec_file
        try:
            stat = file.stat()
        except OSError:
            known = self._specs.get(job_id)
            return known[1] if known is not None else LocalEngine.name
        stamp = stat.st_mtime_ns, stat.st_ino
        found = self._specs.get(job_id)
        if found is None or found[0] != stamp:
            try:
                spec = read_json(file, JobSpec)
            except HawkError:
                spec = None
            found = self._specs[job_id] = stamp, spec.engine if spec is not None else LocalEngine.name
        return found[1]

    def of(self, job_id: str) -> Engine:
        """The engine of a job.

        Raises:
            HawkError: It is a cluster's, which can't be connected to.
        """
        return self.cluster() if self.engine_name(job_id) == "kubernetes" else self._local

    def cluster(self) -> KubernetesEngine:
        """The cluster's engine.

        Raises:
            HawkError: There is no usable configuration, or kubernetes-asyncio is not installed.
        """
        with self._lock:
            if self._cluster is None:
                if self._refusal is not None and time.monotonic() - self._refusal[0] < AGAIN:
                    raise self._refusal[1]
                from hawk.engine.kubernetes.kubernetes import KubernetesEngine

                try:
                    self._cluster = KubernetesEngine(self._settings)
                except HawkError as ex:
                    self._refusal = time.monotonic(), ex
                    raise
                if self._links is not None:
                    self._cluster.links = self._links
            return self._cluster

    # --- the protocol ---------------------------------------------------------------------------------

    def launch(self, job_id: str, secrets: Mapping[str, str]) -> None:
        if self.engine_name(job_id) == "kubernetes":
            self._refusal = None  # a person waits, who may just have put it right
        self.of(job_id).launch(job_id, secrets)

    def liveness(self, job_id: str) -> Liveness:
        try:
            return self.of(job_id).liveness(job_id)
        except HawkError as ex:  # nobody can tell: what is not known to be dead is left alone
            return Liveness(True, mine=False, problem=ex.message, elsewhere=True)

    def settle(self, job_id: str) -> None:
        self.of(job_id).settle(job_id)

    def stop(self, job_id: str, action: StopAction, sample_uuid: str | None) -> str:
        return self.of(job_id).stop(job_id, action, sample_uuid)

    def kill(self, job_id: str) -> None:
        self.of(job_id).kill(job_id)
        self._specs.pop(job_id, None)

    def sweep(self) -> None:
        self._local.sweep()
        if self._cluster is not None:
            self._cluster.sweep()

    def report(self, job_id: str) -> dict[str, Any]:
        return self.of(job_id).report(job_id)

    def stacks(self, job_id: str, *, native: bool) -> list[StackRecord] | None:
        return self.of(job_id).stacks(job_id, native=native)

    def close(self) -> None:
        self._local.close()
        if self._cluster is not None:
            self._cluster.close()
