"""Requests to act on a running job, as files in the run directory: the same way as `store.stoprequests`.

A file is what outlives a supervisor that dies before it has answered: the next one finds it, sees how far it had got,
and does the rest. The answer is a line of the journal (kind `fix`) that carries the request's id and what came of each
target. `actions/` holds the requests, `settings.json` what was set for the rest of the job.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from hawk.core.diagnosis.verdict import Fix
from hawk.errors import StorageError
from hawk.store.rundir import JournalEntry, RunDir, read_json, storage_error, write_json

KIND = "fix"
"""Of the journal's lines about actions. States: asked, done, refused; `notified` and `not notified` of the watchdog."""


class ActionRequest(msgspec.Struct, omit_defaults=True):
    """Do something about a verdict.

    Attributes:
        fix: What, with the attempts or the subject that it is done to.
        cause: Of the verdict; empty when somebody asked without one.
        by: Who asked: a user, or `watchdog`.
        soft: Of a pause: attempts in flight go on, only new ones wait.
        generation: Of the job when it was asked for: a resumed job obeys no request that was meant for the run before.
        held: Names of the attempts that it is for, where who asked counts by them.
        taken: A supervisor has begun.
        pins: What exactly it began with, by target: tool calls, or the process of a worker. Who goes on with a request
            does nothing to what came after.
    """

    id: str
    fix: Fix
    cause: str = ""
    by: str = ""
    soft: bool = False
    generation: int = 1
    at: str = ""
    held: list[str] = []
    taken: bool = False
    pins: dict[str, list[str]] = {}


class Outcome(msgspec.Struct, omit_defaults=True):
    """What came of an action for one target: an attempt, a worker, a model or a setting."""

    target: str
    done: bool
    said: str = ""


class Kept(msgspec.Struct, omit_defaults=True):
    """What was set while the job ran and holds for the rest of it, workers that are started again included.

    Attributes:
        settings: Of the model calls of all workers, by name.
        limits: Of attempts, by task identifier and name.
        models: Models that are paused, and whether their calls are held as well.
        paused: The whole job is, and whether model calls are held as well; None: it is not.
    """

    generation: int = 1
    settings: dict[str, int] = {}
    limits: dict[str, dict[str, int]] = {}
    models: dict[str, bool] = {}
    paused: bool | None = None

    @property
    def empty(self) -> bool:
        return not (self.settings or self.limits or self.models or self.paused is not None)


def request(
    run_dir: RunDir,
    fix: Fix,
    *,
    by: str,
    cause: str = "",
    soft: bool = False,
    generation: int = 1,
    held: Iterable[str] = (),
) -> ActionRequest:
    """Leave a request for the supervisor.

    Raises:
        StorageError: The run directory can't be written.
    """
    now = datetime.now(UTC).isoformat()
    asked = ActionRequest(secrets.token_hex(8), fix, cause, by, soft, generation, now, list(held))
    folder = run_dir.path / "actions"
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
    except OSError as ex:
        raise storage_error(folder, ex) from ex
    update(run_dir, asked)
    return asked


def update(run_dir: RunDir, asked: ActionRequest) -> None:
    """Write how far a request has got."""
    write_json(run_dir.path / "actions" / f"{asked.id}.json", asked)


def pending(run_dir: RunDir) -> list[ActionRequest]:
    """Requests not yet answered, oldest first; what is damaged is passed over."""
    try:
        files = [p for p in (run_dir.path / "actions").iterdir() if p.suffix == ".json" and p.name[0] != "."]
    except FileNotFoundError:
        return []
    found = []
    for path in files:
        try:
            asked = read_json(path, ActionRequest)
        except StorageError:
            continue
        if asked is not None:
            found.append(asked)
    return sorted(found, key=lambda asked: (asked.at, asked.id))


def answered(run_dir: RunDir, asked: ActionRequest) -> None:
    (run_dir.path / "actions" / f"{asked.id}.json").unlink(missing_ok=True)


def clear(run_dir: RunDir) -> None:
    """Forget requests that were meant for an earlier generation."""
    for asked in pending(run_dir):
        answered(run_dir, asked)


def read_kept(run_dir: RunDir, generation: int) -> Kept:
    """What was set in this generation of the job; nothing when it was another, or can't be read."""
    try:
        kept = read_json(run_dir.path / "settings.json", Kept)
    except StorageError:
        kept = None
    return kept if kept is not None and kept.generation == generation else Kept(generation)


def write_kept(run_dir: RunDir, kept: Kept) -> None:
    """Raises: StorageError."""
    write_json(run_dir.path / "settings.json", kept)


class Answer(msgspec.Struct):
    """The answer to a request, from the journal."""

    done: bool
    said: str
    results: list[Outcome] = []


def answer(entries: Iterable[JournalEntry], request_id: str) -> Answer | None:
    """What the journal has about a request; None: the supervisor has not answered yet."""
    for entry in entries:
        if entry.kind == KIND and entry.state in ("done", "refused") and entry.data.get("id") == request_id:
            results = msgspec.convert(entry.data.get("results") or [], list[Outcome])
            return Answer(entry.state == "done", entry.reason, results)
    return None
