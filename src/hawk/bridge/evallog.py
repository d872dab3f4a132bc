"""Reads Inspect's `.eval` logs, finished or growing, without importing Inspect.

A log is a zip archive. `_journal/start.json` is there from the start, `_journal/summaries/<n>.json` after each
flush, one `samples/<id>_epoch_<n>.json` a finished attempt, and `header.json` with `summaries.json` at the end.
Superseded records stay behind under the same name: the last entry is the current one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from hawk.bridge.archive import Archive, ArchiveError, Member
from hawk.bridge.logformat import LogHeader, SampleSummary, decode_header, decode_summaries, loads
from hawk.errors import StorageError

_HEADER = "header.json"
_SUMMARIES = "summaries.json"
_START = "_journal/start.json"
_JOURNAL = "_journal/summaries/"
_ATTACHMENTS = ("attachment://", "tc://")


class LogUnreadable(StorageError):  # noqa: N818 - a state of the file, met every day while logs are written
    """A log that is missing, empty, cut short or damaged. Fields: `path`, `why`."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"The log {path} can't be read: {why}.", path=str(path), why=why)
        self.why = why


class TaskLogs(msgspec.Struct):
    """All logs of one task id: one a try, as a task is run again after a crash or an error.

    Attributes:
        header: Of the newest log that can be read.
        paths: Oldest first; the last is the current one.
        summaries: Attempts over all logs. Don't modify: caches share them.
    """

    header: LogHeader
    paths: list[Path]
    summaries: list[SampleSummary]


class LogDir(msgspec.Struct):
    """A log directory: its tasks by task id, and the logs that can't be read with the reason."""

    tasks: dict[str, TaskLogs]
    unreadable: dict[str, str]


class LogCache:
    """Reads logs again and again and decodes only what is new. For one thread."""

    def __init__(self) -> None:
        self._logs: dict[Path, _Cached] = {}

    def read(self, path: Path) -> tuple[LogHeader, list[SampleSummary]]:
        """Header and attempts of a log. Don't modify what you get; a later read gives new lists.

        Raises:
            LogUnreadable: It is missing, empty, cut short or damaged.
        """
        cached = self._logs.get(path)
        try:
            if cached is None or cached.stamp != _stamp(path):
                with _opened(path) as archive:
                    cached = self._logs[path] = _refresh(path, archive, cached)
        except OSError as ex:
            self._logs.pop(path, None)
            raise LogUnreadable(path, ex.strerror or str(ex)) from ex
        except LogUnreadable:
            self._logs.pop(path, None)
            raise
        return cached.header, cached.summaries

    def read_dir(self, directory: Path) -> LogDir:
        """Every task in a log directory, and what can't be read. A directory that is missing is empty."""
        found: dict[str, list[tuple[Path, LogHeader, list[SampleSummary]]]] = {}
        unreadable: dict[str, str] = {}
        paths = list_logs(directory)
        for path in paths:
            try:
                header, summaries = self.read(path)
            except LogUnreadable as ex:
                unreadable[path.name] = ex.why
            else:
                found.setdefault(header.task_id, []).append((path, header, summaries))
        for gone in [p for p in self._logs if p.parent == directory and p not in paths]:
            del self._logs[gone]
        tasks = {
            task_id: TaskLogs(logs[-1][1], [log[0] for log in logs], merge([log[2] for log in logs]))
            for task_id, logs in found.items()
        }
        return LogDir(tasks, unreadable)


def merge(tries: list[list[SampleSummary]]) -> list[SampleSummary]:
    """The attempts of a task over all its logs, oldest log first.

    The newest log decides. From older ones only what a resume would keep survives: an attempt that errored or
    was cancelled there will be run again, whereas a finished one must not vanish while the newer log fills.
    """
    if len(tries) == 1:
        return tries[0]
    merged = {s.key: s for older in tries[:-1] for s in older if s.reusable}
    merged.update((s.key, s) for s in tries[-1])
    return list(merged.values())


def list_logs(directory: Path) -> list[Path]:
    """The logs in a directory, not below it, newest last.

    Names begin with the UTC time of creation. A recovered log carries the name of the one it was made from:
    it follows that one, and precedes any that was started later.
    """
    try:
        names = [
            e.name for e in os.scandir(directory) if e.name.endswith(".eval") and not e.name.startswith(".")
        ]
    except OSError:
        return []
    return [directory / name for name in sorted(names, key=_age)]


def newest_by_task(directory: Path) -> dict[str, Path]:
    """The current log of each task id; logs that can't be read are passed over."""
    return {task_id: logs.paths[-1] for task_id, logs in LogCache().read_dir(directory).tasks.items()}


