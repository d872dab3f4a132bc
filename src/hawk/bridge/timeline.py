"""Reads the events of attempts for timelines: from a log, or from the realtime buffer while there is no log of them.

Only what timelines need is decoded: the texts of a long conversation are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Any

import msgspec

from hawk.bridge.archive import Archive, ArchiveError
from hawk.bridge.buffer import as_text, modified, rows
from hawk.bridge.evallog import LogUnreadable
from hawk.bridge.logformat import decode_summary
from hawk.core.timeline.records import EMPTY, EarlierTry, EventRow, SampleRecord

LARGEST = 512 * 1024 * 1024
"""Bytes of one attempt in a log, unpacked: a larger one would not fit into the server's memory with others."""

_WAIT = 1.0
"""Seconds to wait for a buffer that is being written."""

_BARE = re.compile(rb"(?<=[:\[,])(\s*)(?:NaN|-?Infinity)(?=\s*[,\]}])")
"""Numbers that JSON has no word for. In a text that looks alike no harm is done: texts are not used."""

_START = b"_journal/start.json"


class _Sample(msgspec.Struct):
    uuid: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    events: list[EventRow] = []
    error_retries: list[EarlierTry] | None = None
    attachments: dict[str, msgspec.Raw] | None = None


class _Lenient(msgspec.Struct):
    uuid: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    events: list[msgspec.Raw] = []


class _Spec(msgspec.Struct):
    sandbox: msgspec.Raw = EMPTY


class _Begun(msgspec.Struct):
    eval: _Spec


_decode = msgspec.json.Decoder(_Sample).decode
_decode_lenient = msgspec.json.Decoder(_Lenient).decode
_decode_row = msgspec.json.Decoder(EventRow).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class LogSamples:
    """The attempts of one log; a context manager.

    Raises:
        LogUnreadable: The log is missing, empty, cut short or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._archive = Archive(path)
        except OSError as ex:
            raise LogUnreadable(path, ex.strerror or str(ex)) from ex
        try:
            self._members = self._archive.members(lambda name: name.startswith(b"samples/") or name == _START)
        except (OSError, ArchiveError) as ex:
            self._archive.__exit__()
            raise LogUnreadable(path, str(ex)) from ex

    def __enter__(self) -> LogSamples:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.__exit__()

    @cached_property
    def has_sandbox(self) -> bool:
        """Its eval has one; a sample may have one of its own all the same."""
        member = self._members.get(_START.decode())
        if member is None:
            return False
        try:
            sandbox = msgspec.json.decode(self._archive.read(member), type=_Begun).eval.sandbox
        except (OSError, ArchiveError, msgspec.DecodeError, UnicodeDecodeError):
            return False
        return bytes(sandbox) not in (b"", b"null")

    def read(self, sample_id: str, epoch: int) -> SampleRecord:
        """One attempt.

        Raises:
            LogUnreadable: The log has no such attempt, or it is damaged.
        """
        member = self._members.get(f"samples/{sample_id}_epoch_{epoch}.json")
        if member is None:
            raise LogUnreadable(self._path, f"it has no sample {sample_id!r}, attempt {epoch}")
        if member.size > LARGEST:
            return SampleRecord("", None, None, [], problem=f"the attempt's record has {member.size:,} bytes")
        try:
            record = _record(self._archive.read(member))
        except (OSError, ArchiveError, ValueError, RecursionError) as ex:
            raise LogUnreadable(self._path, str(ex)) from ex
        record.has_sandbox = self.has_sandbox
        return record


def buffers(directory: Path, log_name: str | None = None) -> list[Path]:
    """Realtime buffers below a run's `buffer` directory, newest first: of one log, or all.

    A buffer goes when its log is finished; what a killed worker held stays.
    """
    pattern = f"*/{escape(log_name)}.*.db" if log_name else "*/*.db"
    return sorted(directory.glob(pattern), key=modified, reverse=True)


def buffered(db: Path) -> Iterator[tuple[str, str, int]]:
    """(uuid, sample id, epoch) of each attempt in a buffer; none where it can't be read."""
    for (data,) in _rows(db, "SELECT data FROM samples"):
        try:
            summary = decode_summary(data)
        except ValueError:
            continue
        if summary.uuid:
            yield summary.uuid, summary.id, summary.epoch


def read_buffered(db: Path, sample_id: str, epoch: int) -> SampleRecord | None:
    """An attempt in a buffer with all its events, each as its newest row has it; None where it is not there."""
    found = _rows(db, "SELECT data FROM samples WHERE id = ? AND epoch = ?", sample_id, epoch)
    if not found:
        return None
    summary = decode_summary(found[0][0])
    rows = _rows(
        db,
        "SELECT data FROM events JOIN (SELECT min(id) AS first, max(id) AS last FROM events"
        " WHERE sample_id = ? AND sample_epoch = ? GROUP BY event_id) ON id = last ORDER BY first",
        sample_id,
        epoch,
    )
    events = [row for row in map(_row, (data for (data,) in rows)) if row is not None]
    texts = _texts(db, sample_id, epoch) if _refers(events) else {}
    return SampleRecord(
        uuid=summary.uuid or "",
        started_at=summary.started_at,
        completed_at=summary.completed_at if summary.completed else None,
        events=events,
        texts=texts,
    )


def _refers(events: list[EventRow]) -> bool:
    return any((row.cmd or row.file or "").startswith("attachment://") for row in events)


def _texts(db: Path, sample_id: str, epoch: int) -> dict[str, msgspec.Raw]:
    query = "SELECT hash, substr(content, 1, 1000) FROM attachments WHERE sample_id = ? AND sample_epoch = ?"
    return {
        as_text(key): msgspec.Raw(msgspec.json.encode(as_text(content)))
        for key, content in _rows(db, query, sample_id, epoch)
    }


def _record(data: bytes) -> SampleRecord:
    try:
        sample = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        sample = _leniently(_BARE.sub(rb"\1null", data))
    return SampleRecord(
        uuid=sample.uuid or "",
        started_at=sample.started_at,
        completed_at=sample.completed_at,
        events=sample.events,
        earlier=sample.error_retries or [],
        texts=sample.attachments or {},
    )


def _leniently(data: bytes) -> _Sample:
    """With events left out that are not of the expected form; numbers that are none have become nothing already."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        rough = _decode_lenient(data)
        events = [row for row in map(_row, rough.events) if row is not None]
        return _Sample(rough.uuid, rough.started_at, rough.completed_at, events)


def _row(data: bytes | msgspec.Raw) -> EventRow | None:
    try:
        return _decode_row(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        clean = _BARE.sub(rb"\1null", bytes(data))
        fields = _decode_fields(clean)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    kept: dict[str, Any] = {}
    for name, raw in fields.items():
        if name in EventRow.__struct_fields__:
            try:
                _decode_row(msgspec.json.encode({"event": "", name: raw}))
            except msgspec.DecodeError:
                continue
            kept[name] = raw
    try:
        return _decode_row(msgspec.json.encode(kept))
    except msgspec.DecodeError:
        return None


def _rows(db: Path, query: str, *values: str | int) -> list[tuple[Any, ...]]:
    """All rows; none where the buffer can't be read now."""
    return rows(db, query, *values, wait=_WAIT) or []
