"""One attempt as its log keeps it, for who goes on from where its agent was done.

Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from inspect_ai.log import EvalSample, read_eval_log_sample
from inspect_ai.scorer import Score

from hawk.bridge.archive import Archive, ArchiveError
from hawk.bridge.evallog import LogCache, LogUnreadable, list_logs, read_header
from hawk.bridge.logformat import loads

_NOT_NEEDED = {"events", "timelines", "error_retries"}
"""Most of a long attempt's record, and none of its state."""

_ATTACHMENTS = ("attachment://", "tc://")


class Place(NamedTuple):
    """Where an attempt's record is."""

    log: Path
    sample_id: str
    epoch: int


class KeptSample(NamedTuple):
    """What an agent left of its attempt's state.

    Attributes:
        sample: Without its events.
        metadata: As it began, where the log says so.
        scores: Those that its solvers gave, not its scorers.
    """

    sample: EvalSample
    metadata: dict[str, Any] | None
    scores: dict[str, Score]

    def metadata_now(self, fresh: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a fresh attempt, with what this one changed in its own.

        The task may have other metadata by now, a corrected answer say, and what scorers read there is the task's.
        """
        if self.metadata is None:
            return {**fresh, **self.sample.metadata}
        left = self.sample.metadata
        changed = {k: v for k, v in left.items() if k not in self.metadata or not _same(self.metadata[k], v)}
        gone = self.metadata.keys() - left.keys()
        return {**{k: v for k, v in fresh.items() if k not in gone}, **changed}


def find_samples(logs: Path) -> dict[str, Place]:
    """Where the record of each attempt is, by its uuid: in the newest log that has it."""
    cache, found = LogCache(), dict[str, Place]()
    for path in list_logs(logs):
        try:
            summaries = cache.read(path)[1]
        except LogUnreadable:  # torn by a kill: the log that follows has what could be saved
            continue
        found.update({row.uuid: Place(path, row.id, row.epoch) for row in summaries if row.uuid})
    return found


def read_kept_sample(place: Place) -> KeptSample:
    """Read an attempt. It may take a while: in a thread.

    Raises:
        LogUnreadable: The log is missing or damaged, or does not have it.
    """
    try:
        sample = read_eval_log_sample(
            place.log, place.sample_id, place.epoch, resolve_attachments="full", exclude_fields=_NOT_NEEDED
        )
        began = _began(place)
    except (IndexError, KeyError, ValueError, ArchiveError) as ex:
        raise LogUnreadable(place.log, f"sample {place.sample_id!r}, attempt {place.epoch}: {ex}") from ex
    except OSError as ex:
        raise LogUnreadable(place.log, ex.strerror or str(ex)) from ex
    names = _names_of_scorers(read_header(place.log).eval)
    own = {name: score for name, score in (sample.scores or {}).items() if name not in names}
    return KeptSample(sample, began, own)


class _Began(msgspec.Struct):
    metadata: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    event: str = ""
    sample: _Began | None = None


class _Record(msgspec.Struct):
    events: list[_Event] = []
    attachments: dict[str, str] = {}


def _began(place: Place) -> dict[str, Any] | None:
    """The metadata that an attempt began with, from its first events."""
    name = f"samples/{place.sample_id}_epoch_{place.epoch}.json"
    with Archive(place.log) as archive:
        member = archive.members(name.encode().__eq__).get(name)
        if member is None:
            return None
        record = loads(archive.read(member), _Record)
    for event in record.events:
        if event.event == "sample_init" and event.sample is not None:
            resolved: dict[str, Any] = _resolved(event.sample.metadata or {}, record.attachments)
            return resolved
    return None


def _resolved(value: Any, attachments: Mapping[str, str]) -> Any:
    if isinstance(value, str) and value.startswith(_ATTACHMENTS):
        return attachments.get(value.partition("://")[2], value)
    if isinstance(value, dict):
        return {key: _resolved(item, attachments) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, attachments) for item in value]
    return value


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same as JSON: a log turns tuples into lists."""
    encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode
    return encode(one) == encode(other)


def _names_of_scorers(spec: Mapping[str, Any]) -> set[str]:
    """Names under which an eval's scorers put their scores, as Inspect makes them unlike: `name`, `name1`, …"""
    counts = Counter(scorer.get("name", "").rpartition("/")[2] for scorer in spec.get("scorers") or [])
    return {name + (str(n) if n else "") for name, count in counts.items() for n in range(count)}
