"""The run directory: everything one job produced, and the truth about it.

Every file is written whole (temporary name, fsync, rename) or append-only; readers tolerate a torn last
line. Nothing here imports a database: supervisor, worker and server all use it.

```
<root>/<eval-set-id>/
  eval-set.yaml        as submitted, secrets never
  job.json             JobSpec: what the runner needs to start again
  history.json         list[Past]: what the server knew of earlier attempts
  prices.json          what the job's models cost, in dollars per million tokens
  plan.json            Plan
  journal.jsonl        every state change, with its reason
  snapshot.json        the last Snapshot
  evidence.json        what the last diagnosis was made from
  pods.json            what a cluster says of the job's pods
  events.jsonl         what it said of them, one line each (append-only)
  learnt.json          how long things took, for later jobs
  stop/                requests to stop, one file each; answered in the journal
  logs/                Inspect's log directory
  attempts/            see `hawk.store.attempts`
  rescored/            see `hawk.store.borrowed`
  workers/<n>/         output.jsonl, exit.json, heartbeat.json, data/
                       stacks/: see `hawk.store.stacks`
                       trace.jsonl, trace-<offset>.jsonl[.zst], trace.open.json: see `hawk.bridge.tracesegments`
  spans/               middleman.jsonl, worker-<n>.jsonl: the timeline's source beside the logs
  supervisor.lock      held while a supervisor lives
  supervisor.log
```
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hawk.core.plan import Plan
from hawk.core.snapshot import SealedSnapshot, Snapshot
from hawk.errors import NotFoundError, StorageError
from hawk.store.locks import holder

T = TypeVar("T")

_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")

LEAST_ROOM = 256 * 1024
"""Bytes below which a disk counts as full: one flush of a log may need as much."""


class JobSpec(msgspec.Struct):
    """What a runner needs to start this job, now or again.

    Attributes:
        job_id: The eval set id.
        config: The validated config as plain data; empty when `script` is set. Secrets are named, not held.
        base_dir: Directory the eval set was submitted from: relative paths and Inspect's task identity.
        script: A Python file that calls `eval_set()`, instead of `config`.
        secret_names: Environment variables that must be given again by pipe at every start.
        packages: What the isolated environment must hold; empty: the current environment.
        created_by: Who submitted.
        created_at: ISO 8601.
        workers: The most workers, or None for one a core.
        generation: Counts submits and resumes of this id; a runner of an older generation is obsolete.
        dry_run: Make the plan and end.
        rescore: Id of the job, under the same root, whose attempts are scored again; no agent runs.
        engine: Where it runs: `local`, `kubernetes`.
        files: SHA-256 of `source.tar.zst`, where the submitter's files were sent along; `base_dir` is where they are
            unpacked then. None: they are in `base_dir` on the server's own disk.
    """

    job_id: str
    base_dir: str
    config: dict[str, Any] = {}
    script: str | None = None
    secret_names: list[str] = []
    packages: list[str] = []
    created_by: str | None = None
    created_at: str = ""
    workers: int | None = None
    generation: int = 1
    dry_run: bool = False
    rescore: str | None = None
    engine: str = "local"
    files: str | None = None


class JournalEntry(msgspec.Struct, omit_defaults=True):
    """One line of the journal: `kind` is job, worker, attempt or stop; `subject` says which."""

    at: str
    kind: str
    subject: str
    state: str
    reason: str = ""
    data: dict[str, Any] = {}


@dataclass(frozen=True)
class RunDir:
    """Paths and files of one job."""

    path: Path

    @property
    def job_id(self) -> str:
        return self.path.name

    @property
    def config_file(self) -> Path:
        return self.path / "eval-set.yaml"

    @property
    def spec_file(self) -> Path:
        return self.path / "job.json"

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.json"

    @property
    def prices_file(self) -> Path:
        return self.path / "prices.json"

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    @property
    def history_file(self) -> Path:
        return self.path / "history.json"

    @property
    def journal_file(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def snapshot_file(self) -> Path:
        return self.path / "snapshot.json"

    @property
    def evidence_file(self) -> Path:
        return self.path / "evidence.json"

    @property
    def pods_file(self) -> Path:
        """What a cluster says of the job's pods: `core.cluster.PodsSeen`."""
        return self.path / "pods.json"

    @property
    def events_file(self) -> Path:
        """What a cluster said of the job's Job and pods: a line of `core.cluster_said.Said` each."""
        return self.path / "events.jsonl"

    @property
    def learnt_file(self) -> Path:
        return self.path / "learnt.json"

    @property
    def stop_requests(self) -> Path:
        return self.path / "stop"

    @property
    def buffers(self) -> Path:
        """The realtime buffers of all workers."""
        return self.path / "buffer"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def lock_file(self) -> Path:
        return self.path / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    def worker(self, index: int) -> Path:
        return self.path / "workers" / str(index)

    def worker_indices(self) -> list[int]:
        """Indices of all workers that ever ran, ascending."""
        try:
            return sorted(int(p.name) for p in (self.path / "workers").iterdir() if p.name.isdigit())
        except FileNotFoundError:
            return []

    def create(self) -> None:
        """Make the directory, readable by its owner only.

        Raises:
            StorageError: It can't be made (read-only, full, a file in the way).
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.logs.mkdir(exist_ok=True)
            self.stop_requests.mkdir(exist_ok=True)
        except OSError as ex:
            raise storage_error(self.path, ex) from ex

    def read_spec(self) -> JobSpec:
        """Raises: NotFoundError when there is no such job."""
        spec = read_json(self.spec_file, JobSpec)
        if spec is None:
            raise NotFoundError(
                f"No job {self.job_id!r} under {self.path.parent}.", remedy="hawk list eval-sets"
            )
        return spec

    def read_plan(self) -> Plan | None:
        return read_json(self.plan_file, Plan)

    def read_snapshot(self) -> Snapshot | None:
        return read_json(self.snapshot_file, Snapshot)

    def append_journal(self, *entries: JournalEntry) -> None:
        """Append lines in one write, so that two writers can't interleave within a line."""
        if not entries:
            return
        encoder = msgspec.json.Encoder()
        data = b"".join(encoder.encode(entry) + b"\n" for entry in entries)
        try:
            with self.journal_file.open("ab") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
        except OSError as ex:
            raise storage_error(self.journal_file, ex) from ex

    def journal(self) -> Iterator[JournalEntry]:
        """All entries, oldest first; lines that are torn or not ours are passed over."""
        decoder = msgspec.json.Decoder(JournalEntry)
        try:
            with self.journal_file.open("rb") as f:
                for line in f:
                    try:
                        yield decoder.decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        continue
        except FileNotFoundError:
            return

    def read_sealed_snapshot(self) -> SealedSnapshot | None:
        """The snapshot with its tasks as bytes: ten times faster on a large job."""
        return read_json(self.snapshot_file, SealedSnapshot)

    def has_room(self) -> bool:
        """Whether the disk has space for more than its last crumbs: without it nothing can be recorded."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return True  # another error will say what is wrong
        return disk.f_bavail * disk.f_frsize >= LEAST_ROOM

    def supervisor_pid(self) -> int | None:
        """The pid of the living supervisor, or None: the lock tells, whatever killed it."""
        return holder(self.lock_file)


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace a file whole: a reader sees the old or the new content, never half, also after a power cut.

    Args:
        durable: False saves the fsync, for files that are rewritten every second and mean nothing after a reboot.

    Raises:
        StorageError: The directory is missing, read-only or full. The old file is untouched.
    """
    try:
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as ex:
        raise storage_error(path, ex) from ex
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fchmod(f.fileno(), mode)
            if durable:
                os.fsync(f.fileno())
        Path(name).replace(path)
    except OSError as ex:
        Path(name).unlink(missing_ok=True)
        raise storage_error(path, ex) from ex


