"""The attempts folder as a tar stream: read as it is sent, never held.

The plainest format that holds these files (POSIX ustar): names of at most 255 ASCII characters, regular files only.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hawk.server.errors import StreamBrokenError
from hawk.store.attempts import FOLDER, attempts_folder
from hawk.store.rundir import RunDir

BLOCK = 512
CHUNK = 1 << 18  # small files are sent together: each chunk is a hop between threads
DEEPEST = 6
LARGEST_OCTAL = 0o77777777777  # above, a size is written in binary, which every tar of today reads

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _File(NamedTuple):
    path: str
    name: str


def export(run: RunDir, stopping: Callable[[], bool] = lambda: False) -> Iterator[bytes]:
    """The parts of a tar file with `attempts/<pair>/<k>/…`, in the order of the names.

    Links, sockets, temporary files and odd names are not in it; nor are files that are moved away meanwhile.

    Args:
        stopping: Whether the stream must be given up.

    Raises:
        StreamBrokenError: It was given up, a file became shorter, or the job was deleted under it.
        OSError: A file can't be read.
    """
    pending = bytearray()
    for file in _files(os.fspath(attempts_folder(run)), FOLDER, 0):
        for part in _member(file):
            if stopping():
                raise StreamBrokenError("the server is stopping")
            pending += part
            if len(pending) >= CHUNK:
                yield bytes(pending)
                pending.clear()
    if not run.spec_file.exists():
        raise StreamBrokenError(f"{run.job_id} has been deleted")
    yield bytes(pending) + bytes(2 * BLOCK)


def _files(path: str, name: str, depth: int) -> Iterator[_File]:
    try:
        with os.scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in found:
        if not _SAFE.fullmatch(entry.name):
            continue
        if entry.is_file(follow_symlinks=False):
            yield _File(entry.path, f"{name}/{entry.name}")
        elif entry.is_dir(follow_symlinks=False) and depth < DEEPEST:
            yield from _files(entry.path, f"{name}/{entry.name}", depth + 1)


def _member(file: _File) -> Iterator[bytes]:
    """Header, content and padding of one file; nothing when it is gone."""
    try:
        fd = os.open(file.path, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        return
    with os.fdopen(fd, "rb", buffering=0) as content:
        found = os.fstat(fd)
        head = header(file.name, found.st_size, int(found.st_mtime)) if stat.S_ISREG(found.st_mode) else None
        if head is None:
            return
        yield head
        left = found.st_size
        while left:
            part = content.read(min(left, CHUNK))
            if not part:
                raise StreamBrokenError(f"{Path(file.path).name} became shorter")
            left -= len(part)
            yield part
        yield bytes(-found.st_size % BLOCK)


def header(name: str, size: int, mtime: int) -> bytes | None:
    """The 512 bytes before a regular file; None for a name that the format can't hold."""
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = min(size, LARGEST_OCTAL), max(0, mtime), 0o600
    try:
        block = bytearray(info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict"))
    except ValueError:
        return None
    if size > LARGEST_OCTAL:
        block[124:136] = b"\x80" + size.to_bytes(11, "big")
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)
