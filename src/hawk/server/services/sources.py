"""The files of a job: what was in the directory that its eval set was submitted from.

In the run directory they are `source.tar.zst`, as runner pods want them. Where the submitter's directory is not on this
machine, a local job works in a copy that was unpacked beside it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hawk.link.rules import SOURCE
from hawk.parcel.contents import contents
from hawk.parcel.packing import pack
from hawk.parcel.unpacking import unpack
from hawk.store.rundir import JobSpec, RunDir, storage_error

UNPACKED = ".source"
"""Directory of a run directory where a local job works; hidden, so that nothing carries it: the archive is carried."""

INCOMING = ".incoming-"
"""What directories begin with in which files are unpacked to be checked, beside the run directories."""


def pack_source(run: RunDir, base_dir: Path) -> None:
    """Write `source.tar.zst` of a directory into a run directory; where there is no such directory, leave what is there.

    Raises:
        ConfigError: There is too much in it.
        StorageError: It can't be read, or the archive not be written.
    """
    if not base_dir.is_dir() or base_dir == run.path:
        return
    draft = _draft(run)
    try:
        found = contents(base_dir)
        with draft.open("wb") as out:
            pack(found, out)
            out.flush()
            os.fsync(out.fileno())
        draft.chmod(0o600)
        draft.replace(run.path / SOURCE)
    except OSError as ex:
        raise storage_error(Path(ex.filename or base_dir), ex) from ex
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def unpacked(archive: Path, root: Path) -> Iterator[Path]:
    """The files of an archive in a directory that goes again, unless it is moved elsewhere.

    Args:
        root: Parent of all run directories.

    Raises:
        ConfigError: The archive is damaged, or holds what it should not.
        StorageError: There is no room.
    """
    directory = root / f"{INCOMING}{secrets.token_hex(8)}"
    try:
        directory.mkdir(mode=0o700)
        unpack(archive, directory)
        yield directory
    except OSError as ex:
        raise storage_error(Path(ex.filename or directory), ex) from ex
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def keep_archive(run: RunDir, archive: Path) -> None:
    """Let the run directory have an archive: the same file under another name where the disk can do that, else a copy.

    Raises:
        StorageError: It can't be written.
    """
    draft = _draft(run)
    try:
        draft.unlink(missing_ok=True)
        try:
            draft.hardlink_to(archive)
        except OSError:
            shutil.copyfile(archive, draft)
            draft.chmod(0o600)
        draft.replace(run.path / SOURCE)  # no effect where both are the same file already
    except OSError as ex:
        raise storage_error(run.path / SOURCE, ex) from ex
    finally:
        draft.unlink(missing_ok=True)


def move_in(run: RunDir, directory: Path) -> None:
    """Let a directory be the one that the job works in, instead of the one before: its path stays the same, and with it
    Inspect's identity of tasks.

    Raises:
        StorageError: It can't be moved.
    """
    target = run.path / UNPACKED
    old = run.path / f"{UNPACKED}.{secrets.token_hex(4)}"
    try:
        with contextlib.suppress(FileNotFoundError):
            target.rename(old)
        directory.rename(target)
    except OSError as ex:
        raise storage_error(target, ex) from ex
    finally:
        shutil.rmtree(old, ignore_errors=True)


def keep_ready(run: RunDir, spec: JobSpec) -> None:
    """Unpack the files of a local job again where the directory that it works in has been lost, or there was none.

    Raises:
        ConfigError: The archive is damaged.
        StorageError: The directory can't be written.
    """
    if spec.files is None or spec.engine != "local":
        return
    if not (run.path / UNPACKED).is_dir() and (run.path / SOURCE).exists():
        with unpacked(run.path / SOURCE, run.path.parent) as directory:
            move_in(run, directory)


def _draft(run: RunDir) -> Path:
    return run.path / f".{SOURCE}.{os.getpid():08d}"
