"""Unpacking archives into a directory, one over the other as the layers of an image.

Keeper side: standard library only. Owners are numbers, extended attributes are left out (overlayfs would obey them).
"""

from __future__ import annotations

import contextlib
import errno
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hawk.sandbox.descent import OPEN_DIRECTORY, entries
from hawk.sandbox.rootdir import Path, Place, RootDirectory, inside
from hawk.sandbox.tarinput import ArchiveError, TarInput, data_of, members, printable

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
_NOTES = ".wh..wh."
"""Others that begin so are notes of old storage drivers to themselves."""

_NOBODY = 65534
"""Owner of what belongs to an id that the sandbox does not have."""

_MOST_EXAMPLES = 10

_LATEST = (1 << 40) * 10**9
"""Nanoseconds since 1970. The kernel makes of it the latest time that the file system can say."""


@dataclass
class Extracted:
    """What was unpacked or copied.

    Attributes:
        files: Everything but directories; of image layers also what a later one replaced.
        bytes: Their content, without holes.
        skipped: Device nodes, fifos, sockets; of a directory also what can't be read.
        examples: The first that were skipped, with the reason.
    """

    files: int = 0
    bytes: int = 0
    skipped: int = 0
    examples: list[str] = field(default_factory=list)

    def skip(self, path: str, reason: str) -> None:
        self.skipped += 1
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(f"{printable(path)}: {reason}")


