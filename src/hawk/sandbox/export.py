"""What an attempt left in its sandbox, as a file: `workspace.tar.zst`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import threading
from pathlib import Path

import msgspec

from hawk.core.zstd import Packer
from hawk.errors import StorageError
from hawk.sandbox.box import Box
from hawk.sandbox.group import Group

MAX_BYTES = 1 << 30
"""Of the tar stream, before it is packed."""

_CHUNK = 1 << 18


class Exported(msgspec.Struct, frozen=True):
    """What was written.

    Attributes:
        files: Files and links.
        bytes: Content of files.
        size: Bytes of the packed file.
        skipped: What is not, or not as it was, in it, each with its reason; at most a hundred.
        truncated: Something was left out because it did not fit.
    """

    files: int
    bytes: int
    size: int
    skipped: tuple[str, ...] = ()
    truncated: bool = False


async def export_workspace(
    source: Box | Group, target: Path, *, max_bytes: int = MAX_BYTES, everything: bool = False
) -> Exported:
    """Write what was changed in a sandbox's workspace: a tar of paths relative to its root, deletions as OCI whiteouts.

    The sandbox may run on; what changes meanwhile is in it as it was at some moment. The file is there whole, or not
    at all.

    Args:
        source: The sandbox; of a group the default one.
        target: The file. One that is there is replaced.
        max_bytes: The most that the tar may have, before it is packed. What does not fit is left out.
        everything: What was changed anywhere, not only in the workspace.

    Raises:
        StorageError: The file can't be written.
        KeeperGoneError: The sandbox was lost meanwhile.
        KeeperRefusedError: It is not there any more.
    """
    box = source.boxes["default"] if isinstance(source, Group) else source
    prefix = "" if everything else box.workspace.strip("/")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    read, write = os.pipe()
    stop = threading.Event()
    packing = asyncio.get_running_loop().run_in_executor(None, _pack, read, temporary, stop)
    try:
        try:
            said = await box.export(write, prefix=prefix, max_bytes=max_bytes)
        finally:
            os.close(write)  # the end of the stream
        size = await asyncio.shield(packing)
        await asyncio.to_thread(put_in_place, temporary, target)
    except BaseException as ex:
        stop.set()
        await asyncio.wait([packing])  # the thread must not write on behind our back
        with contextlib.suppress(OSError):
            temporary.unlink()
        cause = packing.exception() or ex  # the keeper fails, too, when nobody reads any more
        if isinstance(cause, OSError):
            raise storage_error(target, cause) from cause
        raise
    return Exported(said["files"], said["bytes"], size, tuple(said["skipped"]), said["truncated"])


def _pack(read: int, path: Path, stop: threading.Event) -> int:
    """Pack what comes out of a pipe until it ends: bytes written, safe on the disk. In a thread."""
    try:
        with path.open("xb") as f:
            packer = Packer()
            while (data := os.read(read, _CHUNK)) and not stop.is_set():
                f.write(packer.feed(data))
            f.write(packer.finish())
            f.flush()
            os.fsync(f.fileno())
            return f.tell()
    finally:
        os.close(read)  # whoever still writes is told that nobody reads


def put_in_place(temporary: Path, target: Path) -> None:
    """Give a finished file its name, so that it has it after a power cut too."""
    temporary.rename(target)
    fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def storage_error(target: Path, ex: OSError) -> StorageError:
    """Why a workspace can't be written."""
    full = ex.errno in (errno.ENOSPC, errno.EDQUOT)
    return StorageError(
        f"{target} can't be written: {ex.strerror or ex}.",
        remedy="Free some space on that disk." if full else "Make its directory writable for you.",
        path=str(target),
    )
