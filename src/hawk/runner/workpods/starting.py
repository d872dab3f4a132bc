"""The supervisor's side of workers in pods: starts a stand-in for each. Light: it knows nothing of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hawk.config.settings import Settings
from hawk.store.rundir import JobSpec, RunDir

MOST = 8
"""Workers with pods of their own, where nobody says how many."""

PATIENCE = 120.0
"""Seconds that the cluster may take to say which pods there are."""

_MODULE = [sys.executable, "-m", "hawk.runner.workpods.standin"]


class WorkerPods:
    """Of one job.

    Args:
        template: The file with the pod of any of its workers.
        cwd: Directory of the workers.
    """

    def __init__(self, run_dir: RunDir, template: Path, cwd: str) -> None:
        self._run_dir, self._template, self._cwd = run_dir, template, cwd
        self._started: list[
            subprocess.Popen[bytes]
        ] = []  # kept: whoever forgets one would take its exit status

    @classmethod
    def of(cls, run_dir: RunDir, spec: JobSpec, settings: Settings) -> WorkerPods | None:
        """None: the workers are processes beside the supervisor."""
        return cls(run_dir, settings.worker_pod, spec.base_dir) if settings.worker_pod is not None else None

    def stand_in(
        self,
        index: int,
        environ: Mapping[str, str],
        marks: Mapping[str, str],
        middleman: str | None,
        pod: str | None = None,
    ) -> int:
        """Start the stand-in of a worker. Returns its pid.

        Args:
            environ: What the worker itself is told: it goes through a pipe, for there are secrets in it.
            marks: Variables by which the stand-in is known as the job's.
            middleman: Address of the middleman, if only this pod reaches it.
            pod: The worker's pod, where it is there already.

        Raises:
            RuntimeError: No process could be started.
        """
        told = {
            "run_dir": str(self._run_dir.path),
            "index": index,
            "environ": dict(environ),
            "cwd": self._cwd,
            "template": str(self._template),
            "middleman": middleman,
            "pod": pod,
        }
        try:
            process = subprocess.Popen(
                _MODULE, stdin=subprocess.PIPE, start_new_session=True, cwd="/", env={**os.environ, **marks}
            )
            assert process.stdin is not None
            with process.stdin:
                process.stdin.write(msgspec.json.encode(told) + b"\n")
        except OSError as ex:
            raise RuntimeError(f"the stand-in of worker {index} can't be started: {ex.strerror}") from ex
        self._started.append(process)
        return process.pid

    def living(self) -> dict[int, str]:
        """Workers whose pods live, by index.

        Raises:
            RuntimeError: The cluster does not say.
        """
        try:
            found = subprocess.run(
                [*_MODULE, "--living", str(self._template)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=PATIENCE,
                check=False,
            )
            return msgspec.json.decode(found.stdout, type=dict[int, str])
        except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError) as ex:
            raise RuntimeError(
                "the cluster does not say which pods of workers there are; see supervisor.log"
            ) from ex
