"""Unpacking a root file system, or a whole image, into the current root directory.

Keeper side: standard library only, everything imported at the top. It runs in a forked child that has made the
target its root by `chroot`: nothing can be imported, no user be looked up, no `/tmp` be used.
"""

from __future__ import annotations

import io
import os
import stat

from hawk.sandbox.copytree import copy_tree
from hawk.sandbox.descent import OPEN_DIRECTORY, entries
from hawk.sandbox.imagearchive import find_layers, is_root_name
from hawk.sandbox.rootdir import inside
from hawk.sandbox.tarinput import CHUNK, ArchiveError, Part, Pipe, TarInput, decompressed, members
from hawk.sandbox.unpacking import NEW_FILE, Extracted, Unpacker

__all__ = ["ArchiveError", "Extracted", "copy_tree", "extract", "lay_over"]

_SPOOL = ".image-archive"


def extract(fd: int, *, all_ids: bool) -> Extracted:
    """Unpack an archive into `/`: a root file system (`docker export`), or an image (`docker save`, an OCI layout).

    Either may be compressed with gzip, xz or bzip2. An image's layers are found by position, so it must come from a
    file; a compressed one is first decompressed into the target.

    Args:
        fd: The archive, from the descriptor's offset on. It stays the caller's.
        all_ids: Keep the owners (those that do not exist here become nobody's); otherwise all belongs to the
            current user.

    Raises:
        ArchiveError: It is damaged, hostile, or none that we read. What came before is in `/`.
        OSError: The disk is full, say.
    """
    umask = os.umask(0)
    root = os.open("/", OPEN_DIRECTORY)
    try:
        unpacker = Unpacker(root, all_ids=all_ids)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            _from_file(fd, root, unpacker)
        else:
            _from_pipe(fd, root, unpacker)
        return unpacker.result
    finally:
        os.close(root)
        os.umask(umask)


def lay_over(fd: int, *, all_ids: bool) -> Extracted:
    """Unpack a plain tar of changes over what is in `/`: names that begin with `.wh.` say what goes.

    Args, Raises: As `extract`.
    """
    umask = os.umask(0)
    root = os.open("/", OPEN_DIRECTORY)
    try:
        unpacker = Unpacker(root, all_ids=all_ids)
        unpacker.unpack(TarInput(io.BufferedReader(Pipe(fd), CHUNK), jumps=False), layer=True)
        return unpacker.result
    finally:
        os.close(root)
        os.umask(umask)


def _from_file(fd: int, root: int, unpacker: Unpacker) -> None:
    start = os.lseek(fd, 0, os.SEEK_CUR)
    reader, compressed = decompressed(Part(fd, start))
    if not compressed:
        _from_plain(fd, start, unpacker)
    elif _begins_as_root(TarInput(reader, jumps=False)):
        unpacker.unpack(TarInput(decompressed(Part(fd, start))[0], jumps=False))
    else:
        spool = _spool(TarInput(decompressed(Part(fd, start))[0], jumps=False), root)
        try:
            _from_plain(spool, 0, unpacker)
        finally:
            os.close(spool)


def _from_plain(fd: int, start: int, unpacker: Unpacker) -> None:
    layers = find_layers(fd, start)
    if layers is None:
        unpacker.unpack(TarInput(io.BufferedReader(Part(fd, start), CHUNK), jumps=True))
        return
    for layer in layers:
        reader, compressed = decompressed(Part(fd, layer.start, layer.size))
        unpacker.unpack(TarInput(reader, jumps=not compressed), layer=True)


def _from_pipe(fd: int, root: int, unpacker: Unpacker) -> None:
    reader, _ = decompressed(Pipe(fd))
    unpacker.unpack(TarInput(reader, jumps=False))
    names = entries(root)
    if ("manifest.json" in names or "index.json" in names) and not any(map(is_root_name, names)):
        raise ArchiveError("this is an image archive: it must come from a file, not through a pipe")


def _begins_as_root(source: TarInput) -> bool:
    """Whether the first name that tells can only be of a root file system."""
    for member in members(source):
        if inside(member.name):
            return is_root_name(member.name)
    return False


def _spool(source: TarInput, root: int) -> int:
    """Put the plain bytes into a file without a name."""
    fd = os.open(_SPOOL, NEW_FILE & ~os.O_WRONLY | os.O_RDWR, 0o600, dir_fd=root)
    os.unlink(_SPOOL, dir_fd=root)
    try:
        source.write_rest(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd
