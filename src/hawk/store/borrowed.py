"""What a job that scores another's attempts again needs of that one, within its own run directory: a pod has no other.

```
<run>/rescored/<id of the other>/
  attempts/<pair>/<k>/   result.json and workspace.tar.zst of attempts that can be scored again
  logs/                  transcripts
```

Files are the same under other names where the disk can do that, so they take no room; a runner's pod gets copies.
"""

from __future__ import annotations

import errno
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from hawk.core.attempts.rescored import scorable
from hawk.store.attempts import RESULT, WORKSPACE, attempt_directory, read_results
from hawk.store.rundir import RunDir, storage_error

RESCORED = "rescored"

_NO_LINKS = (errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def other_job(run: RunDir, job_id: str) -> RunDir:
    """The run directory of the job that `run` scores again: beside its own, or what it has of it."""
    beside, within = RunDir(run.path.parent / job_id), RunDir(run.path / RESCORED / job_id)
    return within if not beside.path.is_dir() and within.path.is_dir() else beside


def borrow(run: RunDir, job_id: str) -> None:
    """Have what a runner elsewhere needs of the other job, as it is now; of one that is gone, what there was before.

    Raises:
        StorageError: There is no room.
    """
    source = RunDir(run.path.parent / job_id)
    if not source.path.is_dir():
        return
    draft = run.path / f".{RESCORED}.{secrets.token_hex(4)}"
    try:
        for file in _wanted(source):
            target = draft / job_id / file.relative_to(source.path)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            take_over(file, target)
        if draft.is_dir():
            give_back(run)
            draft.rename(run.path / RESCORED)
    except OSError as ex:
        raise storage_error(Path(ex.filename or draft), ex) from ex
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def give_back(run: RunDir) -> None:
    """It is not needed any more."""
    shutil.rmtree(run.path / RESCORED, ignore_errors=True)


def take_over(file: Path, target: Path) -> None:
    """The same file under another name where the disk can do that, else a copy. Raises: OSError."""
    try:
        target.hardlink_to(file)
    except OSError as ex:
        if ex.errno not in _NO_LINKS:
            raise
        shutil.copyfile(file, target)


def _wanted(source: RunDir) -> Iterator[Path]:
    for result in read_results(source)[0]:
        if scorable(result):
            directory = attempt_directory(source, result.pair, result.attempt)
            yield from _files(directory / RESULT, directory / WORKSPACE)
    yield from _files(*sorted(source.logs.rglob("*.eval")))


def _files(*paths: Path) -> Iterator[Path]:
    """Those that are files: on a volume that runners share there might be links to anywhere."""
    for path in paths:
        if path.is_file() and not path.is_symlink():
            yield path
