"""Unpacking a bundle into a run directory of its own, which is gone afterwards.

A bundle comes from elsewhere and may be hostile: names that lead out, links, devices, files without end. All of
these refuse it.
"""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hawk.core.parts import Parts
from hawk.core.recorder.bundle import MOST, MOST_FILES
from hawk.core.zstd import Unpacker, ZstdError
from hawk.errors import StorageError
from hawk.store.rundir import RunDir, storage_error

CHUNK = 1 << 10
"""Packed bytes that are unpacked at a time: the worst of them become 32 MiB."""
ROOM = 2 * MOST
"""Bytes that unpacked files may have together: a bundle holds half of it."""

_BLOCK = 512
_LONG_NAME = 8192
_LATEST = 1 << 33  # of a file's time: what every file system can keep
_PART = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*")
_RECORD = re.compile(rb"\d+ path=([^\n]*)\n")


@contextmanager
def open_bundle(path: Path) -> Iterator[RunDir]:
    """The run directory that a bundle holds, unpacked into a temporary place while the context lasts.

    Raises:
        StorageError: It can't be read, is damaged or cut short, or holds what no bundle holds.
    """
    with tempfile.TemporaryDirectory(prefix="hawk-bundle-") as place:
        try:
            top = _extract(path, Path(place))
        except ZstdError as ex:
            raise _refused(path, f"it is damaged ({ex})") from ex
        except OSError as ex:
            raise storage_error(path, ex) from ex
        yield RunDir(Path(place) / top)


def _extract(path: Path, place: Path) -> str:
    tops: set[str] = set()
    left, files = ROOM, 0
    with path.open("rb") as packed:
        stream = Parts(_unpacked(packed.read), lambda: _refused(path, "it is cut short"))
        for name, size, written in _members(path, stream):
            parts = name.split("/")
            left, files = left - size, files + 1
            tops.add(parts[0])
            if len(parts) < 2 or not all(_PART.fullmatch(part) for part in parts):
                raise _refused(path, f"it holds a file named {name[:100]!r}")
            if left < 0 or files > 2 * MOST_FILES or len(tops) > 1:
                raise _refused(path, "it holds more than a bundle does")
            _write(path, place / name, stream.pieces(size))
            os.utime(place / name, (written, written))  # a worker's last sign of life is told by it
            stream.skip(-size % _BLOCK)
    if not tops:
        raise _refused(path, "it is empty")
    return tops.pop()


def _write(bundle: Path, target: Path, pieces: Iterator[bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with target.open("xb") as file:
            file.writelines(pieces)
    except FileExistsError as ex:
        raise _refused(bundle, f"it holds {target.name!r} a second time") from ex


def _members(path: Path, stream: Parts) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of each file; its content must be taken before the next."""
    long_name: str | None = None
    while any(block := stream.take(_BLOCK)):
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError) as ex:
            raise _refused(path, "it is no tar file") from ex
        if info.type == tarfile.XHDTYPE and 0 <= info.size <= _LONG_NAME:
            records = stream.take(info.size)
            if b" size=" in records:  # which is for files of more than 8 GiB
                raise _refused(path, "it holds more than a bundle does")
            found = _RECORD.search(records)
            long_name = found[1].decode("utf-8", "replace") if found else None
            stream.skip(-info.size % _BLOCK)
            continue
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.size < 0:
            raise _refused(path, f"it holds {info.name[:100]!r}, which is no plain file")
        yield long_name or info.name, info.size, min(max(0, int(info.mtime)), _LATEST)
        long_name = None


def _unpacked(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """In small steps: a few bytes may unpack to many."""
    unpacker = Unpacker()
    while packed := read(CHUNK):
        yield unpacker.feed(packed)


def _refused(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} is not a bundle that can be read: {why}.", remedy="hawk bundle ID makes one.", path=str(path)
    )
