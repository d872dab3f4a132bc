"""Puts what the other side sends into a run directory, and nowhere else.

Every directory on the way is opened by itself and never through a link, so that nothing that lies in the run directory
can lead out of it. Files that are replaced appear whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hawk.errors import HawkError, StorageError
from hawk.link import rules
from hawk.link.frames import File, Frame, Lines, ProtocolError, Remove, Tail
from hawk.store.rundir import storage_error

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_COPIED = 1 << 20

Data = File | Tail | Lines | Remove
Allowed = Callable[[Data], bool]


class _Open:
    """A file that comes in parts."""

    def __init__(self, header: File, fd: int, name: str) -> None:
        self.header, self.fd, self.name = header, fd, name
        self.at = header.keep
        self.digest = hashlib.blake2b(digest_size=16)


class Applier:
    """Applies frames in the order in which they come. For one thread at a time.

    Args:
        root: The run directory; it must be there, and is not made.
        allowed: Whether the other side may do that to that file.
    """

    def __init__(self, root: Path, allowed: Allowed) -> None:
        self._root = root
        self.allowed = allowed
        self._open: _Open | None = None
        self._made = 0

    def apply(self, frame: Frame) -> bool:
        """Do what a frame says. Returns whether a file is now as it is meant to be.

        Raises:
            ProtocolError: The other side may not do that, or it does not fit what is there.
            StorageError: It can't be written here.
        """
        header = frame.header
        assert isinstance(header, Data)
        rules.check_path(header.path)
        if not rules.carried(header.path) or not self.allowed(header):
            raise ProtocolError(f"{header.path}: the other side may not write that")
        try:
            match header:
                case File():
                    return self._file(header, frame.body)
                case Tail():
                    self._tail(header, frame.body)
                case Lines():
                    self._lines(header, frame.body)
                case Remove():
                    self._remove(header.path)
        except OSError as ex:
            raise storage_error(self._root / header.path, ex) from ex
        return True

    def close(self) -> None:
        """Forget what has come only in part."""
        if self._open is not None:
            opened, self._open = self._open, None
            self._drop(opened)

    # --- whole files ----------------------------------------------------------------------------------

    def _file(self, header: File, body: bytes) -> bool:
        alone = header.offset == header.keep and header.digest is not None
        if alone:  # comes whole, maybe between the parts of another one
            opened = self._begin(header)
        else:
            if header.offset == header.keep:
                self.close()
                self._open = self._begin(header)
            if self._open is None or self._open.header.path != header.path:
                raise ProtocolError(f"{header.path}: the parts before this one are missing")
            opened = self._open
        try:
            return self._part(opened, header, body)
        except BaseException:
            if alone:
                self._drop(opened)
            raise

    def _part(self, opened: _Open, header: File, body: bytes) -> bool:
        first = opened.header
        if (header.offset, header.size, header.mtime) != (opened.at, first.size, first.mtime):
            raise ProtocolError(f"{header.path}: a part is not the one that comes next")
        if opened.at + len(body) > header.size:
            raise ProtocolError(f"{header.path}: there is more of it than was said")
        _write(opened.fd, body)
        opened.digest.update(body)
        opened.at += len(body)
        if header.digest is None:
            if not body:
                raise ProtocolError(f"{header.path}: an empty part")
            return False
        if opened.at != header.size or opened.digest.hexdigest() != header.digest:
            raise ProtocolError(f"{header.path}: what came is not what was sent")
        self._finish(opened, header)
        return True

    def _begin(self, header: File) -> _Open:
        if not 0 <= header.keep == header.offset <= header.size <= rules.LARGEST:
            raise ProtocolError(f"{header.path}: {header.size:,} bytes from {header.offset:,} on can't be")
        with self._directory(header.path, make=True) as (directory, name):
            draft = f".{name[:200]}.{secrets.token_hex(4)}"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            opened = _Open(header, os.open(draft, flags, 0o600, dir_fd=directory), draft)
            try:
                if header.keep:
                    _copy_beginning(directory, name, header, opened.fd)
            except BaseException:
                self._drop(opened)
                raise
        return opened

    def _finish(self, opened: _Open, header: File) -> None:
        with self._directory(header.path) as (directory, name):
            os.utime(opened.fd, ns=(header.mtime, header.mtime))
            if header.durable:
                os.fsync(opened.fd)
            os.replace(opened.name, name, src_dir_fd=directory, dst_dir_fd=directory)
        os.close(opened.fd)
        if opened is self._open:
            self._open = None

    def _drop(self, opened: _Open) -> None:
        os.close(opened.fd)
        with contextlib.suppress(OSError, HawkError), self._directory(opened.header.path) as (fd, _):
            os.unlink(opened.name, dir_fd=fd)

    # --- files that grow ------------------------------------------------------------------------------

    def _tail(self, header: Tail, body: bytes) -> None:
        if rules.kind(header.path) is not rules.Kind.TAIL:
            raise ProtocolError(f"{header.path} does not grow")
        with self._growing(header.path) as fd:
            size = os.fstat(fd).st_size
            if size != header.offset:
                raise ProtocolError(
                    f"{header.path} has {size:,} bytes; what came begins at {header.offset:,}"
                )
            if size + len(body) > rules.LARGEST:
                raise ProtocolError(f"{header.path} is too large")
            _write(fd, body)
            os.utime(fd, ns=(header.mtime, header.mtime))

    def _lines(self, header: Lines, body: bytes) -> None:
        if rules.kind(header.path) is not rules.Kind.LINES or not body.endswith(b"\n"):
            raise ProtocolError(f"{header.path}: these are no lines for it")
        with self._growing(header.path) as fd:
            size = os.fstat(fd).st_size
            if size + len(body) > rules.LARGEST:
                raise ProtocolError(f"{header.path} is too large")
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            _write(fd, b"\n" + body if torn else body)
            os.fsync(fd)

    @contextmanager
    def _growing(self, path: str) -> Iterator[int]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with self._directory(path, make=True) as (directory, name):
            fd = os.open(name, flags, 0o600, dir_fd=directory)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise ProtocolError(f"{path} is no file")
                yield fd
            finally:
                os.close(fd)

    # --- removals -------------------------------------------------------------------------------------

    def _remove(self, path: str) -> None:
        """Remove a file, and the directories that are empty then."""
        try:
            with self._directory(path) as (directory, name):
                os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            return
        folder = path.rpartition("/")[0]
        while folder.count("/") > 0:
            try:
                with self._directory(folder) as (directory, name):
                    os.rmdir(name, dir_fd=directory)
            except OSError:
                return
            folder = folder.rpartition("/")[0]

    # --- directories ----------------------------------------------------------------------------------

    @contextmanager
    def _directory(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The directory of a file, opened, and the file's name in it."""
        *folders, name = path.split("/")
        try:
            fd = os.open(self._root, _DIRECTORY)
        except OSError as ex:
            raise StorageError(f"{self._root} is not there any more.", path=str(self._root)) from ex
        try:
            for folder in folders:
                try:
                    inner = os.open(folder, _DIRECTORY, dir_fd=fd)
                except FileNotFoundError:
                    if not make:
                        raise
                    self._count()
                    os.mkdir(folder, 0o700, dir_fd=fd)
                    inner = os.open(folder, _DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd, name
        finally:
            os.close(fd)

    def _count(self) -> None:
        self._made += 1
        if self._made > rules.MOST_FILES:
            raise ProtocolError("the other side makes too many directories")


def _copy_beginning(directory: int, name: str, header: File, to: int) -> None:
    """Take over what the new file has in common with the one that is there."""
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        status = os.fstat(source)
        if (status.st_size, status.st_mtime_ns) != header.base or status.st_size < header.keep:
            raise ProtocolError(f"{header.path} is not the file that was meant")
        at = 0
        while at < header.keep:
            data = os.pread(source, min(_COPIED, header.keep - at), at)
            if not data:
                raise ProtocolError(f"{header.path} is shorter than it was")
            _write(to, data)
            at += len(data)
    finally:
        os.close(source)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
