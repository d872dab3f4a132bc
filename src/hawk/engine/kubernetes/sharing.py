"""Whether a runner's pod can work in the server's own run directory, on the volume that both have."""

from __future__ import annotations

from hawk.engine.kubernetes import manifests, mounts
from hawk.errors import ConfigError
from hawk.store.rundir import JobSpec, RunDir, storage_error


def require_shared(run: RunDir, spec: JobSpec) -> None:
    """Before there is a Job: its pod could only fail.

    Raises:
        ConfigError: It is of another user, or the submitter's directory can't have its own path in a pod.
    """
    try:
        owner = run.path.stat().st_uid
    except OSError as ex:
        raise storage_error(run.path, ex) from ex
    if owner != manifests.USER:
        raise ConfigError(
            f"{run.path} belongs to uid {owner}, and runners of HAWK_KUBE_VOLUME write there as uid {manifests.USER}.",
            remedy=f"Run the server as uid {manifests.USER}, as deploy/ does; or unset HAWK_KUBE_VOLUME: files are sent then.",
        )
    here = f"{mounts.RUNS}/{spec.job_id}"  # of a job that brings no files
    if spec.base_dir not in (
        here,
        mounts.source_dir(spec.base_dir),
    ):  # the job's spec, where it says so, is the server's too
        raise ConfigError(
            f"{spec.base_dir} can't be a directory of a pod, and the run directory is shared with the server.",
            remedy="Submit from another directory, such as one below /home or /srv.",
        )
