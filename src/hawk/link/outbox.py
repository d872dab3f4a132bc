"""What one side has to send: changes of its files, as frames, in an order that never shows a result before its evidence.

Small files and what was added to files that grow come first; parts of a large file fill what room is left. A snapshot that
says that the job has ended waits until everything else is sent.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import msgspec

from hawk.core.states import JobStatus
from hawk.link import copies, rules
from hawk.link.changes import Scanner, Stamp
from hawk.link.copies import BLOCK, Blocks
from hawk.link.frames import DATA, MOST_BODY, File, Frame, Known, Lines, Remove, Tail

PART = 256 * 1024
"""Bytes of a frame: a stop or an answer waits for no more than some of these."""


class Sent(msgspec.Struct):
    """What the other side has of a file: of one that grows, up to `offset`."""

    size: int
    mtime: int
    inode: int = 0
    offset: int = 0
    digest: str = ""


class _Status(msgspec.Struct):
    status: str = ""


@dataclass
class _Large:
    """A large file on its way."""

    path: str
    fd: int
    stamp: Stamp
    at: int
    keep: int
    base: tuple[int, int] | None
    blocks: Blocks
    digest: hashlib.blake2b
    grows: bool


class Memory:
    """What outlives a connection.

    Attributes:
        had: Files that this side sent, or was given: only of these it says that they are gone.
        blocks: Digests of large files as they were sent last.
    """

    def __init__(self) -> None:
        self.had: set[str] = set()
        self.blocks: dict[str, Blocks] = {}


class Outbox:
    """Not for several threads at once.

    Args:
        root: The run directory.
        sends: Whether a file is this side's to send.
        removes: Whether this side may say that a file is gone.
        theirs: What the other side has.
        memory: Of the connections before this one.
        enters: Whether there may be such files in a directory.
    """

    def __init__(
        self,
        root: Path,
        sends: Callable[[str], bool],
        removes: Callable[[str], bool] = lambda _: False,
        theirs: Iterable[Known] = (),
        memory: Memory | None = None,
        enters: Callable[[str], bool] = rules.enters,
    ) -> None:
        self._root = root
        self._removes = removes
        self._memory = memory or Memory()
        self._scanner = Scanner(root, lambda path: rules.carried(path) and sends(path), enters)
        self._theirs = {known.path: known for known in theirs}
        self._sent = {known.path: Sent(known.size, known.mtime) for known in self._theirs.values()}
        self._small: dict[str, Stamp] = {}
        self._large: dict[str, Stamp] = {}
        self._gone: dict[str, None] = {}
        self._given: set[str] = set()
        self._held: Stamp | None = None
        self._transfer: _Large | None = None
        self._seq = 0
        self._first = True
        self._closed = False
        self.closing = False
        """Nothing is written any more: a snapshot that says so may go."""

    @property
    def pending(self) -> bool:
        """There is something to send."""
        return bool(self._small or self._large or self._gone or self._transfer or self._may_end())

    @property
    def settled(self) -> bool:
        """There is nothing to send, and no file is so young that it may have changed since."""
        return not self.pending and not self._scanner.doubtful

    def look(self, *, everything: bool = False) -> None:
        """See what has changed. Raises: OSError when the run directory is gone."""
        changed, removed = self._scanner.look(everything=everything or self._first)
        if self._first:
            self._first = False
            removed |= {path for path in self._sent if path in self._memory.had and self._absent(path)}
        # what was given and taken between two looks was never seen
        removed |= {path for path in self._given if self._absent(path)}
        self._given -= removed
        for path in removed:
            self._small.pop(path, None)
            self._large.pop(path, None)
            if self._sent.pop(path, None) is not None and self._removes(path):
                self._gone[path] = None
        for path, stamp in changed.items():
            self._gone.pop(path, None)
            if path == rules.SNAPSHOT and self._ends(path):
                self._held = stamp
                continue
            if path == rules.SNAPSHOT:
                self._held = None
            if stamp.size > PART and rules.kind(path) is rules.Kind.WHOLE:
                self._large[path] = stamp
            else:
                self._small[path] = stamp

    def received(self, path: str) -> None:
        """The other side has just written a file: it knows it as it is now."""
        try:
            status = os.lstat(self._root / path)
        except OSError:
            self._sent.pop(path, None)
            return
        self._sent[path] = Sent(status.st_size, status.st_mtime_ns, status.st_ino, status.st_size)
        self._memory.had.add(path)
        if rules.owner(path, spans=True) is rules.Owner.REQUEST:
            self._given.add(path)

    def narrowed(
        self, sends: Callable[[str], bool], removes: Callable[[str], bool], enters: Callable[[str], bool]
    ) -> Outbox:
        """Another one that knows what this one has sent, and follows fewer files."""
        other = Outbox(self._root, sends, removes, memory=self._memory, enters=enters)
        other._sent, other._theirs, other._seq = self._sent, self._theirs, self._seq
        self.close()
        return other

    def take(self) -> Frame | None:
        """The next frame; None: there is none now."""
        while self.pending and not self._closed:
            frame = self._next()
            if frame is not None:
                assert isinstance(frame.header, DATA)
                self._memory.had.add(frame.header.path)
                return frame
        return None

    def close(self) -> None:
        """Let go of what is open; nothing more is taken."""
        self._closed = True
        self._end_transfer()

    def _end_transfer(self) -> None:
        if self._transfer is not None:
            os.close(self._transfer.fd)
            self._transfer = None

    # --- choosing -------------------------------------------------------------------------------------

    def _next(self) -> Frame | None:
        if self._small:
            path = next(iter(self._small))
            stamp = self._small.pop(path)
            match rules.kind(path):
                case rules.Kind.LINES:
                    return self._lines(path, stamp)
                case rules.Kind.TAIL:
                    return self._tail(path, stamp)
                case rules.Kind.WHOLE:
                    return self._whole(path, stamp)
        if self._gone:
            path = next(iter(self._gone))
            del self._gone[path]
            return Frame(Remove(self._number(), path))
        if self._transfer is None and self._large:
            path = next(iter(self._large))
            self._begin(path, self._large.pop(path))
        if self._transfer is not None:
            return self._part(self._transfer)
        if self._held is not None and self._may_end():
            stamp, self._held = self._held, None
            return self._whole(rules.SNAPSHOT, stamp)
        return None

    def _may_end(self) -> bool:
        return self.closing and self._held is not None

    def _ends(self, path: str) -> bool:
        try:
            status = msgspec.json.decode((self._root / path).read_bytes(), type=_Status).status
            return JobStatus(status).terminal
        except (OSError, ValueError, msgspec.MsgspecError):
            return False

    def _absent(self, path: str) -> bool:
        return rules.carried(path) and self._removes(path) and not os.path.lexists(self._root / path)

    def _opened(self, path: str) -> FileIO:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return FileIO(os.open(self._root / path, flags))

    def _number(self) -> int:
        self._seq += 1
        return self._seq

    # --- whole files ----------------------------------------------------------------------------------

    def _whole(self, path: str, stamp: Stamp) -> Frame | None:
        """A small file, in one frame."""
        try:
            with self._opened(path) as file:
                before = _stamp(file.fileno())
                if before.size > PART:
                    self._large[path] = before
                    return None
                body = file.read(PART + 1)
                after = _stamp(file.fileno())
        except OSError:
            return None  # the next look says what has become of it
        if before != after or len(body) != after.size:
            self._small[path] = after
            return None
        digest = _digest(body)
        sent = self._sent.get(path)
        same = sent is not None and (sent.size, sent.mtime) == (after.size, after.mtime)
        if same and sent is not None and sent.digest in ("", digest):
            sent.digest = digest
            return None
        self._sent[path] = Sent(after.size, after.mtime, after.inode, after.size, digest)
        durable = rules.durable(path) or (path == rules.SNAPSHOT and self.closing)
        header = File(self._number(), path, after.size, after.mtime, digest=digest, durable=durable)
        return Frame(header, body)

    def _begin(self, path: str, stamp: Stamp, *, grows: bool = False) -> None:
        """Start with a large file, at its first difference to what was sent of it before."""
        try:
            fd = os.open(self._root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        stamp = _stamp(fd)
        sent = self._sent.get(path)
        if not grows and sent is not None and (sent.size, sent.mtime) == (stamp.size, stamp.mtime):
            os.close(fd)
            return
        blocks, keep, base = Blocks(stamp.size, stamp.mtime), 0, None
        before = self._memory.blocks.get(path)
        if before is not None and sent is not None and (sent.size, sent.mtime) == before.version:
            count = before.common(fd)
            if 0 < count * BLOCK < stamp.size:
                blocks.take(before, count)
                keep, base = count * BLOCK, before.version
        digest = hashlib.blake2b(digest_size=16)
        self._transfer = _Large(path, fd, stamp, keep, keep, base, blocks, digest, grows)

    def _part(self, large: _Large) -> Frame | None:
        if not large.grows and _stamp(large.fd)[:2] != large.stamp[:2]:  # it is written in place
            self._end_transfer()
            self._large[large.path] = large.stamp
            return None
        block = os.pread(large.fd, min(BLOCK, large.stamp.size - large.at), large.at)
        if not block and large.at < large.stamp.size:
            self._end_transfer()
            self._large[large.path] = large.stamp
            return None
        first = large.at == large.keep
        large.digest.update(block)
        large.blocks.add(block)
        offset = large.at
        large.at += len(block)
        last = large.at >= large.stamp.size
        header = File(
            self._number(),
            large.path,
            large.stamp.size,
            large.stamp.mtime,
            offset=offset,
            keep=large.keep if first else 0,
            base=large.base if first else None,
            digest=large.digest.hexdigest() if last else None,
            durable=rules.durable(large.path),
        )
        if last:
            self._arrived(large)
        return Frame(header, block)

    def _arrived(self, large: _Large) -> None:
        self._end_transfer()
        stamp = large.stamp
        self._sent[large.path] = Sent(stamp.size, stamp.mtime, stamp.inode, stamp.size)
        if large.grows:
            self._small[large.path] = stamp
        else:
            self._memory.blocks[large.path] = large.blocks

    # --- files that grow ------------------------------------------------------------------------------

    def _tail(self, path: str, stamp: Stamp) -> Frame | None:
        sent = self._resumed(path)
        if sent is None or (sent.inode and sent.inode != stamp.inode) or stamp.size < sent.offset:
            return self._anew(path)
        sent.inode = stamp.inode
        try:
            with self._opened(path) as file:
                now = _stamp(file.fileno())
                if now.inode != stamp.inode or now.size < sent.offset:
                    return self._anew(path)
                body = os.pread(file.fileno(), PART, sent.offset)
        except OSError:
            return None
        if not body:
            return None
        header = Tail(self._number(), path, sent.offset, now.mtime)
        sent.offset += len(body)
        if sent.offset < now.size:
            self._small[path] = now
        return Frame(header, body)

    def _resumed(self, path: str) -> Sent | None:
        """What the other side has of a file that grows; None where that is not the beginning of ours."""
        sent, known = self._sent.get(path), self._theirs.pop(path, None)
        if known is None or sent is None:
            return sent
        if copies.check(self._root / path, known.size) != known.check:
            return None
        sent.offset = known.size
        return sent

    def _anew(self, path: str) -> Frame | None:
        """Send a file that grows from its beginning: it is another one."""
        if self._transfer is not None:
            self._small[path] = Stamp(0, 0, 0)  # later: one large file at a time
            return self._part(self._transfer)
        self._begin(path, Stamp(0, 0, 0), grows=True)
        return self._part(self._transfer) if self._transfer is not None else None

    def _lines(self, path: str, stamp: Stamp) -> Frame | None:
        known = self._theirs.pop(path, None)
        sent = self._sent.get(path)
        if known is not None or sent is None:
            offset = copies.lines_known(self._root / path, known.lines if known else ())
            sent = self._sent[path] = Sent(stamp.size, stamp.mtime, stamp.inode, offset)
        try:
            with self._opened(path) as file:
                body = _whole_lines(file.fileno(), sent.offset)
        except OSError:
            return None
        if not body:
            return None
        sent.offset += len(body)
        self._small[path] = stamp
        return Frame(Lines(self._number(), path), body)


def _whole_lines(fd: int, offset: int) -> bytes:
    """Lines from an offset on, as many as fit into a frame; one that does not is cut."""
    for length in (PART, MOST_BODY):
        body = os.pread(fd, length, offset)
        end = body.rfind(b"\n") + 1
        if end or len(body) < length:
            return body[:end]
    return body[:-1] + b"\n"


def _stamp(fd: int) -> Stamp:
    status = os.fstat(fd)
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()