class Unpacker:
    """Unpacks archives into one directory.

    Args:
        root: Descriptor of the directory. It stays the caller's.
        all_ids: Keep the owners; otherwise everything belongs to the current user.
    """

    def __init__(self, root: int, *, all_ids: bool) -> None:
        self.result = Extracted()
        self._root = RootDirectory(root)
        self._all_ids = all_ids
        self._layer = False
        self._directories: dict[Path, tarfile.TarInfo] = {}
        self._skipped: set[Path] = set()
        self._placed: set[tuple[int, str]] = set()

    def unpack(self, source: TarInput, *, layer: bool = False) -> None:
        """Unpack one archive.

        Args:
            layer: It may say what to delete of earlier ones (`.wh.` names).

        Raises:
            ArchiveError: It is damaged or impossible; what came before is unpacked.
            OSError: The disk is full, say.
        """
        self._layer = layer
        self._placed.clear()
        try:
            for member in members(source):
                with _named(member.name):
                    self._take(member, source)
            self._finish_directories()
        finally:
            self._root.forget()

    def _take(self, member: tarfile.TarInfo, source: TarInput) -> None:
        path = inside(member.name)
        if not path:
            if member.isdir():
                self._directories[()] = member
            else:
                self.result.skip(member.name, "it would replace the root directory")
            return
        place, name = self._root.directory(path[:-1]), path[-1]
        if self._layer and name.startswith(WHITEOUT):
            self._delete(place, name)
        elif self._put(place, name, member, source):
            self.result.files += not member.isdir()
            if self._layer:
                self._placed.add((place.inode, name))
        else:
            self._skipped.add((*place.path, name))

    def _put(self, place: Place, name: str, member: tarfile.TarInfo, source: TarInput) -> bool:
        """Make what the member is. False when it is skipped."""
        if member.isdir():
            self._root.make(place, name, lambda: os.mkdir(name, 0o755, dir_fd=place.fd), directory=True)
            self._directories[(*place.path, name)] = member
        elif member.isreg():
            self._write(place, name, member, source)
        elif member.issym():
            self._symlink(place, name, member)
        elif member.islnk():
            return self._link(place, name, member)
        else:
            self.result.skip(
                member.name, "a device or fifo" if member.isdev() else "an unknown kind of member"
            )
            return False
        return True

    def _write(self, place: Place, name: str, member: tarfile.TarInfo, source: TarInput) -> None:
        fd = self._root.make(place, name, lambda: os.open(name, NEW_FILE, 0o600, dir_fd=place.fd))
        assert fd is not None
        try:
            for offset, size in data_of(member):
                os.lseek(fd, offset, os.SEEK_SET)
                source.write_to(fd, size)
                self.result.bytes += size
            if member.issparse():
                os.ftruncate(fd, member.size)
            self._finish(fd, member)
        finally:
            os.close(fd)

    def _symlink(self, place: Place, name: str, member: tarfile.TarInfo) -> None:
        self._root.make(place, name, lambda: os.symlink(member.linkname, name, dir_fd=place.fd))
        if self._all_ids:
            _give(member, lambda uid, gid: os.chown(name, uid, gid, dir_fd=place.fd, follow_symlinks=False))
        time = _mtime(member)
        os.utime(name, ns=(time, time), dir_fd=place.fd, follow_symlinks=False)

    def _link(self, place: Place, name: str, member: tarfile.TarInfo) -> bool:
        path = inside(member.linkname)
        if not path:
            raise ArchiveError("is a hard link to the root directory")
        target = path[-1]
        fd = -1
        try:
            source = self._root.walk(path[:-1], create=False)
            fd = source.fd
            if (*source.path, target) in self._skipped:
                self.result.skip(member.name, "a link to something that was skipped")
                return False
            if not _same(fd, target, place.fd, name):  # else making room for it would remove its target
                self._root.make(
                    place,
                    name,
                    lambda: os.link(target, name, src_dir_fd=fd, dst_dir_fd=place.fd, follow_symlinks=False),
                )
        except FileNotFoundError as ex:
            raise ArchiveError(f"is a hard link to {printable(member.linkname)}, which is not there") from ex
        finally:
            if fd >= 0:
                os.close(fd)
        return True

    def _delete(self, place: Place, name: str) -> None:
        """Do what a whiteout says: to what earlier layers left, not to what this one has brought."""
        if name == OPAQUE:
            for entry in entries(place.fd):
                self._root.remove(place, entry, self._placed)
            return
        target = name.removeprefix(WHITEOUT)
        if target in ("", ".", ".."):
            raise ArchiveError("is a deletion of nothing")
        if not name.startswith(_NOTES):
            self._root.remove(place, target, self._placed)

    # --- owners, modes, times

    def _finish(self, fd: int, member: tarfile.TarInfo) -> None:
        if self._all_ids:
            _give(member, lambda uid, gid: os.fchown(fd, uid, gid))
        os.fchmod(fd, member.mode & 0o7777)  # after the owner: a change of that takes the setuid bit away
        time = _mtime(member)
        os.utime(fd, ns=(time, time))

    def _finish_directories(self) -> None:
        """Last, for what is put into them would change their times, and may be forbidden by their modes."""
        for path in sorted(self._directories, reverse=True):  # what is inside first
            try:
                parent = self._root.walk(path[:-1], create=False)
            except (FileNotFoundError, ArchiveError):
                continue  # something else of that name came later
            try:
                fd = os.open(path[-1] if path else ".", OPEN_DIRECTORY, dir_fd=parent.fd)
            except (FileNotFoundError, NotADirectoryError):
                continue
            finally:
                os.close(parent.fd)
            try:
                self._finish(fd, self._directories[path])
            finally:
                os.close(fd)
        self._directories.clear()


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except ArchiveError as ex:
        raise ArchiveError(f"{printable(name)}: {ex}", ex.errno or errno.EBADMSG) from ex
    except OSError as ex:
        raise OSError(ex.errno, ex.strerror, printable(name)) from ex
    except ValueError as ex:  # a zero byte in a name
        raise ArchiveError(f"{printable(name)}: {ex}") from ex


def _same(fd: int, name: str, other_fd: int, other_name: str) -> bool:
    """Whether two names are of one file. Raises FileNotFoundError when there is no first one."""
    one = os.stat(name, dir_fd=fd, follow_symlinks=False)
    try:
        other = os.stat(other_name, dir_fd=other_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _give(member: tarfile.TarInfo, give: Callable[[int, int], None]) -> None:
    try:
        give(member.uid, member.gid)
    except (OSError, OverflowError) as ex:
        if isinstance(ex, OSError) and ex.errno != errno.EINVAL:
            raise
        give(_NOBODY, _NOBODY)


def _mtime(member: tarfile.TarInfo) -> int:
    """In nanoseconds; exact where the archive says them."""
    text = str(member.pax_headers.get("mtime", member.mtime))
    whole, _, fraction = text.partition(".")
    try:
        time = int(whole) * 10**9
        time += int(f"{fraction:0<9.9}") * (-1 if text.startswith("-") else 1)
    except ValueError:
        return 0
    return max(-_LATEST, min(_LATEST, time))
