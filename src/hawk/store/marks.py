"""Variables by which the processes of a job are known, whoever started them: workers hand their environment on.

A job's id is not enough: two servers with other directories may have jobs of one id on the same machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from hawk.store.rundir import RunDir

JOB = "HAWK_JOB_ID"
WORKER = "HAWK_WORKER"
RUN = "HAWK_RUN_DIR"


def marks(run_dir: RunDir, worker: str) -> dict[str, str]:
    """The variables of a process of a job.

    Args:
        worker: Whose it is: a worker's index, or a word for what else the job runs.
    """
    return {JOB: run_dir.job_id, WORKER: worker, RUN: _place(run_dir)}


def belongs(environ: Mapping[str, str], run_dir: RunDir) -> bool:
    """Whether a process with such variables is of the job that has this run directory."""
    return environ.get(RUN) == _place(run_dir)


def _place(run_dir: RunDir) -> str:
    return os.path.realpath(run_dir.path)
