"""Copying a directory tree into the current root directory.

Keeper side: standard library only, everything imported at the top. It runs, as `untar.py`, in a forked child that
has made the target its root; the source is reached by its descriptor alone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from hawk.sandbox.descent import OPEN_DIRECTORY, Descent, entries
from hawk.sandbox.tarinput import CHUNK, write_all
from hawk.sandbox.unpacking import NEW_FILE, Extracted

_SKIPPABLE = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""May not be read, or was replaced meanwhile."""
_NOT_THIS_WAY = (
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EBADF,
    errno.ETXTBSY,
)
_LONGEST_PATH = 4000
"""Bytes that a path may have for the kernel to take it whole, which a hard link needs."""


def copy_tree(source_fd: int) -> Extracted:
    """Copy a directory's content to `/`, which is empty, with modes, times, symlinks and hard links.

    Everything belongs to the current user. Other file systems mounted in the source are left out; what can't be
    read, and devices, fifos and sockets are skipped and counted.

    Args:
        source_fd: The directory. It stays the caller's.

    Raises:
        OSError: The disk is full, say.
    """
    umask = os.umask(0)
    target_fd = os.open("/", OPEN_DIRECTORY)
    try:
        with Descent(source_fd) as source, Descent(target_fd) as target:
            copy = _Copy(source, target)
            copy.run()
            return copy.result
    finally:
        os.close(target_fd)
        os.umask(umask)


class _Copy:
    """One copy: two ways that go down and up together."""

    def __init__(self, source: Descent, target: Descent) -> None:
        self.result = Extracted()
        self._source, self._target = source, target
        self._path: list[str] = []
        self._links: dict[tuple[int, int], tuple[str, int]] = {}
        top, root = os.fstat(source.fd), os.fstat(target.fd)
        self._device = top.st_dev
        self._itself = root.st_dev, root.st_ino

    def run(self) -> None:
        pending = [self._copy_files()]
        while pending:
            if pending[-1]:
                if self._enter(pending[-1].pop()):
                    pending.append(self._copy_files())
                continue
            pending.pop()
            _finish(self._target.fd, os.fstat(self._source.fd))
            if pending:
                self._path.pop()
                if self._source.up() != 1 or self._target.up() != 1:
                    raise OSError(errno.ESTALE, "directories were moved while they were copied")

    def _enter(self, name: str) -> bool:
        try:
            status = self._source.down(name)
        except OSError as ex:
            self._skip_unreadable(name, ex)
            return False
        reason = ""
        if (status.st_dev, status.st_ino) == self._itself:
            reason = "it is where the copy goes"
        elif status.st_dev != self._device:
            reason = "another file system"
        if reason:
            self._source.up()
            self._skip(name, reason)
            return False
        os.mkdir(name, 0o700, dir_fd=self._target.fd)
        self._target.down(name)
        self._path.append(name)
        return True

    def _copy_files(self) -> list[str]:
        """Copy all but directories. Returns the directories' names."""
        directories = []
        try:
            names = entries(self._source.fd)
        except OSError as ex:
            self._skip_unreadable("", ex)
            return []
        for name in names:
            try:
                status = os.stat(name, dir_fd=self._source.fd, follow_symlinks=False)
            except OSError as ex:
                self._skip_unreadable(name, ex)
                continue
            if stat.S_ISDIR(status.st_mode):
                directories.append(name)
            elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                self._copy_linked(name, status)
            else:
                self._skip(name, "a device, fifo or socket")
        return directories

    def _copy_linked(self, name: str, status: os.stat_result) -> None:
        """Copy a file, or link it to its copy when it has been copied by another name."""
        identity = status.st_dev, status.st_ino
        first, left = self._links.pop(identity, ("", status.st_nlink))
        linked = first != "" and self._link(first, name)
        if linked:
            self.result.files += 1
        elif not (self._copy_symlink if stat.S_ISLNK(status.st_mode) else self._copy_file)(name):
            return
        path = first if linked else "/" + "/".join((*self._path, name))
        if left > 1 and len(os.fsencode(path)) <= _LONGEST_PATH:
            self._links[identity] = path, left - 1

    def _link(self, first: str, name: str) -> bool:
        """False when the file system takes no more links to this file."""
        try:
            os.link(first, name, dst_dir_fd=self._target.fd, follow_symlinks=False)
        except OSError as ex:
            if ex.errno != errno.EMLINK:
                raise
            return False
        return True

    def _copy_symlink(self, name: str) -> bool:
        status = os.stat(name, dir_fd=self._source.fd, follow_symlinks=False)
        os.symlink(os.readlink(name, dir_fd=self._source.fd), name, dir_fd=self._target.fd)
        os.utime(name, ns=(status.st_mtime_ns,) * 2, dir_fd=self._target.fd, follow_symlinks=False)
        self.result.files += 1
        return True

    def _copy_file(self, name: str) -> bool:
        try:
            source = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._source.fd
            )
        except OSError as ex:
            self._skip_unreadable(name, ex)
            return False
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                self._skip(name, "it changed while it was copied")
                return False
            target = os.open(name, NEW_FILE, 0o600, dir_fd=self._target.fd)
            try:
                self.result.bytes += _copy_content(source, target)
                _finish(target, status)
            finally:
                os.close(target)
        finally:
            os.close(source)
        self.result.files += 1
        return True

    def _skip_unreadable(self, name: str, error: OSError) -> None:
        if error.errno not in _SKIPPABLE:
            raise error
        self._skip(name, os.strerror(error.errno))

    def _skip(self, name: str, reason: str) -> None:
        self.result.skip("/".join((*self._path, name)), reason)


def _finish(fd: int, status: os.stat_result) -> None:
    os.fchmod(fd, stat.S_IMODE(status.st_mode))
    os.utime(fd, ns=(status.st_mtime_ns, status.st_mtime_ns))


def _copy_content(source: int, target: int) -> int:
    """Copy to the end, in the kernel where it can. Returns the bytes copied."""
    total = 0
    ways: tuple[Callable[[], int], ...] = (
        lambda: os.copy_file_range(source, target, 1 << 30),
        lambda: os.sendfile(target, source, None, 1 << 30),
    )
    for way in ways:
        try:
            while count := way():
                total += count
        except OSError as ex:
            if ex.errno not in _NOT_THIS_WAY:
                raise
    while data := os.read(source, CHUNK):  # both may stop before the end
        write_all(target, data)
        total += len(data)
    return total
