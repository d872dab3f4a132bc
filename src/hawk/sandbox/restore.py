"""A workspace that was kept, back in a fresh sandbox: as the attempt left it, what it had deleted included.

The archive is unpacked inside the sandbox, by a process that is in it as any of its commands: what hostile names and links
in it lead to is the sandbox's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from hawk.core.zstd import Unpacker, ZstdError
from hawk.sandbox.box import Box, BoxGoneError
from hawk.sandbox.errors import KeeperGoneError, KeeperRefusedError, SandboxError
from hawk.sandbox.group import Group
from hawk.sandbox.tarinput import ArchiveError, TarInput, members, write_all
from hawk.sandbox.unpacking import WHITEOUT

_CHUNK = 1 << 18

_BITE = 1 << 11
"""Packed bytes that are unpacked at once: of zeros they hold 64 MiB."""


class RestoreError(SandboxError):
    """A workspace could not be put back."""


async def restore_workspace(target: Box | Group, archive: Path, *, whole: bool = True) -> None:
    """Make a sandbox's workspace what `export_workspace` found of an earlier one.

    The sandbox is taken to be as that one was when its attempt began: what was put into it by then, and is not in the
    archive, had been deleted.

    Args:
        target: The sandbox; of a group the default one.
        archive: The file.
        whole: Nothing was left out of it. Else what it lacks may be there all the same, and nothing is deleted for that.

    Raises:
        RestoreError: The file can't be read, or what is in it does not fit. A part of it may be in the workspace.
    """
    box = target.boxes["default"] if isinstance(target, Group) else target
    try:
        gone = await _gone(box, archive) if whole else []
        await _lay_over(box, archive, gone)
    except (KeeperRefusedError, KeeperGoneError, BoxGoneError, ArchiveError, ZstdError, OSError) as ex:
        why = ex.strerror or str(ex) if type(ex) is OSError else str(ex)
        raise RestoreError(f"What was kept of its workspace can't be put back ({archive}): {why}.") from ex


async def _gone(box: Box, archive: Path) -> list[str]:
    """Paths in the workspace that its attempt had deleted, though no lower layer has them; nothing below another."""
    there = await _names_in(box)
    prefix = box.workspace.strip("/")
    there = [name for name in there if name != prefix]
    if not there:
        return []
    kept = await asyncio.to_thread(_names_of, archive)
    gone: list[str] = []
    for name in there:  # a directory comes before what is in it
        if name not in kept and not (gone and name.startswith(f"{gone[-1]}/")):
            gone.append(name)
    return gone


async def _names_in(box: Box) -> list[str]:
    """What was changed in a sandbox's workspace, deletions left out, directories before what is in them."""
    read, write = os.pipe()
    listing = asyncio.get_running_loop().run_in_executor(None, _names_from, read)
    try:
        await box.export(write, prefix=box.workspace.strip("/"))
    finally:
        os.close(write)
        await asyncio.wait([listing])  # it ends with the stream
    return sorted(listing.result(), key=lambda name: name.split("/"))


def _names_from(read: int) -> list[str]:
    with os.fdopen(read, "rb", buffering=_CHUNK) as f:
        return _names(f)


def _names_of(archive: Path) -> set[str]:
    with Plain(archive) as plain:
        return set(_names(io.BufferedReader(plain, _CHUNK)))


def _names(plain: IO[bytes]) -> list[str]:
    names = [member.name.strip("/") for member in members(TarInput(plain, jumps=False))]
    return [name for name in names if not name.rpartition("/")[2].startswith(WHITEOUT)]


async def _lay_over(box: Box, archive: Path, gone: list[str]) -> None:
    # Owners can be given to files by root alone; where there is one user, all is that one's.
    user = None if box.keeper.facts.get("single_id") else "0"
    read, write = os.pipe()
    feeding = asyncio.get_running_loop().run_in_executor(None, _feed, write, archive, gone)
    try:
        await box.lay_over(read, user=user)
    finally:
        await asyncio.wait([feeding])  # nobody reads any more: it ends
    feeding.result()


def _feed(write: int, archive: Path, gone: Iterable[str]) -> None:
    """Write a tar to a pipe: deletions first, then the archive. In a thread."""
    try:
        with contextlib.suppress(BrokenPipeError), Plain(archive) as plain:
            for name in gone:
                base, _, last = name.rpartition("/")
                member = tarfile.TarInfo(f"{base}/{WHITEOUT}{last}")
                write_all(write, member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
            while data := plain.read(_CHUNK):
                write_all(write, data)
    finally:
        os.close(write)


class Plain(io.RawIOBase):
    """The bytes that a packed file holds."""

    def __init__(self, path: Path) -> None:
        # Neither a link nor a pipe may stand in the file's place.
        self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        self._unpacker = Unpacker()
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            data = os.read(self._fd, _BITE)
            if not data:
                return 0
            self._rest = memoryview(self._unpacker.feed(data))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()
