"""Jobs whose files were sent along: where these are for the job."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from hawk.engine.kubernetes.mounts import SOURCE as IN_POD
from hawk.server.services import sources
from hawk.store.rundir import JobSpec, RunDir


class Sent(NamedTuple):
    """Files that came with a request: their SHA-256, the archive, and a directory in which they are unpacked."""

    digest: str
    archive: Path
    directory: Path


def placed(spec: JobSpec, run: RunDir) -> JobSpec:
    """A job whose files were sent, with the directory that it works in; any other as it is.

    The directory follows from id and engine alone: the same eval set submitted again, with changed files or from another
    machine, has tasks of the same identity, and its finished attempts are reused.
    """
    if spec.files is None:
        return spec
    base = IN_POD if spec.engine == "kubernetes" else str(run.path / sources.UNPACKED)
    script = spec.script
    if script is not None:
        name = Path(script)
        script = str(Path(base) / (name.relative_to(spec.base_dir) if name.is_absolute() else name))
    return msgspec.structs.replace(spec, base_dir=base, script=script)


def put_files(run: RunDir, spec: JobSpec, sent: Sent | None) -> None:
    """Let a run directory have the files of its job: those that were sent, or where a pod needs them, the submitter's."""
    if sent is not None:
        sources.keep_archive(run, sent.archive)
        if spec.engine == "local":
            sources.move_in(run, sent.directory)
    elif spec.files is None and spec.engine == "kubernetes":
        sources.pack_source(run, Path(spec.base_dir))
    else:
        sources.keep_ready(run, spec)
