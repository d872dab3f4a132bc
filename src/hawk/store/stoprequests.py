"""Requests to stop, as files in the run directory.

A file is what outlives a supervisor that dies between the request and the answer: the next one finds it. The
answer is a line of the journal with the request's id.
"""

from __future__ import annotations

import secrets

import msgspec

from hawk.core.states import StopAction
from hawk.store.rundir import RunDir, read_json, storage_error, write_json


class StopRequest(msgspec.Struct):
    """Stop the whole job, or one sample by its uuid."""

    id: str
    action: StopAction = StopAction.SCORE
    sample_uuid: str | None = None


def request(run_dir: RunDir, action: StopAction, sample_uuid: str | None) -> StopRequest:
    """Leave a request for the supervisor.

    Raises:
        StorageError: The run directory can't be written.
    """
    asked = StopRequest(secrets.token_hex(8), action, sample_uuid)
    try:
        run_dir.stop_requests.mkdir(exist_ok=True)
    except OSError as ex:
        raise storage_error(run_dir.stop_requests, ex) from ex
    write_json(run_dir.stop_requests / f"{asked.id}.json", asked)
    return asked


def pending(run_dir: RunDir) -> list[StopRequest]:
    """Requests not yet answered, oldest first."""
    try:
        files = [p for p in run_dir.stop_requests.iterdir() if p.suffix == ".json"]
    except FileNotFoundError:
        return []
    found = (read_json(path, StopRequest) for path in sorted(files, key=lambda p: p.stat().st_mtime_ns))
    return [asked for asked in found if asked is not None]


def answered(run_dir: RunDir, asked: StopRequest) -> None:
    (run_dir.stop_requests / f"{asked.id}.json").unlink(missing_ok=True)


def clear(run_dir: RunDir) -> None:
    """Forget requests that were meant for an earlier generation."""
    for asked in pending(run_dir):
        answered(run_dir, asked)
