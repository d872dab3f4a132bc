"""Archives of files that submitters have sent, by the SHA-256 of their bytes, each user's apart from the others'.

What is in them is looked at when a submit unpacks them. A job gets its own name for the archive that it is submitted with
(`sources.keep_archive`), so these are only needed from their arrival to the submit, and to spare the same files a second
journey. Those that no job has go after an hour.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import IO

from hawk.errors import HawkError, NotFoundError, StorageError, UsageError
from hawk.parcel.contents import LARGEST
from hawk.server.services.sources import INCOMING
from hawk.store.rundir import storage_error

MOST_PACKED = LARGEST + LARGEST // 4
"""Bytes of an archive: what can't be compressed, and headers."""

KEPT = 3600.0
"""Seconds for which an archive stays that no job has."""

MOST_KEPT = 2 * 2**30
"""Bytes of a user's archives that no job has; the oldest go first."""

RESERVE = 256 * 2**20
"""Bytes that stay free on the disk."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger(__name__)


class Upload:
    """An archive that is arriving. To be closed, kept or not."""

    def __init__(self, draft: Path, target: Path) -> None:
        self._draft, self._target = draft, target
        self._hash, self._size = hashlib.sha256(), 0
        try:
            self._file: IO[bytes] = draft.open("xb")
        except OSError as ex:
            raise storage_error(draft, ex) from ex

    def write(self, data: bytes) -> None:
        """Take what has come.

        Raises:
            UsageError: It is more than may be.
            StorageError: There is no room.
        """
        self._size += len(data)
        if self._size > MOST_PACKED:
            raise too_large()
        self._hash.update(data)
        try:
            self._file.write(data)
        except OSError as ex:
            raise storage_error(self._draft, ex) from ex

    def keep(self) -> int:
        """Keep what has come, where it is whole. Returns its bytes.

        Raises:
            UsageError: It is not the one that was announced.
            StorageError: There is no room.
        """
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if self._hash.hexdigest() != self._target.name:
                raise UsageError(
                    f"The files that came are not those that were announced ({self._target.name[:12]}…).",
                    remedy="Submit again; something between has changed or cut them.",
                )
            self._draft.chmod(0o600)
            self._draft.replace(self._target)
        except OSError as ex:
            raise storage_error(self._target, ex) from ex
        return self._size

    def close(self) -> None:
        self._file.close()
        self._draft.unlink(missing_ok=True)


class Uploads:
    """Archives that were sent. Safe from any thread.

    Args:
        home: `HAWK_HOME`.
        root: Parent of all run directories.
    """

    def __init__(self, home: Path, root: Path) -> None:
        self._directory, self._root = home / "sources", root

    def size(self, user: str, digest: str) -> int:
        """Bytes of an archive of a user; it stays for an hour from now on.

        Raises:
            NotFoundError: This user has sent none of that digest.
            UsageError: It is no digest.
        """
        return self.find(user, digest).stat().st_size

    def find(self, user: str, digest: str) -> Path:
        """An archive of a user; it stays for an hour from now on. Raises: As `size`."""
        path = self._of(user) / _checked(digest)
        try:
            os.utime(path)
        except FileNotFoundError:
            raise NotFoundError(
                f"There are no files {digest[:12]}… here.",
                remedy="Send them first: PUT /sources/<SHA-256 of the archive>.",
                files=digest,
            ) from None
        except OSError as ex:
            raise storage_error(path, ex) from ex
        return path

    def receive(self, user: str, digest: str, announced: int | None) -> Upload:
        """Begin to take an archive.

        Args:
            announced: Its bytes, where the sender says so.

        Raises:
            UsageError: It is too large, or its name is no digest.
            StorageError: There is no room.
        """
        directory = self._of(user)
        target = directory / _checked(digest)
        if announced is not None and announced > MOST_PACKED:
            raise too_large()
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            free = shutil.disk_usage(directory).free
        except OSError as ex:
            raise storage_error(directory, ex) from ex
        if free < (announced or LARGEST) + RESERVE:
            raise StorageError(
                f"The server has no room for files: {free / 2**20:,.0f} MiB are free on its disk.",
                remedy="Free some space there: hawk delete jobs that nobody needs.",
                path=str(directory),
            )
        return Upload(directory / f".{digest}.{secrets.token_hex(4)}", target)

    def release(self, digest: str) -> None:
        """Remove an archive, if no job has it: the last one was deleted."""
        for user in self._directory.glob("*"):
            path = user / _checked(digest)
            try:
                if path.lstat().st_nlink == 1:
                    path.unlink()
            except FileNotFoundError:
                continue
            except OSError as ex:
                _log.warning("%s can't be removed: %s", path, ex)

    def tidy(self) -> None:
        """Remove archives that no job has and nobody has asked for of late, and what was cut short."""
        now = time.time()
        for leftover in self._root.glob(f"{INCOMING}*"):
            if _age(leftover, now) > KEPT:
                shutil.rmtree(leftover, ignore_errors=True)
        for user in self._directory.glob("*"):
            unused = [(path, status) for path, status in _files(user) if status.st_nlink == 1]
            kept = 0
            for path, status in sorted(unused, key=lambda item: -item[1].st_mtime):
                kept += status.st_size
                age = now - status.st_mtime
                if age > KEPT or (kept > MOST_KEPT and age > KEPT / 60):
                    path.unlink(missing_ok=True)

    def _of(self, user: str) -> Path:
        return self._directory / hashlib.sha256(user.encode()).hexdigest()[:32]


def too_large() -> HawkError:
    """More than may be sent."""
    return UsageError(
        f"The archive is larger than {MOST_PACKED // 2**20} MiB.",
        remedy="Submit from a directory that holds what the eval set needs, or bring large files in an image or a volume.",
    )


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise UsageError(f"{digest[:80]!r} is no SHA-256 in hexadecimal.")
    return digest


def _files(directory: Path) -> list[tuple[Path, os.stat_result]]:
    found = []
    for path in directory.glob("*"):
        try:
            found.append((path, path.lstat()))
        except OSError as ex:
            _log.debug("%s: %s", path, ex)
    return found


def _age(path: Path, now: float) -> float:
    try:
        return now - path.lstat().st_mtime
    except OSError:
        return 0.0
