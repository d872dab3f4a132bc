"""A tar stream of unknown make, taken apart and written anew: what is in it is what it says, and it never grows beyond a limit."""

from __future__ import annotations

import os
import tarfile
import threading
from pathlib import Path
from typing import IO

from hawk.core.zstd import Packer
from hawk.sandbox.changes import Changes
from hawk.sandbox.tarinput import CHUNK, ArchiveError, TarInput, data_of, members
from hawk.sandbox.taroutput import plain_header
from hawk.sandbox.unpacking import WHITEOUT

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)
_MOST_NAMES = 100_000
"""Names that are remembered, for hard links to them."""

_KINDS = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE)


class Repacking:
    """One stream, by one thread.

    Args:
        max_bytes: The most that the new tar has before it is packed. What does not fit is left out; smaller things
            after it are not.

    Attributes:
        begun: It is known where all of it must lie.
        complaints: Of its maker.
        changes: What was written.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.begun = False
        self.complaints: list[str] = []
        self.changes = Changes()
        self._room = max(0, max_bytes - len(_END))
        self._home = ""
        self._names: set[str] = set()
        self._stopped = threading.Event()
        self._cut = ""

    def begin(self, directory: str) -> None:
        """Where all of it must lie; said before the first bytes come."""
        self._home, self.begun = directory.strip("/"), True

    def stop(self) -> None:
        """Nobody wants the file any more: `run` ends soon."""
        self._stopped.set()

    def cut(self, why: str) -> None:
        """The stream ends before its end, on purpose."""
        self._cut = why

    def run(self, read: int, target: Path) -> int:
        """Write the file until the stream ends. Returns its bytes, safe on the disk.

        Args:
            read: Where it comes from: a pipe, closed at the end.
            target: The packed file; it must not be there.

        Raises:
            OSError: It can't be written.
        """
        with open(read, "rb", buffering=CHUNK) as plain, target.open("xb") as file:
            out = _Packed(file)
            try:
                source = TarInput(plain, jumps=False)
                for member in members(source):
                    if self._stopped.is_set():
                        break
                    self._member(member, source, out)
            except ArchiveError as ex:
                self._note_cut(ex)
            out.write(_END)
            size = out.finish()
        self.changes.close()
        return size

    def _note_cut(self, ex: ArchiveError) -> None:
        self.changes.truncated = True
        self.changes.skip("…", self._cut or f"the rest is missing: {ex}")

    def _member(self, member: tarfile.TarInfo, source: TarInput, out: _Packed) -> None:
        name = _clean(member.name)
        why = self._refused(name, member)
        if name is None or why is not None:
            self.changes.skip(member.name, why or "its name leads elsewhere")
            return
        fresh = _anew(name, member)
        header = plain_header(fresh) or fresh.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        size = len(header) + fresh.size + -fresh.size % _BLOCK
        if size > self._room:
            self.changes.truncated = True
            self.changes.skip(name, f"it did not fit ({fresh.size:,} bytes)")
            self._room = max(0, self._room - _BLOCK)  # such things without end must not keep us
            return
        self._room -= size
        out.write(header)
        self.changes.files += not fresh.isdir()
        if fresh.isreg():
            self._content(name, fresh.size, source, out)

    def _content(self, name: str, size: int, source: TarInput, out: _Packed) -> None:
        """What the header promised; what the stream lacks becomes zeros."""
        left = size
        try:
            for data in source.pieces(size):
                out.write(data)
                left -= len(data)
        except ArchiveError:
            self.changes.skip(name, f"the stream ended within it: {left:,} bytes are zeros")
            raise
        finally:
            self.changes.bytes += size - left
            zeros = left + -size % _BLOCK
            while zeros:
                piece = min(zeros, CHUNK)
                out.write(bytes(piece))
                zeros -= piece
        if len(self._names) < _MOST_NAMES:
            self._names.add(name)

    def _refused(self, name: str | None, member: tarfile.TarInfo) -> str | None:
        """Why a member is left out."""
        home = self._home
        if name is None or not (not home or name == home or name.startswith(f"{home}/")):
            return "its name leads elsewhere"
        if name.rpartition("/")[2].startswith(WHITEOUT):
            return "its name would say that something was deleted"
        kind = tarfile.REGTYPE if member.isreg() else member.type
        if kind not in _KINDS:
            return "it is neither a file, a directory nor a link"
        if len(data_of(member)) != 1 or data_of(member)[0] != (0, member.size):
            return "it is sparse"
        if kind == tarfile.LNKTYPE and _clean(member.linkname) not in self._names:
            return "what it is a hard link to is not there"
        return None


class _Packed:
    """A file that is packed as it is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._packer = file, Packer()

    def write(self, data: bytes) -> None:
        self._file.write(self._packer.feed(data))

    def finish(self) -> int:
        self._file.write(self._packer.finish())
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()


def _clean(name: str) -> str | None:
    """A member's name relative to the root; None of one that leads upwards."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts or not parts else "/".join(parts)


def _anew(name: str, member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A header that says nothing but what we know of: names of owners, devices and extensions are left behind."""
    fresh = tarfile.TarInfo(name)
    fresh.type = tarfile.REGTYPE if member.isreg() else member.type
    fresh.mode = member.mode & 0o7777
    fresh.uid, fresh.gid = max(0, member.uid), max(0, member.gid)
    fresh.mtime = max(0, int(member.mtime))
    fresh.size = member.size if fresh.isreg() else 0
    if fresh.issym():
        fresh.linkname = member.linkname
    elif fresh.islnk():
        fresh.linkname = _clean(member.linkname) or ""
    return fresh
