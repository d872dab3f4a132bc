"""One attempt as its log has it, without importing Inspect: as much of it as says what it came to.

The fields are named as Inspect's `EvalSample` names them, so that `hawk.bridge.ended` reads either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hawk.bridge.archive import Archive, ArchiveError
from hawk.bridge.evallog import LogUnreadable
from hawk.bridge.logformat import loads

LARGEST = 256 << 20
"""Bytes of an attempt's record that are read: the supervisor reads it, whose memory is small."""


class _Error(msgspec.Struct):
    message: str = ""
    traceback: str = ""


class _Score(msgspec.Struct):
    value: Any = None
    answer: str | None = None
    explanation: str | None = None
    metadata: dict[str, Any] | None = None


class _Limit(msgspec.Struct):
    type: str
    reason: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_cache_read: int | None = None
    input_tokens_cache_write: int | None = None
    reasoning_tokens: int | None = None
    total_cost: float | None = None


class _Event(msgspec.Struct):
    event: str = ""
    name: Any = None
    error: Any = None
    pending: bool | None = None


class LoggedSample(msgspec.Struct):
    """What Inspect recorded of one attempt."""

    id: str | int
    epoch: int
    uuid: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    total_time: float | None = None
    working_time: float | None = None
    error: _Error | None = None
    error_retries: list[Any] | None = None
    limit: _Limit | None = None
    scores: dict[str, _Score] | None = None
    model_usage: dict[str, _Usage] = {}
    metadata: dict[str, Any] | None = None
    events: list[_Event] = []


def read_logged_sample(log: Path, sample_id: str, epoch: int) -> LoggedSample:
    """Read an attempt.

    Raises:
        LogUnreadable: The log is missing or damaged, does not have it, or its record is too large.
    """
    name = f"samples/{sample_id}_epoch_{epoch}.json"
    try:
        with Archive(log) as archive:
            member = archive.members(name.encode().__eq__).get(name)
            if member is None:
                raise LogUnreadable(log, f"it has no sample {sample_id!r}, attempt {epoch}")
            if member.size > LARGEST:
                raise LogUnreadable(log, f"the record of {sample_id!r}, attempt {epoch} is too large")
            return loads(archive.read(member), LoggedSample)
    except OSError as ex:
        raise LogUnreadable(log, ex.strerror or str(ex)) from ex
    except (ArchiveError, ValueError, RecursionError) as ex:
        raise LogUnreadable(log, str(ex)) from ex