def read_task(directory: Path, task_id: str) -> TaskLogs | None:
    """One task over all its logs, or None where the directory has none of it."""
    return LogCache().read_dir(directory).tasks.get(task_id)


def read_header(path: Path) -> LogHeader:
    """The header, raw `eval` included.

    Raises:
        LogUnreadable: See there.
    """
    with _opened(path) as archive:
        members = archive.members(_is_index)
        data = archive.read(_header_member(members))
        header = decode_header(str(path), data)
        header.eval = loads(data, dict[str, Any])["eval"]
        return header


def read_summaries(path: Path) -> list[SampleSummary]:
    """All attempts in the log; of two records of one attempt the later.

    Raises:
        LogUnreadable: See there.
    """
    return LogCache().read(path)[1]


def read_sample(path: Path, sample_id: str, epoch: int) -> dict[str, Any]:
    """One whole attempt as plain data. Long texts that were moved to `attachments` are put back in place.

    The pools in `events_data`, which model events refer to by `input_refs`, stay pools: expanding them
    takes memory quadratic in the length of the conversation.

    Raises:
        LogUnreadable: See there; also when the log has no such sample.
    """
    name = f"samples/{sample_id}_epoch_{epoch}.json"
    wanted = name.encode()
    with _opened(path) as archive:
        member = archive.members(wanted.__eq__).get(name)
        if member is None:
            raise LogUnreadable(path, f"it has no sample {sample_id!r}, attempt {epoch}")
        sample = loads(archive.read(member), dict[str, Any])
        attachments = sample.pop("attachments", None) or {}
        resolved: dict[str, Any] = _resolve(sample, attachments)
        return resolved


class _Cached(msgspec.Struct):
    stamp: tuple[int, int, int]
    header: LogHeader
    summaries: list[SampleSummary]
    source: Member
    journal: dict[str, Member]


def _refresh(path: Path, archive: Archive, old: _Cached | None) -> _Cached:
    """Read what changed since `old`: a growing log only gains members."""
    members = archive.members(_is_index)
    source = _header_member(members)
    same = old is not None and old.source == source
    header = old.header if old and same else decode_header(str(path), archive.read(source))
    if _SUMMARIES in members:
        rows = decode_summaries(archive.read(members[_SUMMARIES]))
        return _Cached(archive.stamp, header, _newest(rows), source, {})
    journal = {name: members[name] for name in sorted(filter(_is_journal, members), key=_index)}
    known = old.journal if old and same else {}
    if list(journal.items())[: len(known)] != list(known.items()):
        known = {}
    rows = list(old.summaries) if old and known else []
    for name in list(journal)[len(known) :]:
        rows += decode_summaries(archive.read(journal[name]))
    return _Cached(archive.stamp, header, _newest(rows), source, journal)


@contextmanager
def _opened(path: Path) -> Iterator[Archive]:
    """An archive; whatever is wrong with it becomes LogUnreadable."""
    try:
        with Archive(path) as archive:
            yield archive
    except OSError as ex:
        raise LogUnreadable(path, ex.strerror or str(ex)) from ex
    except ArchiveError as ex:
        raise LogUnreadable(path, str(ex)) from ex
    except RecursionError as ex:
        raise LogUnreadable(path, "a document in it is nested too deep") from ex
    except (ValueError, KeyError) as ex:
        raise LogUnreadable(path, f"a document in it is not as expected ({ex})") from ex


def _header_member(members: dict[str, Member]) -> Member:
    member = members.get(_HEADER) or members.get(_START)
    if member is None:
        raise ArchiveError("it holds no evaluation")
    return member


def _newest(rows: list[SampleSummary]) -> list[SampleSummary]:
    return list({row.key: row for row in rows}.values())


def _stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _is_index(name: bytes) -> bool:
    return not name.startswith(b"samples/")


def _is_journal(name: str) -> bool:
    return name.startswith(_JOURNAL) and name[len(_JOURNAL) : -len(".json")].isdigit()


def _index(name: str) -> int:
    return int(name[len(_JOURNAL) : -len(".json")])


def _age(name: str) -> tuple[str, bool]:
    stem = name.removesuffix(".eval")
    return stem.removesuffix("-recovered"), stem.endswith("-recovered")


def _resolve(value: Any, attachments: dict[str, str]) -> Any:
    if isinstance(value, str):
        if value.startswith(_ATTACHMENTS):
            return attachments.get(value.partition("://")[2], value)
        return value
    if isinstance(value, dict):
        return {key: _resolve(item, attachments) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, attachments) for item in value]
    return value
