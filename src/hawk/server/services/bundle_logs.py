"""Logs and workspaces for a bundle: read, freed of secrets, and put together again in their own formats."""

from __future__ import annotations

import io
import sqlite3
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hawk.bridge.archive import Archive, ArchiveError, Member
from hawk.core.recorder.bundlecut import cut_header
from hawk.core.zstd import Packer, ZstdError
from hawk.server.services.bundle_reading import CHUNK, Gone, Item, Redact, unpacked

HEADER, START = b"header.json", b"_journal/start.json"
LARGEST = 64 << 20
"""Bytes of one attempt in a log, or of one file in a workspace, that are taken."""


class NotWholeError(OSError):
    """A log or a workspace that can't be read: it is left out, and said why."""


def header(path: Path, *, whole: bool) -> Item | Gone:
    """The header of a log, or of one that has not ended its first record.

    Args:
        whole: Texts of errors are not cut.
    """
    name = f"logs/{path.name}.header.json"
    try:
        with Archive(path) as archive:
            members = archive.members(lambda name: name in (HEADER, START))
            member = members.get(HEADER.decode()) or members.get(START.decode())
            data = archive.read(member) if member is not None else None
    except (OSError, ArchiveError) as ex:
        return Gone(name, f"the log can't be read: {ex}")
    kept = data if whole or data is None else cut_header(data)
    return Gone(name, "the log has none") if kept is None else Item(name, iter((kept,)))


def log_without_secrets(path: Path, redact: Redact) -> Iterator[bytes]:
    """A log with the same members, freed of secrets. Attempts of more than `LARGEST` bytes are left out.

    Raises:
        NotWholeError: It is damaged.
    """
    pipe = _Pipe()
    try:
        with Archive(path) as archive, zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as log:
            for name, member in archive.members(lambda name: True).items():
                if member.size <= LARGEST:
                    _copy(archive, member, log, name, redact)
                    yield from pipe.taken()
    except ArchiveError as ex:
        raise NotWholeError(f"the log can't be read: {ex}") from ex
    yield from pipe.taken()


def _copy(archive: Archive, member: Member, log: zipfile.ZipFile, name: str, redact: Redact) -> None:
    data = b"".join(redact((archive.read(member),)))
    log.writestr(zipfile.ZipInfo(name), data)


class _Pipe(io.RawIOBase):
    """A file that is only written, and read meanwhile."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)  # type: ignore[call-overload]
        self._parts.append(part)
        return len(part)

    def taken(self) -> Iterator[bytes]:
        parts, self._parts = self._parts, []
        yield from parts


def buffer_without_secrets(path: Path, redact: Redact) -> Iterator[bytes]:
    """The database of what attempts in flight have written, with the same rows, freed of secrets.

    Raises:
        NotWholeError: It is too large, or can't be read now.
    """
    if path.stat().st_size > LARGEST:
        raise NotWholeError("it is too large")
    uri = f"file:{quote(str(path))}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as old, closing(sqlite3.connect(":memory:")) as new:
            old.execute("BEGIN")
            for name, sql in old.execute(_TABLES).fetchall():
                new.execute(sql)
                table = _quoted(name)
                for row in old.execute(f"SELECT * FROM {table}"):  # noqa: S608
                    marks = ", ".join("?" * len(row))
                    values = [_clean(value, redact) for value in row]
                    new.execute(f"INSERT INTO {table} VALUES ({marks})", values)  # noqa: S608
            new.commit()
            yield new.serialize()
    except sqlite3.Error as ex:
        raise NotWholeError(f"the database can't be read: {ex}") from ex


_TABLES = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _clean(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return b"".join(redact((value.encode("utf-8", "replace"),))).decode("utf-8", "replace")
    return b"".join(redact((value,))) if isinstance(value, bytes) else value


def workspace_without_secrets(path: Path, redact: Redact) -> Iterator[bytes]:
    """A workspace with the same files, freed of secrets; those of more than `LARGEST` bytes are left out.

    Raises:
        NotWholeError: It is damaged.
    """
    pipe, packer = _Pipe(), Packer()
    source = io.BufferedReader(_Unpacked(unpacked(path)), CHUNK)
    try:
        with tarfile.open(fileobj=source, mode="r|") as old, tarfile.open(fileobj=pipe, mode="w|") as new:
            for info in old:
                _copy_file(old, info, new, redact)
                for part in pipe.taken():
                    yield packer.feed(part)
    except (tarfile.TarError, ZstdError, ValueError) as ex:
        raise NotWholeError(f"the workspace can't be read: {ex}") from ex
    for part in pipe.taken():
        yield packer.feed(part)
    yield packer.finish()


def _copy_file(old: tarfile.TarFile, info: tarfile.TarInfo, new: tarfile.TarFile, redact: Redact) -> None:
    content = old.extractfile(info) if info.isreg() else None
    if content is None:
        new.addfile(info)
    elif info.size <= LARGEST:
        data = b"".join(redact((content.read(),)))
        info.size, info.type = len(data), tarfile.REGTYPE  # it may have been a sparse one
        new.addfile(info, io.BytesIO(data))


class _Unpacked(io.RawIOBase):
    """Parts as a file that is only read."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = part
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
