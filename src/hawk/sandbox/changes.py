"""What changed in a sandbox, as a tar stream: its overlay's upper directory, deletions as OCI whiteouts.

Keeper side: standard library only, everything imported at the top. The sandbox may run on and do its worst while this
walks: files become symlinks, grow, shrink and vanish, directories are moved. Everything is opened relative to a
directory descriptor, without following, and is what the descriptor says, not what a name said before.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field

from hawk.sandbox.descent import Descent
from hawk.sandbox.tarinput import printable
from hawk.sandbox.taroutput import TarOutput
from hawk.sandbox.unpacking import OPAQUE, WHITEOUT

Owner = Callable[[int, int], tuple[int, int]]

_LONGEST_PATH = 32 << 10
"""Eight times what the kernel takes in one call. Without a limit, headers of a deep tree take its depth squared."""

_LARGEST_HOLES = 64 << 30
"""Bytes of holes in all sparse files. They cost the sandbox nothing, and us their length in zeros."""

_MOST_NOTES = 1000
_MOST_LINK_BYTES = 64 << 20
"""Memory for hard links; a file beyond is written again by its other name."""
_ONE_LINK = 250
"""What one takes, without its path."""


@dataclass
class Changes:
    """What was written.

    Attributes:
        files: Files, symlinks and hard links; not directories and deletions.
        bytes: Content of files.
        skipped: What is not, or not as it was, in the stream, each with its reason; at most a thousand.
        truncated: Something was left out because it did not fit.
    """

    files: int = 0
    bytes: int = 0
    skipped: list[str] = field(default_factory=list)
    truncated: bool = False
    _more: int = 0

    def skip(self, path: str, reason: str) -> None:
        if len(self.skipped) < _MOST_NOTES:
            self.skipped.append(f"{printable(path)}: {reason}")
        else:
            self._more += 1

    def close(self) -> None:
        if self._more:
            self.skipped[-1] = f"… and {self._more + 1} more"


def write_changes(
    upper_fd: int,
    out_fd: int,
    *,
    prefix: str = "",
    max_bytes: int | None = None,
    owner: Owner = lambda uid, gid: (uid, gid),
) -> Changes:
    """Write an uncompressed PAX tar stream of what an overlay's upper directory holds.

    Names are relative to the root, whatever the prefix. What is sparse is written with its zeros.

    Args:
        upper_fd: The upper directory (of a mount with `userxattr`). It stays the caller's.
        out_fd: Where the stream goes: a file, pipe or socket.
        prefix: Only this subtree, as `workspace`. If it or something above it was deleted or replaced, the stream
            says that.
        max_bytes: The most that the stream may take. What does not fit is left out; smaller things after it are not.
        owner: From ids as we see them to the ids in the stream.

    Raises:
        OSError: Nothing more can be written to `out_fd`.
        ValueError: The prefix leads upwards.
    """
    parts = [part for part in prefix.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"a prefix can't lead upwards: {prefix!r}")
    output = TarOutput(out_fd, max_bytes)
    with Descent(upper_fd) as way:
        export = _Export(way, output, owner)
        if export.go_to(parts):
            export.write_tree()
    output.end()
    export.changes.truncated = output.truncated
    export.changes.close()
    return export.changes


class _Export:
    """One walk."""

    def __init__(self, way: Descent, output: TarOutput, owner: Owner) -> None:
        self.changes = Changes()
        self._way = way
        self._output = output
        self._owner = owner
        self._path: list[str] = []
        self._links: dict[tuple[int, int], str] = {}
        self._link_bytes = 0
        self._holes = 0

    def go_to(self, parts: list[str]) -> bool:
        """Enter the subtree. False when there is none; what there is instead has been written."""
        opaque = False
        for index, name in enumerate(parts):
            try:
                status = os.stat(name, dir_fd=self._way.fd, follow_symlinks=False)
            except FileNotFoundError:
                if opaque:  # a directory above it was replaced by one that lacks it
                    *above, last = parts
                    self._write_deletion("".join(f"{part}/" for part in above), last)
                return False
            if not stat.S_ISDIR(status.st_mode):
                self._write(self._base(), name, status)
                return False
            is_last = index == len(parts) - 1
            if not self._enter(name, say=is_last, opaque=opaque):
                return False
            opaque = opaque or _is_opaque(self._way.fd)
        return True

    def write_tree(self) -> None:
        """Write everything below the directory where we are."""
        pending = [self._write_files()]
        while pending and not self._output.full:
            if pending[-1]:
                if self._enter(pending[-1].pop()):
                    pending.append(self._write_files())
                continue
            pending.pop()
            if not pending:
                break
            levels = self._way.up()
            if levels > 1:
                self.changes.skip(
                    "/".join(self._path), "directories were moved: what else is around it is missing"
                )
                del pending[-(levels - 1) :]
            del self._path[-levels:]
        if self._output.full:
            self._output.truncated = True

    def _base(self) -> str:
        return "".join(f"{name}/" for name in self._path)

    def _enter(self, name: str, *, say: bool = True, opaque: bool = False) -> bool:
        """Enter a directory, and write it."""
        path = self._base() + name
        if len(path) > _LONGEST_PATH:
            self._skip(path, "its path is too long")
            return False
        if name.startswith(WHITEOUT):
            self._skip(path, "its name would say that something was deleted")
            return False
        try:
            status = self._way.down(name)
        except FileNotFoundError:
            return False
        except OSError as ex:
            self._skip(path, _why(ex))
            return False
        self._path.append(name)
        if say:
            self._output.begin(self._member(path, status, tarfile.DIRTYPE))
            if opaque or _is_opaque(self._way.fd):
                self._output.begin(_deletion(f"{path}/{OPAQUE}"))
        return True

    def _write_files(self) -> list[str]:
        """Write all in this directory but its directories. Returns their names."""
        directories = []
        base, fd = self._base(), self._way.fd
        with os.scandir(fd) as entries:
            for entry in entries:
                if self._output.full:
                    break
                try:
                    status = os.stat(entry.name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError as ex:
                    self._skip(base + entry.name, _why(ex))
                    continue
                if stat.S_ISDIR(status.st_mode):
                    directories.append(entry.name)
                else:
                    self._write(base, entry.name, status)
        return directories

    def _write(self, base: str, name: str, status: os.stat_result) -> None:
        """Write anything but a directory."""
        path = base + name
        if name.startswith(WHITEOUT):
            self._skip(path, "its name would say that something was deleted")
        elif stat.S_ISREG(status.st_mode):
            self._write_file(base, name)
        elif stat.S_ISLNK(status.st_mode):
            self._write_symlink(path, name, status)
        elif stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            self._write_deletion(base, name)
        else:
            kind = {stat.S_IFIFO: "a fifo", stat.S_IFSOCK: "a socket"}.get(
                stat.S_IFMT(status.st_mode), "a device"
            )
            self._skip(path, kind)

    def _write_file(self, base: str, name: str) -> None:
        path = base + name
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=self._way.fd)
        except FileNotFoundError:
            return
        except OSError as ex:
            self._skip(path, _why(ex))
            return
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                self._skip(path, "it changed into something else meanwhile")
            elif status.st_size == 0 and _attribute(fd, "whiteout") is not None:
                self._write_deletion(base, name)
            elif (first := self._links.get((status.st_dev, status.st_ino))) is not None:
                member = self._member(path, status, tarfile.LNKTYPE)
                member.linkname = first
                self.changes.files += self._output.begin(member)
            else:
                self._write_content(path, fd, status)
        finally:
            os.close(fd)

    def _write_content(self, path: str, fd: int, status: os.stat_result) -> None:
        size = status.st_size
        holes = max(0, size - status.st_blocks * 512)
        if self._holes + holes > _LARGEST_HOLES:
            self._skip(path, f"a sparse file that claims {size} bytes")
            return
        member = self._member(path, status, tarfile.REGTYPE)
        member.size = size
        if not self._output.begin(member):
            return
        self._holes += holes
        had, error = self._output.content(fd, size)
        self.changes.files += 1
        self.changes.bytes += size
        if error is not None:
            self.changes.skip(path, f"only its first {had} bytes can be read: {_why(error)}")
        elif had < size:
            self.changes.skip(path, f"it shrank while it was read: zeros after its first {had} bytes")
        elif os.fstat(fd).st_size > size:
            self.changes.skip(path, f"it grew while it was read: its first {had} bytes only")
        if status.st_nlink > 1 and self._link_bytes < _MOST_LINK_BYTES:
            self._links[status.st_dev, status.st_ino] = path
            self._link_bytes += len(path) + _ONE_LINK

    def _write_symlink(self, path: str, name: str, status: os.stat_result) -> None:
        member = self._member(path, status, tarfile.SYMTYPE)
        try:
            member.linkname = os.readlink(name, dir_fd=self._way.fd)
        except OSError:
            self._skip(path, "it changed into something else meanwhile")
            return
        self.changes.files += self._output.begin(member)

    def _write_deletion(self, base: str, name: str) -> None:
        self._output.begin(_deletion(f"{base}{WHITEOUT}{name}"))

    def _member(self, path: str, status: os.stat_result, kind: bytes) -> tarfile.TarInfo:
        member = tarfile.TarInfo(path)
        member.type = kind
        member.mode = stat.S_IMODE(status.st_mode)
        member.mtime = status.st_mtime_ns // 10**9
        member.uid, member.gid = self._owner(status.st_uid, status.st_gid)
        return member

    def _skip(self, path: str, reason: str) -> None:
        self.changes.skip(path, reason)
        self._output.charge()


def _deletion(path: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.mode = 0
    return member


def _is_opaque(fd: int) -> bool:
    """Whether a directory hides what lower layers have in its place."""
    return _attribute(fd, "opaque") == b"y"


def _attribute(fd: int, name: str) -> bytes | None:
    """An attribute of overlayfs."""
    try:
        return os.getxattr(fd, f"user.overlay.{name}")
    except OSError:
        return None


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return "it changed into something else meanwhile"
    return error.strerror or str(error)