def remove_temporaries(directory: Path) -> None:
    """Remove what killed `write_atomic`s have left in a directory that nobody writes to any more."""
    with contextlib.suppress(OSError):
        for path in [path for path in directory.iterdir() if _TEMPORARY.fullmatch(path.name)]:
            path.unlink()


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write a struct or plain data as JSON, whole."""
    write_atomic(path, msgspec.json.encode(value), durable=durable)


def read_json(path: Path, type_: type[T]) -> T | None:
    """Read a JSON file written by `write_json`; None when it is missing.

    Raises:
        StorageError: It is there but can't be read or is not of that type.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as ex:
        raise storage_error(path, ex) from ex
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as ex:
        raise StorageError(
            f"{path} is damaged: {ex}.", remedy="Restore it, or delete the job.", path=str(path)
        ) from ex


def storage_error(path: Path, ex: OSError) -> StorageError:
    """Say what is wrong with a path and what to do about it."""
    remedy = {
        errno.ENOSPC: "Free some space on that disk; finished attempts are kept.",
        errno.EDQUOT: "The disk quota is used up; free some space.",
        errno.EROFS: "The file system is read-only; set HAWK_HOME to a writable directory.",
        errno.EACCES: "You may not write there; set HAWK_HOME to a writable directory.",
        errno.EPERM: "You may not write there; set HAWK_HOME to a writable directory.",
        errno.ENOTDIR: "A file is in the way; set HAWK_HOME to another directory.",
        errno.EEXIST: "A file is in the way; set HAWK_HOME to another directory.",
    }.get(ex.errno or 0)
    return StorageError(f"{path}: {ex.strerror or ex}.", remedy=remedy, path=str(path))
