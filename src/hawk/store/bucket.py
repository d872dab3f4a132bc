"""Run directories in object storage: `s3://…`, or whatever else fsspec reaches, one object a file.

`<bucket>/<eval-set-id>/<path in the run directory>`. Where it is and who may use it comes from the environment of that
storage (for S3: `AWS_*`).
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hawk.errors import StorageError
from hawk.store.rundir import write_atomic

PART = 16 * 2**20
"""Bytes that are held in memory of a large file on its way."""

_AT_ONCE = 1000
"""Objects that one request removes, as S3 allows."""


class Held(NamedTuple):
    """An object: its bytes, and when it was written (seconds since the epoch; 0 where the storage does not say)."""

    size: int
    at: float


class Bucket:
    """One place in object storage. Safe from any thread; every method may raise StorageError.

    Args:
        url: Such as `s3://evals/hawk`.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._made: tuple[Any, str] | None = None
        self._lock = threading.Lock()

    def jobs(self) -> list[str]:
        """Ids of all that has a run directory there, by name."""
        with self._errors("read"):
            fs, base = self._storage()
            try:
                found = fs.ls(base, detail=True, refresh=True)
            except FileNotFoundError:
                return []
            names = {
                entry["name"].rstrip("/").rsplit("/", 1)[-1]
                for entry in found
                if entry["type"] == "directory"
            }
            return sorted(names)

    def files(self, job_id: str) -> dict[str, Held]:
        """What there is of a job, by its path in the run directory."""
        with self._errors("read"):
            fs, base = self._storage()
            top = f"{base}/{job_id}"
            try:
                found = fs.find(top, detail=True, refresh=True)
            except FileNotFoundError:
                return {}
            return {
                name[len(top) + 1 :]: Held(int(entry["size"] or 0), _time(entry))
                for name, entry in found.items()
                if name.startswith(f"{top}/")
            }

    def put(self, job_id: str, path: str, source: Path) -> int:
        """Store a file as it is now, also one that grows meanwhile.

        Returns:
            Bytes stored.

        Raises:
            FileNotFoundError: It is gone.
        """
        with source.open("rb") as file, self._errors("written"):
            size = file.seek(0, 2)
            file.seek(0)
            fs, base = self._storage()
            target = f"{base}/{job_id}/{path}"
            if "file" in fs.protocol:
                fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            if size <= PART:
                data = file.read(size)
                fs.pipe_file(target, data)
                return len(data)
            left = size
            with fs.open(target, "wb", block_size=PART) as out:
                while left and (part := file.read(min(PART, left))):
                    out.write(part)
                    left -= len(part)
            return size - left

    def get(self, job_id: str, path: str, target: Path, *, size: int | None = None) -> None:
        """Bring a file here, whole or not at all.

        Args:
            size: Its bytes, where they are known: the storage is asked otherwise.
        """
        with self._errors("read"):
            fs, base = self._storage()
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = f"{base}/{job_id}/{path}"
            if (int(fs.size(name) or 0) if size is None else size) <= PART:
                write_atomic(target, fs.cat_file(name), durable=False)
                return
            coming = target.with_name(f".{target.name}.{threading.get_ident():08x}"[:250])
            try:
                with fs.open(name, "rb", block_size=PART) as source, coming.open("xb") as out:
                    shutil.copyfileobj(source, out, PART)
                coming.replace(target)
            finally:
                coming.unlink(missing_ok=True)

    def remove(self, job_id: str, paths: Iterable[str] | None = None) -> None:
        """Remove some files of a job, or all that there is of it. What is not there is no error."""
        with self._errors("written"):
            fs, base = self._storage()
            if paths is None:
                with suppress(FileNotFoundError):
                    fs.rm(f"{base}/{job_id}", recursive=True)
                return
            names = list(paths)
            for begin in range(0, len(names), _AT_ONCE):
                doomed = [f"{base}/{job_id}/{name}" for name in names[begin : begin + _AT_ONCE]]
                try:
                    fs.rm(doomed)
                except FileNotFoundError:
                    for name in doomed:
                        with suppress(FileNotFoundError):
                            fs.rm_file(name)

    def _storage(self) -> tuple[Any, str]:
        with self._lock:
            if self._made is None:
                import fsspec.core

                fs, path = fsspec.core.url_to_fs(self.url, skip_instance_cache=True)
                fs.use_listings_cache = False
                self._made = fs, path.rstrip("/")
            return self._made

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except (StorageError, FileNotFoundError):
            raise
        except Exception as ex:  # each storage has errors of its own
            text = " ".join(str(ex).split())[:300] or type(ex).__name__
            raise StorageError(
                f"{self.url} can't be {done}: {text}.",
                remedy="Check HAWK_BUCKET, and the credentials and the endpoint of that storage.",
                path=self.url,
            ) from ex


def _time(entry: dict[str, Any]) -> float:
    at = entry.get("LastModified") or entry.get("mtime") or entry.get("last_modified") or entry.get("updated")
    if isinstance(at, datetime):
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return float(at) if isinstance(at, int | float) else 0.0
