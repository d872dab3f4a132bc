"""What an attempt left in its sandbox, as a file: `workspace.tar.zst`."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import msgspec

from hawk.core.zstd import Packer
from hawk.sandbox.box import Box
from hawk.sandbox.group import Group
from hawk.sandbox.piped import piped

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
    stop = threading.Event()
    async with piped(target, partial(_pack, stop=stop), stop.set) as file:
        said = await box.export(file.write, prefix=prefix, max_bytes=max_bytes)
    return Exported(said["files"], said["bytes"], file.size, tuple(said["skipped"]), said["truncated"])


def _pack(read: int, path: Path, *, stop: threading.Event) -> int:
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
